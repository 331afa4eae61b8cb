-- op_time: where the time of a run goes, slowest first.
-- :run a run's number, or what to find it by (db/asked/run.sql)
SELECT t.net, t.mode, r.batch, t.step, t.name, t.type, t.phase, t.kernel, t.median_ns, t.percent, t.gflop_per_s, t.line
FROM v_op_time t
JOIN run r USING (run_id)
WHERE run_id = :run
ORDER BY t.median_ns DESC, t.step;
