-- peak: what is live at the step that needs most, largest first.
-- :plan a plan's number, or what to find it by (db/asked/plan.sql)
SELECT net, mode, batch, step, op, blob, bytes, role, shape, first_step, last_step, line
FROM v_peak
WHERE plan_id = :plan
ORDER BY bytes DESC, blob;
