-- Views, each named for the question it answers; made anew whenever this file changes. Names that begin with v_ are Neap's.
-- Where rows are grouped, the groups name all that people ask by, so that SQLite looks at no other plan; and plans and runs come
-- first in each CROSS JOIN, whose order SQLite keeps, so that it finds them before it looks at what they have.
-- `newest` is 1 for the plan that was used last, or the run that was begun last, of a net's name and mode, so that no question needs an id.

-- What runs at each step: packed_op, with its words; of subnets too.
CREATE VIEW subnet_op AS
SELECT
  plan_id,
  subnet_no,
  step,
  (SELECT text FROM plan_word WHERE word_id = o.type) AS type,
  iif(o.name < 0, (SELECT text FROM plan_word WHERE word_id = o.layer), '')
    || (SELECT text FROM plan_word WHERE word_id = abs(o.name)) AS name,
  (SELECT text FROM plan_word WHERE word_id = o.layer) AS layer,
  (SELECT text FROM plan_word WHERE word_id = o.module) AS module,
  (SELECT text FROM plan_word WHERE word_id = o.line) AS line,
  (SELECT text FROM plan_word WHERE word_id = o.phase) AS phase,
  recomputes,
  (SELECT text FROM plan_word WHERE word_id = o.kernel) AS kernel,
  (SELECT text FROM plan_word WHERE word_id = o.algorithm) AS algorithm,
  (SELECT text FROM plan_word WHERE word_id = o.choice_reason) AS choice_reason,
  (SELECT text FROM plan_word WHERE word_id = o.other) AS other,
  other_scratch_bytes,
  other_work,
  flops,
  (SELECT text FROM plan_word WHERE word_id = o.dtype) AS dtype,
  once,
  read_bytes,
  write_bytes,
  scratch_bytes,
  live_bytes,
  (SELECT text FROM plan_word WHERE word_id = o.reason) AS reason
FROM packed_op o;

-- Those of the net itself.
CREATE VIEW plan_op AS
SELECT
  plan_id, step, type, name, layer, module, line, phase, recomputes, kernel, algorithm, choice_reason,
  other, other_scratch_bytes, other_work, flops, dtype, once, read_bytes, write_bytes, scratch_bytes, live_bytes, reason
FROM subnet_op
WHERE subnet_no = 0;

-- Where each value lies and how long: packed_value, with its words; of subnets too.
CREATE VIEW subnet_value AS
SELECT
  *,
  words || coalesce(': ' || partner, '') || coalesce('; not in place: ' || refusal, '') AS detail
FROM (
  SELECT
    plan_id,
    subnet_no,
    value_no,
    clone,
    storage_no,
    iif(v.blob < 0, (SELECT text FROM plan_word WHERE word_id = v.layer), '')
      || (SELECT text FROM plan_word WHERE word_id = abs(v.blob)) AS blob,
    (SELECT text FROM plan_word WHERE word_id = v.layer) AS layer,
    (SELECT text FROM plan_word WHERE word_id = v.module) AS module,
    (SELECT text FROM plan_word WHERE word_id = v.line) AS line,
    (SELECT text FROM plan_word WHERE word_id = v.role) AS role,
    (SELECT text FROM plan_word WHERE word_id = v.category) AS category,
    (SELECT text FROM plan_word WHERE word_id = v.region) AS region,
    (SELECT text FROM plan_word WHERE word_id = v.dtype) AS dtype,
    (SELECT text FROM plan_word WHERE word_id = v.layout) AS layout,
    (SELECT text FROM plan_word WHERE word_id = v.shape) AS shape,
    bytes,
    offset_bytes,
    first_step,
    last_step,
    kept,
    (SELECT text FROM plan_word WHERE word_id = v.reason) AS reason,
    (SELECT text FROM plan_word WHERE word_id = v.words) AS words,
    (SELECT text FROM plan_word WHERE word_id = v.refusal) AS refusal,
    partner_no,
    (SELECT iif(w.blob < 0, (SELECT text FROM plan_word WHERE word_id = w.layer), '')
              || (SELECT text FROM plan_word WHERE word_id = abs(w.blob))
     FROM packed_value w
     WHERE w.plan_id = v.plan_id AND w.subnet_no = v.subnet_no AND w.value_no = v.partner_no) AS partner
  FROM packed_value v
);

-- Those of the net itself.
CREATE VIEW plan_value AS
SELECT
  plan_id, value_no, clone, storage_no, blob, layer, module, line, role, category, region, dtype, layout, shape, bytes,
  offset_bytes, first_step, last_step, kept, reason, words, refusal, partner_no, partner, detail
FROM subnet_value
WHERE subnet_no = 0;

-- What nets are there, and how do they read?
CREATE VIEW v_net AS
SELECT n.net_id, n.name, n.file, n.created_at, CAST(sqlar_uncompress(t.zip, t.bytes) AS TEXT) AS text
FROM net n
JOIN net_text t USING (text_id);

-- What plans are there, and how good are they?
CREATE VIEW v_plan AS
SELECT
  p.*,
  p.arena_bytes - p.lower_bound_bytes AS gap_bytes,
  round(1.0 * p.arena_bytes / nullif(p.lower_bound_bytes, 0), 4) AS over_bound,
  round(1 - 1.0 * p.arena_bytes / nullif(p.baseline_bytes, 0), 4) AS saved,
  p.used_no = (SELECT max(q.used_no) FROM plan q WHERE q.net = p.net AND q.mode = p.mode) AS newest
FROM plan p;

-- What is live when most is live? One row a storage: its largest value.
CREATE VIEW v_peak AS
SELECT
  p.net, p.mode, p.batch, p.newest, p.plan_id,
  o.step, o.name AS op, o.line AS op_line, o.live_bytes, o.scratch_bytes,
  v.blob, max(v.bytes) AS bytes, v.role, v.layer, v.shape, v.first_step, v.last_step, v.line
FROM v_plan p
CROSS JOIN plan_op o ON o.plan_id = p.plan_id AND o.step = p.peak_step
CROSS JOIN plan_value v ON v.plan_id = p.plan_id AND v.region = 'arena'
                 AND p.peak_step BETWEEN v.first_step AND v.last_step
GROUP BY p.net, p.mode, p.batch, p.newest, p.plan_id, v.storage_no, v.clone;

-- Who reads each value, in the order of steps? A row for each reader.
CREATE VIEW v_reader AS
SELECT
  p.net, p.mode, p.batch, p.newest, e.plan_id,
  v.blob, v.value_no, v.first_step AS written_step,
  o.step, o.name AS reader, o.type, o.phase, o.layer, o.line, e.position
FROM v_plan p
CROSS JOIN plan_value v USING (plan_id)
CROSS JOIN plan_read e ON e.plan_id = v.plan_id AND e.subnet_no = 0 AND e.value_no = v.value_no
CROSS JOIN plan_op o ON o.plan_id = v.plan_id AND o.step = e.step;

-- How long does each kernel take that could run an op? Of those plans that were asked so, by neap profile kernels.
CREATE VIEW v_kernel AS
SELECT
  p.net, p.mode, p.batch, p.newest, k.plan_id, k.machine_id,
  k.step, o.name, o.type, o.layer, k.engine, k.algorithm, k.taken, k.min_ns, k.scratch_bytes,
  round(1.0 * o.flops / nullif(k.min_ns, 0), 1) AS gflop_per_s,
  k.engine || coalesce(' ' || k.algorithm, '') AS kernel
FROM v_plan p
CROSS JOIN kernel_time k USING (plan_id)
CROSS JOIN plan_op o ON o.plan_id = k.plan_id AND o.step = k.step;

-- Which kernel runs each op, how, and why that one? Reorders too, with what they are for. Against others in time where that was
-- measured, newest machine first, else by their work as it is estimated.
CREATE VIEW v_choice AS
SELECT
  net, mode, batch, newest, plan_id, step, name, type, layer, kernel, algorithm, scratch_bytes, flops,
  other, other_scratch_bytes, other_work,
  CASE WHEN type = 'Reorder' THEN reason ELSE
    coalesce(algorithm || ': ', '') || choice_reason || iif(measured IS NULL AND scratch_bytes > 0, ', ' || scratch, '')
    || coalesce('; measured ' || measured,
                iif(other IS NULL, NULL, printf('; %s: %.2g times the work, %s', other, other_work, other_scratch)), '') END AS why,
  measured
FROM (
  SELECT
    p.net, p.mode, p.batch, p.newest, o.*,
    CASE WHEN o.scratch_bytes < 1048576 THEN printf('%.1f KiB', o.scratch_bytes / 1024.0)
         ELSE printf('%.1f MiB', o.scratch_bytes / 1048576.0) END || ' scratch' AS scratch,
    CASE WHEN o.other_scratch_bytes < 1048576 THEN printf('%.1f KiB', o.other_scratch_bytes / 1024.0)
         ELSE printf('%.1f MiB', o.other_scratch_bytes / 1048576.0) END || ' scratch' AS other_scratch,
    (SELECT group_concat(text, ', ') FILTER (WHERE taken)
            || coalesce(' against ' || group_concat(text, ', ') FILTER (WHERE NOT taken), '') FROM (
       SELECT taken, engine || coalesce(' ' || algorithm, '')
              || CASE WHEN min_ns IS NULL THEN ', not timed' WHEN min_ns < 1000000 THEN printf(' %.1f us', min_ns / 1e3)
                      ELSE printf(' %.2f ms', min_ns / 1e6) END
              || CASE WHEN scratch_bytes = 0 THEN '' WHEN scratch_bytes < 1048576 THEN printf(' and %.1f KiB scratch', scratch_bytes / 1024.0)
                      ELSE printf(' and %.1f MiB scratch', scratch_bytes / 1048576.0) END AS text
       FROM kernel_time k
       WHERE k.plan_id = o.plan_id AND k.step = o.step
         AND k.machine_id = (SELECT machine_id FROM kernel_time m WHERE m.plan_id = o.plan_id AND m.step = o.step
                             ORDER BY measured_at DESC LIMIT 1)
       ORDER BY taken DESC, min_ns IS NULL, min_ns)) AS measured
  FROM v_plan p
  CROSS JOIN plan_op o USING (plan_id)
);

-- What is the memory at the peak for? Storages, each by its largest value, and scratch. Of packed rows, with the newest plan as v_layer
-- has it.
CREATE VIEW v_category AS
SELECT
  p.net, p.mode, p.batch, p.used_no = n.used_no AS newest, v.plan_id,
  (SELECT text FROM plan_word WHERE word_id = v.category) AS category, sum(v.bytes) AS bytes, count(*) AS n_storage
FROM (SELECT net, mode, max(used_no) AS used_no FROM plan GROUP BY net, mode) n
CROSS JOIN plan p ON p.net = n.net AND p.mode = n.mode
CROSS JOIN packed_value v ON v.plan_id = p.plan_id AND v.subnet_no = 0
WHERE v.region = (SELECT word_id FROM plan_word WHERE text = 'arena') AND p.peak_step BETWEEN v.first_step AND v.last_step
  AND NOT EXISTS (SELECT 1 FROM packed_value w
                  WHERE w.plan_id = v.plan_id AND w.subnet_no = 0 AND w.storage_no = v.storage_no AND w.clone = v.clone
                    AND p.peak_step BETWEEN w.first_step AND w.last_step
                    AND (w.bytes > v.bytes OR (w.bytes = v.bytes AND w.value_no < v.value_no)))
GROUP BY p.net, p.mode, p.batch, newest, v.plan_id, v.category
UNION ALL
SELECT p.net, p.mode, p.batch, p.newest, p.plan_id, 'scratch', o.scratch_bytes, 1
FROM v_plan p
CROSS JOIN plan_op o ON o.plan_id = p.plan_id AND o.step = p.peak_step AND o.scratch_bytes > 0;

-- How long does each value live, and who has the same storage?
CREATE VIEW v_blob_life AS
SELECT
  p.net, p.mode, p.batch, p.newest,
  v.*,
  max(v.last_step, 1) - max(v.first_step, 1) + 1 AS n_step,  -- of the steps that run: 0 is before them
  a.name AS first_op,
  b.name AS last_op,
  (SELECT group_concat(w.blob, ', ') FROM plan_value w
   WHERE w.plan_id = v.plan_id AND w.storage_no = v.storage_no AND w.value_no <> v.value_no) AS same_storage
FROM v_plan p
CROSS JOIN plan_value v USING (plan_id)
LEFT JOIN plan_op a ON a.plan_id = v.plan_id AND a.step = max(v.first_step, 1)
LEFT JOIN plan_op b ON b.plan_id = v.plan_id AND b.step = max(v.last_step, 1);

-- What does each value add to its layer, by the layer's number? Storages are counted once, whatever the number of names on them, and
-- the scratch of the op at the peak with the first value that it writes. Of packed rows: words are compared by their numbers, and a text
-- is looked up once a layer.
CREATE VIEW v_layer_value AS
SELECT
  v.plan_id, v.layer,
  iif(v.value_no = v.storage_no, v.bytes, 0) AS bytes,
  iif(v.value_no = v.storage_no AND v.role = (SELECT word_id FROM plan_word WHERE text = 'parameter'), v.bytes, 0) AS parameter_bytes,
  iif(p.peak_step BETWEEN v.first_step AND v.last_step
        AND v.region = (SELECT word_id FROM plan_word WHERE text = 'arena')
        AND NOT EXISTS (SELECT 1 FROM packed_value w
                        WHERE w.plan_id = v.plan_id AND w.subnet_no = 0 AND w.storage_no = v.storage_no
                          AND w.value_no > v.value_no AND p.peak_step BETWEEN w.first_step AND w.last_step), v.bytes, 0)
    + iif(v.first_step = p.peak_step
            AND NOT EXISTS (SELECT 1 FROM packed_value w
                            WHERE w.plan_id = v.plan_id AND w.subnet_no = 0 AND w.first_step = p.peak_step AND w.value_no < v.value_no),
          (SELECT scratch_bytes FROM packed_op o WHERE o.plan_id = p.plan_id AND o.subnet_no = 0 AND o.step = p.peak_step),
          0) AS peak_bytes
FROM plan p
CROSS JOIN packed_value v ON v.plan_id = p.plan_id AND v.subnet_no = 0;

-- What does each layer need? `newest` holds no query here: one that does is not asked before the groups are made, of all plans of the
-- net.
CREATE VIEW v_layer AS
SELECT
  p.net, p.mode, p.batch, p.used_no = n.used_no AS newest, v.plan_id,
  (SELECT text FROM plan_word WHERE word_id = v.layer) AS layer,
  sum(v.bytes) AS bytes, sum(v.parameter_bytes) AS parameter_bytes, sum(v.peak_bytes) AS peak_bytes
FROM (SELECT net, mode, max(used_no) AS used_no FROM plan GROUP BY net, mode) n
CROSS JOIN plan p ON p.net = n.net AND p.mode = n.mode
CROSS JOIN v_layer_value v USING (plan_id)
GROUP BY p.net, p.mode, p.batch, newest, v.plan_id, v.layer;

-- What does each module need, with all layers below it? Layers are modules, too; `depth` counts the parts of the path. The layers are
-- those of one plan at a time, as a list [[path, bytes, ..], ..]: groups of v_layer's groups would be made of all plans.
CREATE VIEW v_module AS
SELECT
  p.net, p.mode, p.batch, p.used_no = n.used_no AS newest, p.plan_id,
  (SELECT group_concat(value, '/') FROM json_each(l.value, '$[0]') WHERE key <= part.key) AS module,
  part.key + 1 AS depth,
  count(*) AS n_layer,
  sum(l.value ->> 1) AS bytes,
  sum(l.value ->> 2) AS parameter_bytes,
  sum(l.value ->> 3) AS peak_bytes
FROM (SELECT net, mode, max(used_no) AS used_no FROM plan GROUP BY net, mode) n
CROSS JOIN plan p ON p.net = n.net AND p.mode = n.mode
CROSS JOIN json_each((
  SELECT json_group_array(json_array(
    json('[' || replace(json_quote((SELECT text FROM plan_word WHERE word_id = layer)), '/', '","') || ']'),
    bytes, parameter_bytes, peak_bytes))
  FROM (SELECT layer, sum(bytes) AS bytes, sum(parameter_bytes) AS parameter_bytes, sum(peak_bytes) AS peak_bytes
        FROM v_layer_value v WHERE v.plan_id = p.plan_id GROUP BY layer))) l
CROSS JOIN json_each(l.value, '$[0]') part
GROUP BY p.net, p.mode, p.batch, newest, p.plan_id, depth, module;

-- Who shares bytes with whom, and why is that safe? Ask with a = '...': all pairs of a large plan are many.
CREATE VIEW v_reuse AS
SELECT
  p.net, p.mode, p.batch, p.newest, a.plan_id,
  a.blob AS a,
  b.blob AS b,
  min(a.offset_bytes + a.bytes, b.offset_bytes + b.bytes) - max(a.offset_bytes, b.offset_bytes) AS shared_bytes,
  CASE
    WHEN a.storage_no = b.storage_no THEN
      iif(a.value_no < b.value_no, b.reason || ': ' || b.detail, a.reason || ': ' || a.detail)
    WHEN a.last_step < b.first_step THEN
      a.blob || ' is last read at step ' || a.last_step || ', ' || b.blob || ' first written at step ' || b.first_step
    WHEN b.last_step < a.first_step THEN
      b.blob || ' is last read at step ' || b.last_step || ', ' || a.blob || ' first written at step ' || a.first_step
    ELSE 'OVERLAP'
  END || iif(p.executor = 'dag', '; every path keeps this order', '') AS why
FROM v_plan p
CROSS JOIN plan_value a USING (plan_id)
CROSS JOIN plan_value b ON b.plan_id = a.plan_id AND b.value_no <> a.value_no AND b.region = 'arena'
                 AND a.offset_bytes < b.offset_bytes + b.bytes AND b.offset_bytes < a.offset_bytes + a.bytes
WHERE a.region = 'arena';

-- What was run, where, how fast? Runs whose plan was pruned are here too, without what the plan says. What was refused and never
-- began is not the newest.
CREATE VIEW v_run AS
SELECT
  r.*,
  coalesce(nullif(json_extract(p.options, '$.dtype'), 'f32'), p.dtype) AS dtype,  -- of mixed precision, else of the first input
  p.policy, p.net_id, p.arena_bytes, p.lower_bound_bytes,
  m.cpu,
  (SELECT sum(flops) FROM packed_op o WHERE o.plan_id = r.plan_id AND o.subnet_no = 0) AS flops,
  r.uuid = (SELECT max(s.uuid) FROM run s
            WHERE s.net = r.net AND s.mode = r.mode AND NOT (s.status = 'refused' AND s.n_step = 0)) AS newest
FROM run r
LEFT JOIN plan p USING (plan_id)
JOIN machine m USING (machine_id);

-- Times by op of a run's main program: the first with times whose plan is the run's, so that steps are that plan's; both have none
-- once it was pruned.
CREATE VIEW run_op AS
SELECT run_id, step, n_call, min_ns, median_ns, p95_ns, total_ns, gap_ns, start_ns, thread
FROM program_op o
WHERE program_no = (
  SELECT min(g.program_no) FROM run r CROSS JOIN program g USING (run_id)
  WHERE r.run_id = o.run_id AND g.plan_id IS r.plan_id
    AND EXISTS (SELECT 1 FROM program_op q WHERE q.run_id = r.run_id AND q.program_no = g.program_no));

-- What programs does a run have, how fast are they, and what do they hold?
CREATE VIEW v_program AS
SELECT r.net, r.newest, g.run_id, g.program_no, g.plan_id, g.mode, g.batch, g.n_step, g.step_min_ns, g.step_median_ns,
       g.step_p95_ns, g.planned_bytes, g.held_bytes
FROM v_run r
CROSS JOIN program g USING (run_id);

-- What does a machine reach at most, and on how many threads?
CREATE VIEW v_machine AS
SELECT m.machine_id, m.cpu, m.isa, m.n_core, m.ram_bytes, p.what, p.n_thread, p.per_second,
       datetime(p.measured_at, 'unixepoch') AS measured
FROM machine m
LEFT JOIN machine_peak p USING (machine_id);

-- What does it reach at most in each dtype that an op may compute in, on whatever number of threads? Bytes without a sign are
-- multiplied by the kernels that were measured of those with one.
CREATE VIEW v_machine_peak AS
SELECT machine_id, what AS dtype, what, max(per_second) AS flop_per_s
FROM machine_peak
WHERE what <> 'memory'
GROUP BY machine_id, what
UNION ALL
SELECT machine_id, 'u8', what, max(per_second)
FROM machine_peak
WHERE what = 'i8'
GROUP BY machine_id;

-- Where does the time go? What makes constants is no part of a step.
CREATE VIEW v_op_time AS
SELECT
  r.net, r.mode, r.newest,
  t.run_id, t.n_call, t.min_ns, t.median_ns, t.p95_ns, t.total_ns, t.gap_ns, t.start_ns, t.thread,
  o.*,
  round(1.0 * (o.read_bytes + o.write_bytes) / nullif(t.median_ns, 0), 1) AS gbyte_per_s,
  round(1.0 * o.flops / nullif(t.median_ns, 0), 1) AS gflop_per_s,
  iif(o.once, 0.0, round(100.0 * t.median_ns / nullif(
    (SELECT sum(u.median_ns) FROM run_op u CROSS JOIN packed_op k ON k.plan_id = r.plan_id AND k.subnet_no = 0 AND k.step = u.step
     WHERE u.run_id = t.run_id AND NOT k.once), 0), 2)) AS percent
FROM v_run r
CROSS JOIN run_op t USING (run_id)
CROSS JOIN plan_op o ON o.plan_id = r.plan_id AND o.step = t.step;

-- How long do the ops of each layer take, in the newest run of a plan that measured them?
CREATE VIEW v_layer_time AS
SELECT
  p.net, p.mode, p.batch, p.used_no = n.used_no AS newest, p.plan_id, g.run_id, g.program_no,
  (SELECT text FROM plan_word WHERE word_id = o.layer) AS layer, count(*) AS n_op, sum(t.median_ns) AS median_ns
FROM (SELECT net, mode, max(used_no) AS used_no FROM plan GROUP BY net, mode) n
CROSS JOIN plan p ON p.net = n.net AND p.mode = n.mode
CROSS JOIN program g ON (g.run_id, g.program_no) = (
  SELECT q.run_id, q.program_no FROM program q JOIN run r USING (run_id)
  WHERE q.plan_id = p.plan_id
    AND EXISTS (SELECT 1 FROM program_op u WHERE u.run_id = q.run_id AND u.program_no = q.program_no)
  ORDER BY r.uuid DESC, q.program_no LIMIT 1)
CROSS JOIN program_op t ON t.run_id = g.run_id AND t.program_no = g.program_no
CROSS JOIN packed_op o ON o.plan_id = p.plan_id AND o.subnet_no = 0 AND o.step = t.step AND NOT o.once
GROUP BY p.net, p.mode, p.batch, newest, p.plan_id, o.layer;
