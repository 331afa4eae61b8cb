-- The runs that a canned query is asked of, which speaks of :run: of each net and mode the newest with times by op.
-- :net a net's name; :mode train or infer; :batch of the program that they are of, or of a run whose programs take parts of a batch
SELECT run_id AS run, max(r.uuid) AS uuid
FROM run r
JOIN plan p USING (plan_id)
WHERE (:net IS NULL OR r.net = :net) AND (:mode IS NULL OR r.mode = :mode) AND (:batch IS NULL OR p.batch = :batch
    OR (r.batch = :batch AND NOT EXISTS (SELECT 1 FROM program g
                                         WHERE g.run_id = r.run_id AND g.mode = r.mode AND g.batch = :batch)))
  AND EXISTS (SELECT 1 FROM run_op o WHERE o.run_id = r.run_id)
GROUP BY r.net, r.mode
ORDER BY r.net, r.mode;
