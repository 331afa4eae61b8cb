-- who_reads: which ops read a blob, in the order of steps.
-- :blob the blob's name; :plan a plan's number, or what to find it by (db/asked/plan.sql)
SELECT net, mode, batch, blob, written_step, step, reader, type, phase, line
FROM v_reader
WHERE plan_id = :plan AND blob = :blob
ORDER BY step, position;
