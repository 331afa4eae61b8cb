/* charts.js: what is drawn as SVG: regions as bars, the roofline, figures of a run over steps. */

function withTip(node, text) {
  node.addEventListener('pointermove', (e) => showTip(e, text));
  node.addEventListener('pointerleave', hideTip);
  return node;
}
function chart(width, height, label) {
  return draw('svg', { viewBox: `0 0 ${width} ${height}`, width: '100%', role: 'img',
    'aria-label': label });
}

const regionFields = [['arena', 'arena_bytes', 'activation'],
  ['parameters', 'parameter_bytes', 'parameter'], ['gradients', 'gradient_bytes', 'gradient'],
  ['state', 'state_bytes', 'state'], ['inputs, outputs', 'io_bytes', 'input'],
  ['constants', 'constant_bytes', 'constant'], ['frames', 'frame_bytes', 'frame']];

/* Bytes of each region, on one scale for all sides. */
function drawRegions(sides) {
  const holder = make('div', { class: 'sides' });
  const most = Math.max(1, ...sides.flatMap((side) =>
    regionFields.map(([, field]) => side.figures[field] || 0)));
  for (const side of sides) {
    const part = make('div');
    onPaint(() => {
      const rows = regionFields.filter(([, field]) => side.figures[field] > 0);
      const svg = chart(620, rows.length * 24 + 4, 'bytes by region');
      rows.forEach(([name, field, category], i) => {
        const bytes = side.figures[field], y = i * 24 + 2;
        svg.append(draw('text', { x: 100, y: y + 14, 'text-anchor': 'end' }, name));
        svg.append(draw('rect', { x: 108, y, width: Math.max(1, bytes / most * 410), height: 19,
          rx: 2, fill: colourOf(category, 'category', 0) }));
        svg.append(draw('text', { x: 114 + bytes / most * 410, y: y + 14, class: 'strong' },
          bytesText(bytes)));
      });
      svg.style.maxWidth = '760px';
      part.replaceChildren(...(sides.length > 1 ? [make('h3', {}, side.label)] : []), svg);
    });
    holder.append(part);
  }
  return holder;
}

/* The roofs of the dtypes that ops compute in, the highest first: what the machine was measured to
 * do of a product in it, or in f32 where it was not measured; where an op was faster, as in neap
 * sql roofline, or nobody has measured any, the best that was seen here. Each point gets its
 * own. */
function roofsOf(side, points) {
  const roofs = new Map(), kept = side.roof ? side.roof.flop_per_s : {};
  const whatOf = (own) => (side.roof ? side.roof.what[own] || 'f32' : own);
  for (const p of points) {
    const dtype = whatOf(side.op('dtype', p.s));
    if (!roofs.has(dtype)) roofs.set(dtype, { dtype, kept: (kept[dtype] || 0) / 1e9, best: 0 });
    p.roof = roofs.get(dtype);
    p.roof.best = Math.max(p.roof.best, p.y);
  }
  for (const roof of roofs.values()) {
    roof.peak = Math.max(roof.kept, roof.best);
    roof.of = `${roof.dtype}: ` + (!side.roof ? 'best seen here'
      : roof.best > roof.kept ? 'fastest op, and bytes as measured on this machine'
        : 'measured on this machine');
  }
  return [...roofs.values()].sort((a, b) => b.peak - a.peak);
}

/* Ops by their work per byte and per second, both on scales of powers of ten, under the roofs. */
function drawRoofline(side) {
  const points = [];
  for (let s = 0; s < side.n_op; s++) {
    const ns = side.ns[s], bytes = (side.ops.read_bytes[s] || 0) + (side.ops.write_bytes[s] || 0);
    const flops = side.ops.flops[s] || 0;
    if (ns > 0 && bytes > 0 && flops > 0)
      points.push({ s, ns, x: flops / bytes, y: flops / ns, rate: bytes / ns });
  }
  if (points.length === 0) return empty('No op that was timed has both work and bytes.');
  const total = side.ns.reduce((a, b) => a + b, 0);
  const roofs = roofsOf(side, points), peaks = roofs.map((roof) => roof.peak);
  const rate = side.roof ? side.roof.byte_per_s / 1e9 : Math.max(...points.map((p) => p.rate));
  const holder = make('div');
  onPaint(() => {
    const width = 760, height = 360, left = 62, right = 16, top = 16, bottom = 40;
    const svg = chart(width, height, 'roofline');
    const span = (values) => [Math.floor(Math.log10(Math.min(...values))),
      Math.ceil(Math.log10(Math.max(...values)) + 1e-9)];
    const [x0, x1] = span(points.map((p) => p.x).concat(peaks.map((peak) => peak / rate)));
    const [y0, y1] = span(points.map((p) => p.y).concat(peaks, peaks[0] * 1.2));
    const px = (v) => left + (Math.log10(v) - x0) / Math.max(1, x1 - x0) * (width - left - right);
    const py = (v) => height - bottom - (Math.log10(v) - y0) / Math.max(1, y1 - y0)
      * (height - top - bottom);
    for (let k = x0; k <= x1; k++) {
      svg.append(draw('line', { x1: px(10 ** k), x2: px(10 ** k), y1: top, y2: height - bottom,
        stroke: css('--grid') }));
      svg.append(draw('text', { x: px(10 ** k), y: height - bottom + 15, 'text-anchor': 'middle' },
        String(Number((10 ** k).toPrecision(1)))));
    }
    for (let k = y0; k <= y1; k++) {
      svg.append(draw('line', { x1: left, x2: width - right, y1: py(10 ** k), y2: py(10 ** k),
        stroke: css('--grid') }));
      svg.append(draw('text', { x: left - 6, y: py(10 ** k) + 4, 'text-anchor': 'end' },
        String(Number((10 ** k).toPrecision(1)))));
    }
    svg.append(draw('text', { x: (left + width - right) / 2, y: height - 6,
      'text-anchor': 'middle' }, 'flops a byte'));
    svg.append(draw('text', { x: 14, y: (top + height - bottom) / 2, 'text-anchor': 'middle',
      transform: `rotate(-90 14 ${(top + height - bottom) / 2})` }, 'GFLOP/s'));
    const start = Math.max(10 ** x0, 10 ** y0 / rate);
    let below = 0;
    roofs.forEach(({ peak, of }, i) => {

      /* The slope of memory is one for all: only the highest roof has it whole. */
      const knee = peak / rate, from = i === 0 ? [start, start * rate] : [knee, peak];
      svg.append(draw('polyline', { fill: 'none', stroke: css('--warn'), 'stroke-dasharray': '5 3',
        points: `${px(from[0])},${py(from[1])} ${px(knee)},${py(peak)} ${px(10 ** x1)},`
          + `${py(peak)}` }));

      /* The highest has its words above it, the others below, one behind the other: roofs may be
       * near to each other, or the same. */
      below = i === 0 ? py(peak) : Math.max(py(peak), below) + 14;
      svg.append(draw('text', { x: width - right - 4, y: i === 0 ? py(peak) - 6 : below,
        'text-anchor': 'end', class: 'roof' },
        `${of}: ${peak.toFixed(1)} GFLOP/s, ${rate.toFixed(1)} GB/s`));
    });
    for (const p of points.slice().sort((a, b) => b.ns - a.ns)) {
      const dot = draw('circle', { cx: px(p.x), cy: py(p.y), r: 3 + 16 * Math.sqrt(p.ns / total),
        fill: phaseColour(side.op('phase', p.s)), 'fill-opacity': 0.75, stroke: css('--edge'),
        'stroke-width': 0.7 });
      svg.append(withTip(dot, `${side.op('name', p.s)}, ${side.op('type', p.s)} `
        + `(${side.op('kernel', p.s)})\n${timeText(p.ns)}, ${(100 * p.ns / total).toFixed(1)} %\n`
        + `${p.y.toFixed(1)} GFLOP/s in ${side.op('dtype', p.s)}, `
        + `${p.rate.toFixed(1)} GB/s, ${p.x.toFixed(2)} flops a byte`));
    }
    svg.style.maxWidth = '900px';
    holder.replaceChildren(svg);
  });
  const [key] = keyOf(() => ['forward', 'backward', 'update'].map((p) => [p, phaseColour(p)]));
  holder.after(key);
  return make('div', {}, holder, key);
}

const dashes = ['', '6 3'];
const sideColour = (i) => css(i === 0 ? '--accent' : '--warn');

/* One figure over the steps of a run, or of two in one picture. lines: [series of a side or null]
 * */
function drawSeries(lines) {
  const holder = make('div'), some = lines.filter((s) => s), one = some[0];
  const text = one.unit === 'bytes' ? bytesText : one.unit === 'ns' ? timeText
    : (v) => Math.abs(v) >= 1e5 || (v !== 0 && Math.abs(v) < 1e-3) ? v.toExponential(2)
      : String(Number(v.toPrecision(4)));
  const over = (of) => some.flatMap(of).reduce(([low, high], v) => [Math.min(low, v),
    Math.max(high, v)], [Infinity, -Infinity]);
  onPaint(() => {
    const width = 620, height = 190, left = 70, right = 14, top = 24, bottom = 26;
    const svg = chart(width, height, one.name);
    let [x0, x1] = over((s) => s.at), [low, high] = over((s) => s.value);
    if (one.unit) low = 0;
    if (high - low < 1e-12) high = low + (Math.abs(low) || 1);
    x1 = Math.max(x1, x0 + 1);
    const px = (v) => left + (v - x0) / (x1 - x0) * (width - left - right);
    const py = (v) => height - bottom - (v - low) / (high - low) * (height - top - bottom);
    svg.append(draw('text', { x: left, y: 14, class: 'strong' }, `${one.name}: ` + some.map((s) =>
      `${text(s.value[0])} → ${text(s.value[s.value.length - 1])}`).join('; ')));
    for (let k = 0; k <= 4; k++) {
      const v = low + (high - low) * k / 4;
      svg.append(draw('line', { x1: left, x2: width - right, y1: py(v), y2: py(v),
        stroke: css('--grid') }));
      svg.append(draw('text', { x: left - 6, y: py(v) + 4, 'text-anchor': 'end' }, text(v)));
    }
    for (const k of [0, 0.5, 1])
      svg.append(draw('text', { x: px(x0 + (x1 - x0) * k), y: height - 8,
        'text-anchor': k === 0 ? 'start' : k === 1 ? 'end' : 'middle' },
      (k === 0 ? 'step ' : '') + Math.round(x0 + (x1 - x0) * k)));
    lines.forEach((s, side) => {
      if (!s) return;
      const n = s.at.length, skip = Math.max(1, Math.floor(n / 1500)), points = [];
      for (let i = 0; i < n; i += skip) points.push(`${px(s.at[i]).toFixed(1)},`
        + `${py(s.value[i]).toFixed(1)}`);
      svg.append(draw('polyline', { points: points.join(' '), fill: 'none',
        stroke: sideColour(side), 'stroke-width': 1.6, 'stroke-dasharray': dashes[side] }));
      if (n === 1) svg.append(draw('circle', { cx: px(s.at[0]), cy: py(s.value[0]), r: 3,
        fill: sideColour(side) }));
    });
    holder.replaceChildren(svg);
  });
  return holder;
}

/* All figures of the runs, those of one name together, with a key where there are two sides. */
function drawRuns(sides) {
  const names = [...new Set(sides.flatMap((side) => side.series.map((s) => s.name)))];
  if (names.length === 0) return null;
  const charts = make('div', { class: 'sides' }, ...names.map((name) =>
    drawSeries(sides.map((side) => side.series.find((s) => s.name === name) || null))));
  if (sides.length < 2) return charts;
  const [key] = keyOf(() => sides.map((side, i) =>
    [(i === 0 ? 'before, plain: ' : 'after, dashed: ')
    + side.label, sideColour(i)]));
  return make('div', {}, key, charts);
}
