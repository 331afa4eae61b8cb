-- roofline: what each op reaches in its median call, against the machine: what bounds it, and the share of that; slowest first.
-- :run a run's number, or what to find it by (db/asked/run.sql)
-- Operations are held against those of a product in the op's dtype; in one that was not measured (f16, say), in f32.
-- What a branch or a loop with a condition computes is not known: nothing is said of it.
-- An op that is faster than what was measured of the machine shows that this is too low: the roof is then the fastest op.
WITH measured AS (
  SELECT t.*, p.batch, m.peak_byte_per_s, coalesce(k.what, 'f32') AS roof_dtype, coalesce(k.flop_per_s, m.peak_flop_per_s) AS kept,
         round(iif(t.kernel = 'control' AND t.flops = 0, NULL, 1.0 * t.flops / nullif(t.read_bytes + t.write_bytes, 0)), 2) AS flop_per_byte
  FROM v_op_time t
  JOIN run r USING (run_id)
  JOIN machine m USING (machine_id)
  JOIN plan p ON p.plan_id = t.plan_id
  LEFT JOIN v_machine_peak k ON k.machine_id = r.machine_id AND k.dtype = t.dtype
  WHERE t.run_id = :run
), roofed AS (
  SELECT *, peak_flop_per_s / peak_byte_per_s AS ridge
  FROM (
    SELECT *, max(kept, 1e9 * coalesce(max(gflop_per_s) OVER (PARTITION BY roof_dtype), 0)) AS peak_flop_per_s
    FROM measured
  )
)
SELECT net, mode, batch, step, name, type, kernel, dtype, median_ns, gflop_per_s, gbyte_per_s, flop_per_byte,
       CASE WHEN flop_per_byte IS NULL THEN NULL WHEN flop_per_byte < ridge THEN 'memory' WHEN ridge THEN 'arithmetic' END AS bound_by,
       round(CASE WHEN flop_per_byte IS NULL THEN NULL WHEN flop_per_byte < ridge THEN 100e9 * gbyte_per_s / peak_byte_per_s
                  ELSE 100e9 * gflop_per_s / peak_flop_per_s END, 1) AS percent_of_peak,
       round(peak_flop_per_s / 1e9, 1) AS machine_gflop_per_s, round(peak_byte_per_s / 1e9, 1) AS machine_gbyte_per_s,
       CASE WHEN peak_flop_per_s IS NULL THEN 'not measured: neap profile run NET, or neap.machine()'
            WHEN peak_flop_per_s > kept THEN 'fastest op in ' || roof_dtype ELSE 'measured in ' || roof_dtype END AS roof
FROM roofed
ORDER BY once, median_ns DESC, step;
