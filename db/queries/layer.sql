-- layer: bytes by layer: all of it, its parameters, and its share of the peak.
-- :net a net's name (null: every net)
SELECT net, mode, layer, bytes, parameter_bytes, peak_bytes
FROM v_layer
WHERE newest AND (:net IS NULL OR net = :net)
ORDER BY net, mode, peak_bytes DESC, bytes DESC, layer;
