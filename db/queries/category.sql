-- category: bytes at the peak by what they are for: activations, gradients, stashes, scratch ...
-- :plan a plan's number, or what to find it by (db/asked/plan.sql)
SELECT net, mode, batch, category, bytes, n_storage, round(100.0 * bytes / sum(bytes) OVER (), 2) AS percent
FROM v_category
WHERE plan_id = :plan
ORDER BY bytes DESC;
