-- op_time: where the time of the newest profiled run goes, slowest first.
-- :net a net's name (null: every net)
WITH profiled AS (
  SELECT run_id, max(uuid)
  FROM run r
  WHERE (:net IS NULL OR net = :net) AND EXISTS (SELECT 1 FROM run_op o WHERE o.run_id = r.run_id)
  GROUP BY net, mode
)
SELECT t.net, t.mode, t.step, t.name, t.type, t.phase, t.kernel, t.median_ns, t.percent, t.gflop_per_s, t.line
FROM v_op_time t
WHERE t.run_id IN (SELECT run_id FROM profiled)
ORDER BY t.net, t.mode, t.median_ns DESC, t.step;
