-- op_time: where the time of the newest profiled run goes, slowest first.
-- :net a net's name (null: every net)
SELECT t.net, t.mode, t.step, t.name, t.type, t.phase, t.kernel, t.median_ns, t.percent, t.gflop_per_s, t.line
FROM v_op_time t
WHERE (:net IS NULL OR t.net = :net)
  AND t.run_id = (SELECT max(u.run_id) FROM v_run u
                  WHERE u.net = t.net AND u.mode = t.mode AND u.run_id IN (SELECT run_id FROM run_op))
ORDER BY t.net, t.mode, t.median_ns DESC, t.step;
