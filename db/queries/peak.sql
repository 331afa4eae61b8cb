-- peak: what is live at the step that needs most, largest first.
-- :net a net's name (null: every net), of its newest plan in each mode
SELECT net, mode, step, op, blob, bytes, role, shape, first_step, last_step, line
FROM v_peak
WHERE newest AND (:net IS NULL OR net = :net)
ORDER BY net, mode, bytes DESC, blob;
