-- Which ops make constants: they take no part in a step, once these are there.

ALTER TABLE packed_op ADD COLUMN once INTEGER NOT NULL DEFAULT 0;

-- Of plans that are there, those that make what lies among the constants.
UPDATE packed_op SET once = 1 FROM (
  SELECT DISTINCT plan_id, subnet_no, first_step AS step FROM packed_value
  WHERE region = (SELECT word_id FROM plan_word WHERE text = 'constants') AND first_step > 0) made
WHERE made.plan_id = packed_op.plan_id AND made.subnet_no = packed_op.subnet_no AND made.step = packed_op.step;
