-- trainings: every training, newest first: what it was of, what became of its loss, its time and bytes.
-- :net a net's name; :batch (null: every one)
SELECT run_id, net, batch, dtype, nullif(n_thread, 0) AS n_thread, seed, arguments,
       substr(commit_id, 1, 10) AS commit_id, n_step, step_median_ns, held_bytes,
       (SELECT value FROM run_metric m WHERE m.run_id = r.run_id AND name = 'loss' ORDER BY at_step LIMIT 1) AS first_loss,
       (SELECT min(value) FROM run_metric m WHERE m.run_id = r.run_id AND name = 'loss') AS least_loss,
       (SELECT value FROM run_metric m WHERE m.run_id = r.run_id AND name = 'loss' ORDER BY at_step DESC LIMIT 1) AS last_loss,
       status
FROM v_run r
WHERE mode = 'train' AND (:net IS NULL OR net = :net) AND (:batch IS NULL OR batch = :batch)
ORDER BY uuid DESC;
