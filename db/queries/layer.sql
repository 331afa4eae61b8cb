-- layer: bytes and time by layer: all of it, its parameters, its share of the peak with scratch, and its ops in the plan's newest measured run.
-- :plan a plan's number, or what to find it by (db/asked/plan.sql)
WITH measured AS (
  SELECT run_id, program_no FROM program g JOIN run r USING (run_id)
  WHERE g.plan_id = :plan
    AND EXISTS (SELECT 1 FROM program_op t WHERE t.run_id = g.run_id AND t.program_no = g.program_no)
  ORDER BY r.uuid DESC, program_no LIMIT 1
), time AS MATERIALIZED (
  SELECT o.layer, sum(t.median_ns) AS median_ns, count(*) AS n_op
  FROM measured
  JOIN program_op t USING (run_id, program_no)
  JOIN plan_op o ON o.plan_id = :plan AND o.step = t.step
  GROUP BY o.layer
)
SELECT l.net, l.mode, l.batch, l.layer, l.bytes, l.parameter_bytes, l.peak_bytes, t.median_ns,
       round(100.0 * t.median_ns / (SELECT sum(median_ns) FROM time), 2) AS time_percent, (SELECT run_id FROM measured) AS run_id
FROM (SELECT * FROM v_layer WHERE plan_id = :plan) l
LEFT JOIN time t ON t.layer IS l.layer
ORDER BY l.peak_bytes DESC, l.bytes DESC, l.layer;
