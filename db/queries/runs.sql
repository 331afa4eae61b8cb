-- runs: every run, newest first: time, and bytes promised against bytes held.
-- :net a net's name; :mode train or infer; :batch (null: every one)
SELECT run_id, net, mode, batch, dtype, nullif(n_thread, 0) AS n_thread, n_step, step_min_ns, step_median_ns,
       planned_bytes, held_bytes, resident_bytes, status, tag, datetime(started_at, 'unixepoch') AS started
FROM v_run
WHERE (:net IS NULL OR net = :net) AND (:mode IS NULL OR mode = :mode) AND (:batch IS NULL OR batch = :batch)
ORDER BY uuid DESC;
