-- op_time: where the time of a run goes, slowest first; last what makes constants, which is no part of a step.
-- :run a run's number, or what to find it by (db/asked/run.sql)
SELECT t.net, t.mode, p.batch, t.step, t.name, t.type, t.phase, t.kernel, t.median_ns, t.percent, t.gflop_per_s, t.line
FROM v_op_time t
JOIN plan p USING (plan_id)
WHERE run_id = :run
ORDER BY t.once, t.median_ns DESC, t.step;
