-- A run has programs, each with a plan and times of its own; what it was to find a plan; and what a machine can do at most.

-- The cache keeps those plans alone that were dear to find, and says so. None of an older file tells what it was.
ALTER TABLE plan ADD COLUMN n_search INTEGER;        -- blocks and nodes looked at; null: of an older file
ALTER TABLE plan_cache ADD COLUMN n_search INTEGER NOT NULL DEFAULT 0;
DELETE FROM plan_cache;

-- What a kernel was taken over, where there was another.
ALTER TABLE packed_op ADD COLUMN other INTEGER;      -- a word
ALTER TABLE packed_op ADD COLUMN other_scratch_bytes INTEGER;
ALTER TABLE packed_op ADD COLUMN other_work REAL;

ALTER TABLE run ADD COLUMN step_p95_ns INTEGER;      -- what 95 % of its steps do not exceed

-- A training has a program for its steps, another for evaluation, others for batches of fewer rows.
CREATE TABLE program (
  run_id         INTEGER NOT NULL REFERENCES run ON DELETE CASCADE,
  program_no     INTEGER NOT NULL,      -- in the order of their first steps, from 1
  uuid           TEXT NOT NULL,
  plan_id        INTEGER REFERENCES plan ON DELETE SET NULL,  -- null: none, or pruned
  net            TEXT NOT NULL,
  mode           TEXT NOT NULL,
  batch          INTEGER NOT NULL,
  n_step         INTEGER NOT NULL,
  step_min_ns    INTEGER,
  step_median_ns INTEGER,
  step_p95_ns    INTEGER,
  planned_bytes  INTEGER NOT NULL,
  held_bytes     INTEGER,
  PRIMARY KEY (run_id, program_no)
) STRICT, WITHOUT ROWID;
CREATE INDEX program_plan ON program (plan_id);

-- How long the steps of a program's plan took, in all its runs.
CREATE TABLE program_op (
  run_id     INTEGER NOT NULL REFERENCES run ON DELETE CASCADE,
  program_no INTEGER NOT NULL,
  step       INTEGER NOT NULL,
  n_call     INTEGER NOT NULL,
  min_ns     INTEGER NOT NULL,
  median_ns  INTEGER NOT NULL,
  p95_ns     INTEGER,           -- null, and what follows: of an older file
  total_ns   INTEGER,
  gap_ns     INTEGER,
  start_ns   INTEGER NOT NULL,
  thread     INTEGER NOT NULL,
  PRIMARY KEY (run_id, program_no, step)
) STRICT, WITHOUT ROWID;

-- The one program that a run of an older file tells of. The view run_op shows its times.
INSERT INTO program
SELECT run_id, 1, neap_uuid(started_at), plan_id, net, mode, batch, n_step, step_min_ns, step_median_ns, NULL, planned_bytes, held_bytes
FROM run;
INSERT INTO program_op
SELECT run_id, 1, step, n_call, min_ns, median_ns, NULL, NULL, NULL, start_ns, thread FROM run_op
WHERE run_id IN (SELECT run_id FROM run);
DROP TABLE run_op;

-- What a machine reached at most, by threads: operations a second in f32 and bf16, bytes a second of memory.
CREATE TABLE machine_peak (
  machine_id  INTEGER NOT NULL REFERENCES machine ON DELETE CASCADE,
  what        TEXT NOT NULL CHECK (what IN ('f32', 'bf16', 'memory')),
  n_thread    INTEGER NOT NULL,
  per_second  REAL NOT NULL,
  measured_at INTEGER NOT NULL,
  PRIMARY KEY (machine_id, what, n_thread)
) STRICT, WITHOUT ROWID;
