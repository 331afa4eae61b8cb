-- largest: the twenty largest storages, whatever their region.
-- :plan a plan's number, or what to find it by (db/asked/plan.sql)
SELECT net, mode, batch, blob, bytes, role, region, shape, first_step, last_step, line
FROM v_blob_life
WHERE plan_id = :plan AND value_no = storage_no
ORDER BY bytes DESC, net, blob
LIMIT 20;
