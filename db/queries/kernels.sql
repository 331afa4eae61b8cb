-- kernels: how long each kernel takes that could run an op, of a plan that neap profile kernels was asked of; the plan's own first.
-- :plan a plan's number, or what to find it by (db/asked/plan.sql)
-- made by neap profile kernels NET
SELECT net, mode, batch, step, name, type, kernel, taken, min_ns, scratch_bytes, gflop_per_s
FROM v_kernel
WHERE plan_id = :plan
ORDER BY step, machine_id, taken DESC, min_ns IS NULL, min_ns;
