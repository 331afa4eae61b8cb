-- History apart from the cache. What was planned and measured stays until someone prunes it; what only saves planning the
-- next time, the cache, may be emptied at any moment. Long texts are kept once and compressed, names once as words.
--
-- sqlar_compress and sqlar_uncompress are those of the sqlite3 shell, which Neap's connections have too; neap_hash and
-- neap_uuid are theirs alone.

-- Views of users, and references in their tables, must not be rewritten to name tables that are about to go (foreign keys are off
-- while migrations run). Rows that refer to none are left out, but for runs, which stay without their plan.
PRAGMA legacy_alter_table = ON;
ALTER TABLE net RENAME TO old_net;
ALTER TABLE plan RENAME TO old_plan;
ALTER TABLE plan_op RENAME TO old_op;
ALTER TABLE plan_value RENAME TO old_value;
ALTER TABLE run RENAME TO old_run;
ALTER TABLE run_op RENAME TO old_run_op;
ALTER TABLE run_metric RENAME TO old_run_metric;
PRAGMA legacy_alter_table = OFF;
DROP INDEX net_name;
DROP INDEX plan_net;
DROP INDEX plan_key;
DROP INDEX value_blob;
DROP INDEX value_storage;
DROP INDEX run_plan;

-- Long texts, each once: CAST(sqlar_uncompress(zip, bytes) AS TEXT).
CREATE TABLE net_text (
  text_id INTEGER PRIMARY KEY,
  hash    TEXT NOT NULL UNIQUE,
  bytes   INTEGER NOT NULL,  -- before it was compressed
  zip     BLOB NOT NULL
) STRICT;

-- Names and other short texts of ops and values, each once. Columns of packed rows have their numbers; no foreign key says so,
-- since each would cost a search for every row that comes or goes.
CREATE TABLE plan_word (
  word_id INTEGER PRIMARY KEY,
  text    TEXT NOT NULL UNIQUE
) STRICT;

-- A net under its name, as it was written.
CREATE TABLE net (
  net_id     INTEGER PRIMARY KEY AUTOINCREMENT,
  name       TEXT NOT NULL,
  file       TEXT,                                -- script that made it
  text_id    INTEGER NOT NULL REFERENCES net_text,    -- with names, scopes and lines; reads back to the net
  created_at INTEGER NOT NULL,
  UNIQUE (name, text_id)
) STRICT;
CREATE INDEX net_by_text ON net (text_id);

-- What was planned: the figures of a plan. Its ops and values are packed_op and packed_value.
CREATE TABLE plan (
  plan_id           INTEGER PRIMARY KEY AUTOINCREMENT,
  uuid              TEXT NOT NULL UNIQUE,  -- UUIDv7: the same in every file that it is copied to
  net_id            INTEGER NOT NULL REFERENCES net,
  net               TEXT NOT NULL,         -- the net's name
  key               TEXT NOT NULL,         -- hash of all that the plan depends on
  digest            TEXT NOT NULL,         -- hash of its choices, order and places
  policy            TEXT NOT NULL CHECK (policy IN ('none', 'name', 'offset', 'pool')),
  mode              TEXT NOT NULL CHECK (mode IN ('train', 'infer')),
  batch             INTEGER NOT NULL,
  dtype             TEXT NOT NULL,
  executor          TEXT NOT NULL,
  n_thread          INTEGER NOT NULL,
  budget_bytes      INTEGER,
  options           TEXT NOT NULL CHECK (json_valid(options)),
  planner_version   TEXT NOT NULL,
  kernel_set        TEXT NOT NULL,
  arena_bytes       INTEGER NOT NULL,
  lower_bound_bytes INTEGER NOT NULL,
  proved            INTEGER NOT NULL,
  baseline_bytes    INTEGER NOT NULL,
  peak_step         INTEGER NOT NULL,
  parameter_bytes   INTEGER NOT NULL,
  gradient_bytes    INTEGER NOT NULL,
  state_bytes       INTEGER NOT NULL,
  io_bytes          INTEGER NOT NULL,
  constant_bytes    INTEGER NOT NULL,
  frame_bytes       INTEGER NOT NULL,
  total_bytes       INTEGER AS (arena_bytes + parameter_bytes + gradient_bytes + state_bytes
                                + io_bytes + constant_bytes + frame_bytes) STORED,
  plan_ns           INTEGER NOT NULL,
  created_at        INTEGER NOT NULL,
  used_at           INTEGER NOT NULL,
  used_no           INTEGER NOT NULL,            -- the newest of all uses has the largest
  n_hit             INTEGER NOT NULL DEFAULT 0,  -- times it came out of the cache
  UNIQUE (net_id, key, digest)
) STRICT;
CREATE INDEX plan_used ON plan (net, mode, used_no);
CREATE INDEX plan_use ON plan (used_no);

-- What a hit reads back instead of planning: no other row refers to one of these.
CREATE TABLE plan_cache (
  key             TEXT PRIMARY KEY,
  digest          TEXT NOT NULL,     -- the plan it makes: plan.digest
  key_bytes       INTEGER NOT NULL,  -- texts are compressed as in `net_text`
  key_text        BLOB NOT NULL,     -- what the key is the hash of: compared too
  choice_bytes    INTEGER NOT NULL,
  choices         BLOB NOT NULL,     -- engine, algorithm and layouts of each op
  plan_bytes      INTEGER NOT NULL,
  plan_text       BLOB NOT NULL,     -- order and places
  plan_ns         INTEGER NOT NULL,  -- time that planning took
  used_at         INTEGER NOT NULL
) STRICT;
CREATE INDEX cache_used ON plan_cache (used_at);

-- What runs at each step; texts are words. The view plan_op shows them. A name is the number of its word; or, where it begins
-- with the layer's, minus the number of what follows.
CREATE TABLE packed_op (
  plan_id       INTEGER NOT NULL REFERENCES plan ON DELETE CASCADE,
  step          INTEGER NOT NULL,
  type          INTEGER NOT NULL,
  name          INTEGER NOT NULL,
  layer         INTEGER NOT NULL,
  line          INTEGER,
  subnet        INTEGER,
  phase         INTEGER NOT NULL,
  recomputes    INTEGER,
  kernel        INTEGER NOT NULL,
  flops         INTEGER NOT NULL,
  read_bytes    INTEGER NOT NULL,
  write_bytes   INTEGER NOT NULL,
  scratch_bytes INTEGER NOT NULL,
  live_bytes    INTEGER NOT NULL,
  reason        INTEGER,
  PRIMARY KEY (plan_id, step)
) STRICT, WITHOUT ROWID;

-- Where each value lies and how long; texts are words, and blobs are named as ops are. The view plan_value shows them.
CREATE TABLE packed_value (
  plan_id      INTEGER NOT NULL REFERENCES plan ON DELETE CASCADE,
  value_no     INTEGER NOT NULL,
  clone        INTEGER NOT NULL DEFAULT 0,
  storage_no   INTEGER NOT NULL,
  blob         INTEGER NOT NULL,
  layer        INTEGER NOT NULL,
  line         INTEGER,
  role         INTEGER NOT NULL,
  region       INTEGER NOT NULL,
  dtype        INTEGER NOT NULL,
  layout       INTEGER NOT NULL,
  shape        INTEGER NOT NULL,
  bytes        INTEGER NOT NULL,
  offset_bytes INTEGER NOT NULL,
  first_step   INTEGER NOT NULL,
  last_step    INTEGER NOT NULL,
  kept         INTEGER NOT NULL,
  reason       INTEGER NOT NULL,
  words        INTEGER NOT NULL,
  partner_no   INTEGER,            -- the value that it shares bytes with
  refusal      INTEGER,
  PRIMARY KEY (plan_id, value_no, clone)
) STRICT, WITHOUT ROWID;
CREATE INDEX value_storage ON packed_value (plan_id, storage_no);

-- What a program measured, whatever has become of its plan since.
CREATE TABLE run (
  run_id         INTEGER PRIMARY KEY AUTOINCREMENT,
  uuid           TEXT NOT NULL UNIQUE,  -- of its start: in the order of time, whichever was written first
  plan_id        INTEGER REFERENCES plan ON DELETE SET NULL,  -- null: pruned
  net            TEXT NOT NULL,
  mode           TEXT NOT NULL,
  batch          INTEGER NOT NULL,
  machine_id     INTEGER NOT NULL REFERENCES machine,
  script         TEXT,
  tag            TEXT,
  starred        INTEGER NOT NULL DEFAULT 0,  -- 1: never pruned
  commit_id      TEXT,
  seed           INTEGER,
  n_thread       INTEGER NOT NULL,
  n_step         INTEGER NOT NULL,
  started_at     INTEGER NOT NULL,
  step_min_ns    INTEGER,
  step_median_ns INTEGER,
  planned_bytes  INTEGER NOT NULL,
  held_bytes     INTEGER,
  resident_bytes INTEGER,
  status         TEXT NOT NULL,
  error          TEXT CHECK (error IS NULL OR json_valid(error))
) STRICT;
CREATE INDEX run_plan ON run (plan_id);
CREATE INDEX run_net ON run (net, mode, uuid);
CREATE INDEX run_started ON run (started_at);

CREATE TABLE run_op (
  run_id         INTEGER NOT NULL REFERENCES run ON DELETE CASCADE,
  step           INTEGER NOT NULL,
  n_call         INTEGER NOT NULL,
  min_ns         INTEGER NOT NULL,
  median_ns      INTEGER NOT NULL,
  start_ns       INTEGER NOT NULL,
  thread         INTEGER NOT NULL,
  resident_bytes INTEGER,
  PRIMARY KEY (run_id, step)
) STRICT, WITHOUT ROWID;

CREATE TABLE run_metric (
  run_id  INTEGER NOT NULL REFERENCES run ON DELETE CASCADE,
  name    TEXT NOT NULL,
  at_step INTEGER NOT NULL,
  value   REAL NOT NULL,
  PRIMARY KEY (run_id, name, at_step)
) STRICT, WITHOUT ROWID;

-- What the old tables hold. Their cached plans are not taken over: this planner makes others.
INSERT INTO net_text (hash, bytes, zip)
SELECT neap_hash(text), length(CAST(text AS BLOB)), sqlar_compress(CAST(text AS BLOB)) FROM old_net GROUP BY text;
INSERT INTO net (net_id, name, file, text_id, created_at)
SELECT n.net_id, n.name, n.file, t.text_id, n.created_at FROM old_net n JOIN net_text t ON t.hash = neap_hash(n.text);

INSERT INTO plan (plan_id, uuid, net_id, net, key, digest, policy, mode, batch, dtype, executor, n_thread, budget_bytes, options,
  planner_version, kernel_set, arena_bytes, lower_bound_bytes, proved, baseline_bytes, peak_step, parameter_bytes, gradient_bytes,
  state_bytes, io_bytes, constant_bytes, frame_bytes, plan_ns, created_at, used_at, used_no, n_hit)
SELECT p.plan_id, neap_uuid(p.created_at), p.net_id, n.name, p.key, neap_hash(p.choices || p.plan_text), p.policy, p.mode, p.batch,
  p.dtype, p.executor, p.n_thread, p.budget_bytes, p.options, p.planner_version, p.kernel_set, p.arena_bytes, p.lower_bound_bytes,
  p.proved, p.baseline_bytes, p.peak_step, p.parameter_bytes, p.gradient_bytes, p.state_bytes, p.io_bytes, p.constant_bytes,
  p.frame_bytes, p.plan_ns, p.created_at, p.used_at, row_number() OVER (ORDER BY p.used_at, p.plan_id), p.n_hit
FROM old_plan p JOIN old_net n USING (net_id) JOIN net USING (net_id);

INSERT INTO plan_word (text)
SELECT type FROM old_op UNION SELECT name FROM old_op UNION SELECT layer FROM old_op UNION SELECT line FROM old_op WHERE line NOT NULL
UNION SELECT subnet FROM old_op WHERE subnet NOT NULL UNION SELECT phase FROM old_op UNION SELECT kernel FROM old_op
UNION SELECT reason FROM old_op WHERE reason NOT NULL
UNION SELECT blob FROM old_value UNION SELECT layer FROM old_value UNION SELECT line FROM old_value WHERE line NOT NULL
UNION SELECT role FROM old_value UNION SELECT region FROM old_value UNION SELECT dtype FROM old_value UNION SELECT layout FROM old_value
UNION SELECT shape FROM old_value UNION SELECT reason FROM old_value UNION SELECT detail FROM old_value;

INSERT INTO packed_op
SELECT o.plan_id, o.step,
  (SELECT word_id FROM plan_word WHERE text = o.type), (SELECT word_id FROM plan_word WHERE text = o.name),
  (SELECT word_id FROM plan_word WHERE text = o.layer), (SELECT word_id FROM plan_word WHERE text = o.line),
  (SELECT word_id FROM plan_word WHERE text = o.subnet), (SELECT word_id FROM plan_word WHERE text = o.phase), o.recomputes,
  (SELECT word_id FROM plan_word WHERE text = o.kernel), o.flops, o.read_bytes, o.write_bytes, o.scratch_bytes, o.live_bytes,
  (SELECT word_id FROM plan_word WHERE text = o.reason)
FROM old_op o WHERE plan_id IN (SELECT plan_id FROM plan);

-- The words of an old row are its whole detail: what they were put together from is not kept apart there.
INSERT INTO packed_value
SELECT v.plan_id, v.value_no, v.clone, v.storage_no,
  (SELECT word_id FROM plan_word WHERE text = v.blob), (SELECT word_id FROM plan_word WHERE text = v.layer),
  (SELECT word_id FROM plan_word WHERE text = v.line), (SELECT word_id FROM plan_word WHERE text = v.role),
  (SELECT word_id FROM plan_word WHERE text = v.region), (SELECT word_id FROM plan_word WHERE text = v.dtype),
  (SELECT word_id FROM plan_word WHERE text = v.layout), (SELECT word_id FROM plan_word WHERE text = v.shape),
  v.bytes, v.offset_bytes, v.first_step, v.last_step, v.kept,
  (SELECT word_id FROM plan_word WHERE text = v.reason), (SELECT word_id FROM plan_word WHERE text = v.detail), NULL, NULL
FROM old_value v WHERE plan_id IN (SELECT plan_id FROM plan);

INSERT INTO run (run_id, uuid, plan_id, net, mode, batch, machine_id, script, tag, commit_id, seed, n_thread, n_step, started_at,
  step_min_ns, step_median_ns, planned_bytes, held_bytes, resident_bytes, status, error)
SELECT r.run_id, neap_uuid(r.started_at), p.plan_id, coalesce(p.net, ''), coalesce(p.mode, ''), coalesce(p.batch, 0), r.machine_id, r.script, r.tag, r.commit_id, r.seed,
  r.n_thread, r.n_step, r.started_at, r.step_min_ns, r.step_median_ns, r.planned_bytes, r.held_bytes, r.resident_bytes, r.status, r.error
FROM old_run r LEFT JOIN plan p USING (plan_id) WHERE r.machine_id IN (SELECT machine_id FROM machine);
INSERT INTO run_op SELECT * FROM old_run_op WHERE run_id IN (SELECT run_id FROM run);
INSERT INTO run_metric SELECT * FROM old_run_metric WHERE run_id IN (SELECT run_id FROM run);

DROP TABLE old_run_metric;
DROP TABLE old_run_op;
DROP TABLE old_run;
DROP TABLE old_value;
DROP TABLE old_op;
DROP TABLE old_plan;
DROP TABLE old_net;
