-- fragmentation: bytes of the arena that lie between what lives when most does, and what reuse saves.
-- :plan a plan's number, or what to find it by (db/asked/plan.sql)
SELECT net, mode, batch, policy, arena_bytes, lower_bound_bytes, gap_bytes,
       round(100.0 * gap_bytes / nullif(arena_bytes, 0), 2) AS gap_percent, proved, baseline_bytes,
       round(100.0 * saved, 1) AS saved_percent
FROM v_plan
WHERE plan_id = :plan;
