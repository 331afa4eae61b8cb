-- plans: every plan, the last used first, with the dtype that it computes in, what it needs and how near it is to the least for its kernels and order.
-- :net a net's name; :mode train or infer; :batch; :policy (null: every one)
SELECT plan_id, net, mode, batch, coalesce(nullif(json_extract(options, '$.dtype'), 'f32'), dtype) AS dtype, policy,
       budget_bytes, executor, arena_bytes, lower_bound_bytes, proved, baseline_bytes, total_bytes, n_hit, datetime(used_at, 'unixepoch') AS used
FROM v_plan
WHERE (:net IS NULL OR net = :net) AND (:mode IS NULL OR mode = :mode) AND (:batch IS NULL OR batch = :batch)
  AND (:policy IS NULL OR policy = :policy)
ORDER BY used_at DESC, plan_id DESC;
