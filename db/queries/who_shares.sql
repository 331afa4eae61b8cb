-- who_shares: which values lie on bytes of one blob, and why nobody notices.
-- :blob the blob's name; :plan a plan's number, or what to find it by (db/asked/plan.sql)
SELECT net, mode, batch, b AS blob, shared_bytes, why
FROM v_reuse
WHERE plan_id = :plan AND a = :blob
ORDER BY shared_bytes DESC, b;
