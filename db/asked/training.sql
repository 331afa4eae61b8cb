-- The runs that a canned query is asked of, which speaks of :run: of each net and mode the newest that has figures, as a loss.
-- :net a net's name; :mode train or infer; :batch
SELECT run_id AS run, max(uuid) AS uuid
FROM run r
WHERE (:net IS NULL OR net = :net) AND (:mode IS NULL OR mode = :mode) AND (:batch IS NULL OR batch = :batch)
  AND EXISTS (SELECT 1 FROM run_metric m WHERE m.run_id = r.run_id)
GROUP BY net, mode
ORDER BY net, mode;
