-- Plans: which net, on what terms, and where every value lies. Plans are rows, so that SQL needs no program to read them.
-- Everywhere: *_bytes are bytes, *_ns nanoseconds, *_at seconds since 1970 (UTC). Steps and numbers of values count from 1.

-- Facts about the file itself.
CREATE TABLE meta (
  name  TEXT PRIMARY KEY,  -- planner_version, neap_version: of the newest program that opened the file; views_hash
  value TEXT NOT NULL
) STRICT;

-- Where runs were measured.
CREATE TABLE machine (
  machine_id      INTEGER PRIMARY KEY,
  cpu             TEXT NOT NULL,     -- model name, as the system tells it
  isa             TEXT NOT NULL,     -- widest vectors: avx512, avx2, sse4, neon, plain
  n_core          INTEGER NOT NULL,  -- that this process may use
  ram_bytes       INTEGER NOT NULL,
  peak_flop_per_s REAL,              -- measured; null until then
  peak_byte_per_s REAL,              -- measured; null until then
  UNIQUE (cpu, isa, n_core, ram_bytes)
) STRICT;

-- A net under its name, as it was written.
CREATE TABLE net (
  net_id     INTEGER PRIMARY KEY,
  hash       TEXT NOT NULL,     -- of the canonical text, without names: equal for nets that compute the same
  name       TEXT NOT NULL,
  file       TEXT,              -- script that made it
  text       TEXT NOT NULL,     -- with names, scopes and lines; reads back to the net
  created_at INTEGER NOT NULL,
  UNIQUE (name, text)
) STRICT;
CREATE INDEX net_name ON net (name);

-- A plan of a net. The key says for what it was made; key_text is what the key hashes, and is compared too.
CREATE TABLE plan (
  plan_id           INTEGER PRIMARY KEY,
  net_id            INTEGER NOT NULL REFERENCES net ON DELETE CASCADE,
  key               TEXT NOT NULL,
  key_text          TEXT NOT NULL,
  policy            TEXT NOT NULL CHECK (policy IN ('none', 'name', 'offset', 'pool')),
  mode              TEXT NOT NULL CHECK (mode IN ('train', 'infer')),
  batch             INTEGER NOT NULL,
  dtype             TEXT NOT NULL,     -- of the activations
  executor          TEXT NOT NULL,     -- simple or dag
  n_thread          INTEGER NOT NULL,
  budget_bytes      INTEGER,           -- the arena may not exceed it; null: no budget
  options           TEXT NOT NULL CHECK (json_valid(options)),
  planner_version   TEXT NOT NULL,
  kernel_set        TEXT NOT NULL,     -- engines and their versions
  choices           TEXT NOT NULL,     -- engine, algorithm and layouts of each op: what a cache hit reads back
  plan_text         TEXT NOT NULL,     -- order and places: what a cache hit reads back, and verifies
  arena_bytes       INTEGER NOT NULL,  -- activations, their gradients and scratch
  lower_bound_bytes INTEGER NOT NULL,  -- no plan with this order and these choices needs less
  proved            INTEGER NOT NULL,  -- 1: arena_bytes is the least possible
  baseline_bytes    INTEGER NOT NULL,  -- every transient value with bytes of its own
  peak_step         INTEGER NOT NULL,  -- step at which most is live
  parameter_bytes   INTEGER NOT NULL,
  gradient_bytes    INTEGER NOT NULL,  -- of parameters
  state_bytes       INTEGER NOT NULL,  -- optimizer and running statistics
  io_bytes          INTEGER NOT NULL,  -- inputs, outputs and kept blobs
  constant_bytes    INTEGER NOT NULL,  -- packed weights, at inference
  frame_bytes       INTEGER NOT NULL,  -- frames of loops outside the arena
  total_bytes       INTEGER AS (arena_bytes + parameter_bytes + gradient_bytes + state_bytes
                                + io_bytes + constant_bytes + frame_bytes) STORED,
  plan_ns           INTEGER NOT NULL,  -- time that planning took
  verified_at       INTEGER NOT NULL,  -- last passed the independent verifier
  created_at        INTEGER NOT NULL,
  used_at           INTEGER NOT NULL,
  n_hit             INTEGER NOT NULL DEFAULT 0,  -- times it was taken from here instead of planned again
  UNIQUE (net_id, key)
) STRICT;
CREATE INDEX plan_net ON plan (net_id, mode, batch);
CREATE INDEX plan_key ON plan (key);

-- What runs at each step.
CREATE TABLE plan_op (
  plan_id       INTEGER NOT NULL REFERENCES plan ON DELETE CASCADE,
  step          INTEGER NOT NULL,
  type          TEXT NOT NULL,
  name          TEXT NOT NULL,
  layer         TEXT NOT NULL,     -- a backward op belongs to the layer of its forward op
  line          TEXT,              -- script and line that made it
  subnet        TEXT,              -- net inside a control op; null at the top
  phase         TEXT NOT NULL CHECK (phase IN ('forward', 'backward', 'update')),
  recomputes    INTEGER,           -- step that it repeats; null: runs once
  kernel        TEXT NOT NULL,     -- engine, then the layout it writes where that is not plain
  flop          INTEGER NOT NULL,  -- floating-point operations
  read_bytes    INTEGER NOT NULL,
  write_bytes   INTEGER NOT NULL,
  scratch_bytes INTEGER NOT NULL,  -- work space of the kernel, or the frame of a control op
  live_bytes    INTEGER NOT NULL,  -- of the arena while it runs, scratch and alignment included
  reason        TEXT,              -- why it is recomputed
  PRIMARY KEY (plan_id, step)
) STRICT, WITHOUT ROWID;

-- Where each value lies and how long.
CREATE TABLE plan_value (
  plan_id      INTEGER NOT NULL REFERENCES plan ON DELETE CASCADE,
  value_no     INTEGER NOT NULL,
  clone        INTEGER NOT NULL DEFAULT 0,  -- above 0: recomputed again; join storages on (storage_no, clone)
  storage_no   INTEGER NOT NULL,  -- value_no of the root of its in-place, alias or version chain
  blob         TEXT NOT NULL,     -- name, or label: x.grad, conv1.stash, x.reorder
  layer        TEXT NOT NULL,     -- of the op that makes it, else of the first that reads it
  line         TEXT,
  role         TEXT NOT NULL,     -- activation, input, parameter, gradient, state, output
  region       TEXT NOT NULL,     -- arena, parameters, gradients, state, io, constants, frames
  dtype        TEXT NOT NULL,
  layout       TEXT NOT NULL,
  shape        TEXT NOT NULL,
  bytes        INTEGER NOT NULL,  -- padding of its layout included
  offset_bytes INTEGER NOT NULL,  -- from the start of the arena; 0 in other regions
  first_step   INTEGER NOT NULL,  -- written
  last_step    INTEGER NOT NULL,  -- last read
  kept         INTEGER NOT NULL,  -- 1: the user asked to keep it
  reason       TEXT NOT NULL,     -- how it got its bytes: a code
  detail       TEXT NOT NULL,     -- the same in words, with the value it shares with
  PRIMARY KEY (plan_id, value_no, clone)
) STRICT, WITHOUT ROWID;
CREATE INDEX value_blob ON plan_value (plan_id, blob);
CREATE INDEX value_storage ON plan_value (plan_id, storage_no);
