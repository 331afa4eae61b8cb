-- A run exists from its first step: which process writes it, when it was written last, how it went on. Rows of older files are
-- of runs that have ended.

ALTER TABLE run ADD COLUMN host TEXT;              -- name of the machine in its network
ALTER TABLE run ADD COLUMN process_id INTEGER;
ALTER TABLE run ADD COLUMN process_key TEXT;       -- tells whether the process lives: boot, space of process ids, start
ALTER TABLE run ADD COLUMN seen_at INTEGER;        -- written last
ALTER TABLE run ADD COLUMN ended_at INTEGER;       -- null: not yet
ALTER TABLE run ADD COLUMN arguments TEXT CHECK (arguments IS NULL OR json_valid(arguments));
ALTER TABLE run ADD COLUMN commit_dirty INTEGER;   -- 1: files of that repository differ
UPDATE run SET status = 'finished' WHERE status = 'ok';
CREATE INDEX run_running ON run (run_id) WHERE status = 'running';

-- How a run goes on: one row for each time that it was written.
CREATE TABLE run_time (
  run_id         INTEGER NOT NULL REFERENCES run ON DELETE CASCADE,
  at_step        INTEGER NOT NULL,  -- the last step before
  at_ms          INTEGER NOT NULL,  -- since the run's start
  n_step         INTEGER NOT NULL,  -- since the row before
  min_ns         INTEGER NOT NULL,
  median_ns      INTEGER NOT NULL,
  p95_ns         INTEGER NOT NULL,
  held_bytes     INTEGER,
  resident_bytes INTEGER,
  PRIMARY KEY (run_id, at_step)
) STRICT, WITHOUT ROWID;
