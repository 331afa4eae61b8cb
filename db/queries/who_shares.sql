-- who_shares: which values lie on bytes of one blob, and why nobody notices.
-- :blob the blob's name; :net a net's name (null: every net)
SELECT net, mode, b AS blob, shared_bytes, why
FROM v_reuse
WHERE newest AND a = :blob AND (:net IS NULL OR net = :net)
ORDER BY net, mode, shared_bytes DESC, b;
