-- refused: trainings, programs and plans of neap plan that did not fit, newest first: the limit, the least that would do, what was in the way.
-- :net a net's name; :mode train or infer; :batch (null: every one)
SELECT run_id, net, mode, batch, error ->> 'limit' AS limit_name, error ->> 'limit_bytes' AS limit_bytes,
       error ->> 'least_bytes' AS least_bytes, error ->> 'line' AS line,
       (SELECT group_concat(b.value ->> 'name' || ' ' || (b.value ->> 'bytes'), ', ')
        FROM json_each(error, '$.blobs') b) AS in_the_way,
       (SELECT group_concat(m.value ->> 'name' || ' ' || (m.value ->> 'bytes') || coalesce(' ' || (m.value ->> 'line'), ''), ', ')
        FROM json_each(error, '$.modules') m) AS by_module,
       error ->> 'request_bytes' AS request_bytes, error ->> 'hint' AS would_do,
       datetime(started_at, 'unixepoch') AS started
FROM run
WHERE status = 'refused' AND (:net IS NULL OR net = :net) AND (:mode IS NULL OR mode = :mode)
  AND (:batch IS NULL OR batch = :batch)
ORDER BY uuid DESC;
