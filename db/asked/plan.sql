-- The plans that a canned query is asked of, which speaks of :plan: of each net and mode the one used last among those
-- that have what is asked for. What is not said is null, and stands for all.
-- :net a net's name; :mode train or infer; :batch; :policy; :budget bytes; :engine as the options have it
SELECT plan_id AS plan, max(used_no) AS used_no
FROM plan
WHERE (:net IS NULL OR net = :net) AND (:mode IS NULL OR mode = :mode) AND (:batch IS NULL OR batch = :batch)
  AND (:policy IS NULL OR policy = :policy) AND (:budget IS NULL OR budget_bytes = :budget)
  AND (:engine IS NULL OR json_extract(options, '$.engine') = :engine)
GROUP BY net, mode
ORDER BY net, mode;
