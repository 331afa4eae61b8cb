-- losses: the loss and the other figures of a training, step by step.
-- :run a run's number, or what to find it by (db/asked/training.sql)
SELECT run_id, r.net, r.mode, r.batch, m.name, m.at_step, m.value
FROM run r
JOIN run_metric m USING (run_id)
WHERE run_id = :run
ORDER BY m.name, m.at_step;
