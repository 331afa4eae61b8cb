-- Why a kernel was taken, in time: each kernel that could run an op of a plan, measured when somebody asks for it.

-- Nothing ever wrote to this one.
DROP TABLE tuning;

CREATE TABLE kernel_time (
  plan_id       INTEGER NOT NULL REFERENCES plan ON DELETE CASCADE,
  machine_id    INTEGER NOT NULL REFERENCES machine ON DELETE CASCADE,
  step          INTEGER NOT NULL,
  kernel_no     INTEGER NOT NULL,      -- in the order in which the op's kernels are tried, from 1
  engine        TEXT NOT NULL,
  algorithm     TEXT,                  -- null: the engine has but one
  taken         INTEGER NOT NULL,      -- 1: the plan's
  min_ns        INTEGER,               -- null: not timed
  scratch_bytes INTEGER NOT NULL,
  measured_at   INTEGER NOT NULL,
  PRIMARY KEY (plan_id, step, machine_id, kernel_no)
) STRICT, WITHOUT ROWID;

-- Where there was no other kernel there is no work of it.
UPDATE packed_op SET other_work = NULL WHERE other IS NULL;
