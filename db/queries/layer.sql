-- layer: bytes and time by layer: all of it, its parameters, its share of the peak with scratch, and its ops in the plan's newest measured run.
-- :plan a plan's number, or what to find it by (db/asked/plan.sql)
WITH part AS MATERIALIZED (
  SELECT net, mode, batch, layer, bytes, parameter_bytes, peak_bytes, NULL AS median_ns, NULL AS run_id FROM v_layer WHERE plan_id = :plan
  UNION ALL
  SELECT net, mode, batch, layer, 0, 0, 0, median_ns, run_id FROM v_layer_time WHERE plan_id = :plan
)
SELECT net, mode, batch, layer, sum(bytes) AS bytes, sum(parameter_bytes) AS parameter_bytes, sum(peak_bytes) AS peak_bytes,
       sum(median_ns) AS median_ns, round(100.0 * sum(median_ns) / (SELECT sum(median_ns) FROM part), 2) AS time_percent,
       (SELECT max(run_id) FROM part) AS run_id
FROM part
GROUP BY net, mode, batch, layer
ORDER BY peak_bytes DESC, bytes DESC, layer;
