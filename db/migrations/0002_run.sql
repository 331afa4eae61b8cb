-- Runs: what a program measured. One row when it closes; rows per op only when profiling was asked for.

CREATE TABLE run (
  run_id         INTEGER PRIMARY KEY,
  plan_id        INTEGER NOT NULL REFERENCES plan ON DELETE CASCADE,
  machine_id     INTEGER NOT NULL REFERENCES machine,
  script         TEXT,
  tag            TEXT,              -- the user's label
  commit_id      TEXT,              -- of the script's repository
  seed           INTEGER,
  n_thread       INTEGER NOT NULL,
  n_step         INTEGER NOT NULL,  -- runs of the program
  started_at     INTEGER NOT NULL,
  step_min_ns    INTEGER,           -- null when no step ran
  step_median_ns INTEGER,
  planned_bytes  INTEGER NOT NULL,  -- what the plan promised, all regions
  held_bytes     INTEGER,           -- what was held, by the counted allocator
  resident_bytes INTEGER,           -- peak of the process, by the operating system
  status         TEXT NOT NULL,     -- ok, failed, interrupted
  error          TEXT CHECK (error IS NULL OR json_valid(error))
) STRICT;
CREATE INDEX run_plan ON run (plan_id, started_at);

CREATE TABLE run_op (
  run_id         INTEGER NOT NULL REFERENCES run ON DELETE CASCADE,
  step           INTEGER NOT NULL,  -- of the plan: joins plan_op
  n_call         INTEGER NOT NULL,
  min_ns         INTEGER NOT NULL,
  median_ns      INTEGER NOT NULL,
  start_ns       INTEGER NOT NULL,  -- from the start of the program's step, in the last one
  thread         INTEGER NOT NULL,
  resident_bytes INTEGER,
  PRIMARY KEY (run_id, step)
) STRICT, WITHOUT ROWID;

CREATE TABLE run_metric (
  run_id  INTEGER NOT NULL REFERENCES run ON DELETE CASCADE,
  name    TEXT NOT NULL,     -- loss, accuracy, ...
  at_step INTEGER NOT NULL,
  value   REAL NOT NULL,
  PRIMARY KEY (run_id, name, at_step)
) STRICT, WITHOUT ROWID;
