-- layer: bytes and time by layer: all of it, its parameters, its share of the peak, and its ops in the plan's newest measured run.
-- :plan a plan's number, or what to find it by (db/asked/plan.sql)
WITH measured AS (
  SELECT run_id FROM run r
  WHERE plan_id = :plan AND EXISTS (SELECT 1 FROM run_op t WHERE t.run_id = r.run_id)
  ORDER BY uuid DESC LIMIT 1
), time AS MATERIALIZED (
  SELECT o.layer, sum(t.median_ns) AS median_ns, count(*) AS n_op
  FROM measured
  JOIN run_op t USING (run_id)
  JOIN plan_op o ON o.plan_id = :plan AND o.step = t.step
  GROUP BY o.layer
)
SELECT l.net, l.mode, l.batch, l.layer, l.bytes, l.parameter_bytes, l.peak_bytes, t.median_ns,
       round(100.0 * t.median_ns / (SELECT sum(median_ns) FROM time), 2) AS time_percent, (SELECT run_id FROM measured) AS run_id
FROM (SELECT * FROM v_layer WHERE plan_id = :plan) l
LEFT JOIN time t ON t.layer IS l.layer
ORDER BY l.peak_bytes DESC, l.bytes DESC, l.layer;
