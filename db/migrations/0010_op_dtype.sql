-- What an op computes in, and what the machine reaches in that.

ALTER TABLE packed_op ADD COLUMN dtype INTEGER;      -- a word

-- Of plans that are there: the dtype of an op's first input, else of what it makes.
UPDATE packed_op SET dtype = made.dtype FROM (
  SELECT plan_id, subnet_no, first_step AS step, min(dtype) AS dtype FROM packed_value WHERE clone = 0 GROUP BY 1, 2, 3) made
WHERE made.plan_id = packed_op.plan_id AND made.subnet_no = packed_op.subnet_no AND made.step = packed_op.step;
UPDATE packed_op SET dtype = seen.dtype FROM (
  SELECT plan_id, subnet_no, r.step, v.dtype FROM plan_read r JOIN packed_value v USING (plan_id, subnet_no, value_no)
  WHERE r.position = 1 AND v.clone = 0) seen
WHERE seen.plan_id = packed_op.plan_id AND seen.subnet_no = packed_op.subnet_no AND seen.step = packed_op.step;

-- Peaks in f64 and in integers of 8 bits besides.
PRAGMA legacy_alter_table = ON;
ALTER TABLE machine_peak RENAME TO old_peak;
PRAGMA legacy_alter_table = OFF;
CREATE TABLE machine_peak (
  machine_id  INTEGER NOT NULL REFERENCES machine ON DELETE CASCADE,
  what        TEXT NOT NULL CHECK (what IN ('f32', 'f64', 'bf16', 'i8', 'memory')),
  n_thread    INTEGER NOT NULL,
  per_second  REAL NOT NULL,
  measured_at INTEGER NOT NULL,
  PRIMARY KEY (machine_id, what, n_thread)
) STRICT, WITHOUT ROWID;
INSERT INTO machine_peak SELECT machine_id, what, n_thread, per_second, measured_at FROM old_peak;
DROP TABLE old_peak;
