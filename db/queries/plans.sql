-- plans: every plan, the last used first, with what it needs and how near it is to the least for its kernels and order.
-- :net a net's name (null: every net)
SELECT plan_id, net, mode, batch, dtype, policy, executor, arena_bytes, lower_bound_bytes, proved, baseline_bytes, total_bytes,
       n_hit, datetime(used_at, 'unixepoch') AS used
FROM v_plan
WHERE :net IS NULL OR net = :net
ORDER BY used_at DESC, plan_id DESC;
