-- What a plan is made of: modules, categories, kernels and their reasons, subnets, and who reads what. Rows of older files have
-- none of it, until their plans are made again.

PRAGMA legacy_alter_table = ON;
ALTER TABLE packed_op RENAME TO old_op;
ALTER TABLE packed_value RENAME TO old_value;
PRAGMA legacy_alter_table = OFF;
DROP INDEX value_storage;

-- What runs at each step; texts are words. subnet_no 0: the net's own. The views plan_op and subnet_op show them.
CREATE TABLE packed_op (
  plan_id       INTEGER NOT NULL REFERENCES plan ON DELETE CASCADE,
  subnet_no     INTEGER NOT NULL,
  step          INTEGER NOT NULL,
  type          INTEGER NOT NULL,
  name          INTEGER NOT NULL,
  layer         INTEGER NOT NULL,
  module        INTEGER,
  line          INTEGER,
  phase         INTEGER NOT NULL,
  recomputes    INTEGER,
  kernel        INTEGER NOT NULL,
  algorithm     INTEGER,
  choice_reason INTEGER,
  flops         INTEGER NOT NULL,
  read_bytes    INTEGER NOT NULL,
  write_bytes   INTEGER NOT NULL,
  scratch_bytes INTEGER NOT NULL,
  live_bytes    INTEGER NOT NULL,
  reason        INTEGER,
  PRIMARY KEY (plan_id, subnet_no, step)
) STRICT, WITHOUT ROWID;

-- Where each value lies and how long; texts are words. The views plan_value and subnet_value show them.
CREATE TABLE packed_value (
  plan_id      INTEGER NOT NULL REFERENCES plan ON DELETE CASCADE,
  subnet_no    INTEGER NOT NULL,
  value_no     INTEGER NOT NULL,
  clone        INTEGER NOT NULL DEFAULT 0,
  storage_no   INTEGER NOT NULL,
  blob         INTEGER NOT NULL,
  layer        INTEGER NOT NULL,
  module       INTEGER,
  line         INTEGER,
  role         INTEGER NOT NULL,
  category     INTEGER,            -- null: of an older file
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
  partner_no   INTEGER,
  refusal      INTEGER,
  PRIMARY KEY (plan_id, subnet_no, value_no, clone)
) STRICT, WITHOUT ROWID;
CREATE INDEX value_storage ON packed_value (plan_id, subnet_no, storage_no);

-- Nets inside control ops, numbered from 1 as they are met: an op's before those within them.
CREATE TABLE plan_subnet (
  plan_id           INTEGER NOT NULL REFERENCES plan ON DELETE CASCADE,
  subnet_no         INTEGER NOT NULL,
  outer_no          INTEGER NOT NULL,  -- the net that the op stands in; 0: the plan's own
  step              INTEGER NOT NULL,  -- of the op, there
  position          INTEGER NOT NULL,  -- among its subnets, from 1
  name              TEXT NOT NULL,
  arena_bytes       INTEGER NOT NULL,
  lower_bound_bytes INTEGER NOT NULL,
  PRIMARY KEY (plan_id, subnet_no)
) STRICT, WITHOUT ROWID;

-- Who reads a value. Who writes it is its first step.
CREATE TABLE plan_read (
  plan_id   INTEGER NOT NULL REFERENCES plan ON DELETE CASCADE,
  subnet_no INTEGER NOT NULL,
  value_no  INTEGER NOT NULL,
  step      INTEGER NOT NULL,
  position  INTEGER NOT NULL,  -- among the inputs that are there, from 1
  PRIMARY KEY (plan_id, subnet_no, value_no, step, position)
) STRICT, WITHOUT ROWID;

INSERT INTO packed_op
SELECT plan_id, 0, step, type, name, layer, NULL, line, phase, recomputes, kernel, NULL, NULL, flops, read_bytes, write_bytes,
  scratch_bytes, live_bytes, reason
FROM old_op;
INSERT INTO packed_value
SELECT plan_id, 0, value_no, clone, storage_no, blob, layer, NULL, line, role, NULL, region, dtype, layout, shape, bytes,
  offset_bytes, first_step, last_step, kept, reason, words, partner_no, refusal
FROM old_value;
DROP TABLE old_op;
DROP TABLE old_value;
