-- Tuning: measured times of kernels, one row per (machine, case, kernel).

CREATE TABLE tuning (
  machine_id    INTEGER NOT NULL REFERENCES machine,
  op_key        TEXT NOT NULL,     -- op, attributes and types: the case that was measured
  kernel        TEXT NOT NULL,
  min_ns        INTEGER NOT NULL,
  scratch_bytes INTEGER NOT NULL,
  measured_at   INTEGER NOT NULL,
  PRIMARY KEY (machine_id, op_key, kernel)
) STRICT, WITHOUT ROWID;
