-- layer: bytes by layer: all of it, its parameters, and its share of the peak.
-- :plan a plan's number, or what to find it by (db/asked/plan.sql)
SELECT net, mode, batch, layer, bytes, parameter_bytes, peak_bytes
FROM v_layer
WHERE plan_id = :plan
ORDER BY peak_bytes DESC, bytes DESC, layer;
