-- history: how time and bytes of a net went from run to run, and from commit to commit, oldest first.
-- :net a net's name; :mode train or infer; :batch (null: every one)
SELECT run_id, net, mode, batch, dtype, nullif(n_thread, 0) AS n_thread, substr(commit_id, 1, 10) AS commit_id,
       commit_dirty AS dirty, step_median_ns, held_bytes, status, tag, datetime(started_at, 'unixepoch') AS started
FROM v_run
WHERE (:net IS NULL OR net = :net) AND (:mode IS NULL OR mode = :mode) AND (:batch IS NULL OR batch = :batch)
ORDER BY net, mode, batch, uuid;
