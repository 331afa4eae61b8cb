-- reorders: copies from one layout to another, the largest first, and whom each is for.
-- :plan a plan's number, or what to find it by (db/asked/plan.sql)
SELECT p.net, p.mode, p.batch, o.step, o.name, o.phase, o.read_bytes, o.write_bytes, o.layer, o.reason AS why, o.line
FROM plan_op o
JOIN plan p USING (plan_id)
WHERE plan_id = :plan AND o.type = 'Reorder'
ORDER BY o.write_bytes DESC, o.step;
