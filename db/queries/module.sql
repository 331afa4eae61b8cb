-- module: bytes and time by module, each with all that lies below it: all bytes, parameters, its share of the peak with scratch, its ops in the plan's newest measured run.
-- :plan a plan's number, or what to find it by (db/asked/plan.sql)
WITH measured AS (
  SELECT run_id, program_no FROM program g JOIN run r USING (run_id)
  WHERE g.plan_id = :plan
    AND EXISTS (SELECT 1 FROM program_op t WHERE t.run_id = g.run_id AND t.program_no = g.program_no)
  ORDER BY r.uuid DESC, program_no LIMIT 1
), time AS MATERIALIZED (
  SELECT o.layer, sum(t.median_ns) AS median_ns
  FROM measured
  JOIN program_op t USING (run_id, program_no)
  JOIN plan_op o ON o.plan_id = :plan AND o.step = t.step
  GROUP BY o.layer
), layer AS MATERIALIZED (
  SELECT l.*, t.median_ns, '[' || replace(json_quote(l.layer), '/', '","') || ']' AS path
  FROM (SELECT * FROM v_layer WHERE plan_id = :plan) l
  LEFT JOIN time t ON t.layer IS l.layer
)
SELECT net, mode, batch,
       (SELECT group_concat(value, '/') FROM json_each(layer.path) WHERE key <= part.key) AS module,
       part.key + 1 AS depth, count(*) AS n_layer, sum(bytes) AS bytes, sum(parameter_bytes) AS parameter_bytes,
       sum(peak_bytes) AS peak_bytes, sum(median_ns) AS median_ns,
       round(100.0 * sum(median_ns) / (SELECT sum(median_ns) FROM time), 2) AS time_percent,
       (SELECT run_id FROM measured) AS run_id
FROM layer
CROSS JOIN json_each(layer.path) part
GROUP BY net, mode, batch, depth, module
ORDER BY depth, peak_bytes DESC, bytes DESC, module;
