-- largest: the twenty largest storages of the newest plans, whatever their region.
-- :net a net's name (null: every net)
SELECT net, mode, blob, bytes, role, region, shape, first_step, last_step, line
FROM v_blob_life
WHERE newest AND value_no = storage_no AND (:net IS NULL OR net = :net)
ORDER BY bytes DESC, net, blob
LIMIT 20;
