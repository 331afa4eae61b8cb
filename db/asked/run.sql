-- The runs that a canned query is asked of, which speaks of :run: of each net and mode the newest with times by op.
-- :net a net's name; :mode train or infer; :batch of the program that they are of
SELECT run_id AS run, max(r.uuid) AS uuid
FROM run r
JOIN plan p USING (plan_id)
WHERE (:net IS NULL OR r.net = :net) AND (:mode IS NULL OR r.mode = :mode) AND (:batch IS NULL OR p.batch = :batch)
  AND EXISTS (SELECT 1 FROM run_op o WHERE o.run_id = r.run_id)
GROUP BY r.net, r.mode
ORDER BY r.net, r.mode;
