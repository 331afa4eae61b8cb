-- module: bytes and time by module, each with all that lies below it: all bytes, parameters, its share of the peak with scratch, its ops in the plan's newest measured run.
-- :plan a plan's number, or what to find it by (db/asked/plan.sql)
WITH part AS MATERIALIZED (
  SELECT net, mode, batch, layer, bytes, parameter_bytes, peak_bytes, NULL AS median_ns, NULL AS run_id FROM v_layer WHERE plan_id = :plan
  UNION ALL
  SELECT net, mode, batch, layer, 0, 0, 0, median_ns, run_id FROM v_layer_time WHERE plan_id = :plan
), layer AS MATERIALIZED (
  SELECT net, mode, batch, layer, sum(bytes) AS bytes, sum(parameter_bytes) AS parameter_bytes, sum(peak_bytes) AS peak_bytes,
         sum(median_ns) AS median_ns, '[' || replace(json_quote(layer), '/', '","') || ']' AS path
  FROM part
  GROUP BY net, mode, batch, layer
)
SELECT net, mode, batch,
       (SELECT group_concat(value, '/') FROM json_each(layer.path) WHERE key <= name.key) AS module,
       name.key + 1 AS depth, count(*) AS n_layer, sum(bytes) AS bytes, sum(parameter_bytes) AS parameter_bytes,
       sum(peak_bytes) AS peak_bytes, sum(median_ns) AS median_ns,
       round(100.0 * sum(median_ns) / (SELECT sum(median_ns) FROM part), 2) AS time_percent,
       (SELECT max(run_id) FROM part) AS run_id
FROM layer
CROSS JOIN json_each(layer.path) name
GROUP BY net, mode, batch, depth, module
ORDER BY depth, peak_bytes DESC, bytes DESC, module;
