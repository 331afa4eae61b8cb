-- One name for the work of an op, as everywhere: flops.

ALTER TABLE plan_op RENAME COLUMN flop TO flops;
