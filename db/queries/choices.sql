-- choices: which kernel runs each op, and why that one; Reorders too, with what they are for.
-- :plan a plan's number, or what to find it by (db/asked/plan.sql)
SELECT net, mode, batch, step, name, type, kernel, why
FROM v_choice
WHERE plan_id = :plan
ORDER BY step;
