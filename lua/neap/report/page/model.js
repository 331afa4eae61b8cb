/* model.js: the data as the pictures ask for it: storages with their lives, layers with their sums,
 * the axis of steps or of time. Steps count from 1, as the data's do.
 *
 * A storage's life is that of all its values, of which the newest says what it is for; so the bytes
 * by category of a step, rounded up to 64 as the planner does, add up to the plan's live_bytes. */
function loadSide(packed, words) {
  const side = Object.assign({}, packed);
  const { ops, values } = packed;
  side.word = (number) => number >= 0 ? words[number] : '';
  side.op = (name, s) => side.word(ops[name][s]);
  side.value = (name, v) => side.word(values[name][v]);
  side.storages = storagesOf(side);
  side.ns = packed.times ? packed.times.median.map((ns) => ns || 0) : null;
  side.edges = { steps: Float64Array.from({ length: side.n_op + 1 }, (_, s) => s) };
  if (side.ns) {
    const edge = new Float64Array(side.n_op + 1);
    for (let s = 0; s < side.n_op; s++) edge[s + 1] = edge[s] + side.ns[s];
    side.edges.time = edge;
  }
  return side;
}

function storagesOf(side) {
  const { values } = side, by = new Map();
  for (let v = 0; v < side.n_value; v++) {
    if (side.value('region', v) !== 'arena' || !(values.bytes[v] > 0) || values.first_step[v] < 1)
      continue;
    const no = values.storage_no[v];
    let storage = by.get(no);
    if (!storage) {
      storage = { offset: values.offset_bytes[v], bytes: 0, from: Infinity, to: 0, members: [] };
      by.set(no, storage);
    }
    storage.members.push(v);
    storage.bytes = Math.max(storage.bytes, values.bytes[v]);
    storage.from = Math.min(storage.from, values.first_step[v]);
    storage.to = Math.max(storage.to, values.last_step[v], values.first_step[v]);
  }
  const list = [...by.values()];
  const first = values.first_step;
  for (const s of list) s.members.sort((a, b) => first[a] - first[b] || a - b);
  return list.sort((a, b) => a.from - b.from || a.offset - b.offset);
}

function aligned(bytes) { return Math.ceil(bytes / 64) * 64; }

/* Bytes by category while each step runs: {names, rows: a Float64Array for each name}. What the
 * categories do not explain of live_bytes is "rest", which has a row only where there is any. */
function liveByCategory(side) {
  const rows = {}, n = side.n_op, { values, ops } = side;
  const row = (name) => rows[name] || (rows[name] = new Float64Array(n + 1));
  for (const storage of side.storages) {
    storage.members.forEach((v, i) => {
      const next = storage.members[i + 1];
      const from = values.first_step[v];
      const to = next === undefined ? storage.to : values.first_step[next] - 1;
      if (to < from) return;
      const change = row(side.value('category', v));
      change[from - 1] += aligned(values.bytes[v]);
      change[to] -= aligned(values.bytes[v]);
    });
  }
  for (const name in rows)
    for (let s = 1; s <= n; s++) rows[name][s] += rows[name][s - 1];
  for (let s = 0; s < n; s++)
    if (ops.scratch_bytes[s] > 0) row('scratch')[s] = aligned(ops.scratch_bytes[s]);
  let worst = 0;
  const names = Object.keys(rows);
  for (let s = 0; s < n; s++) {
    let rest = ops.live_bytes[s];
    for (const name of names) rest -= rows[name][s];
    worst = Math.max(worst, Math.abs(rest));
    if (rest > 0) row('rest')[s] = rest;
  }
  const order = Object.keys(categoryColour);
  const known = Object.keys(rows).sort((a, b) => order.indexOf(a) - order.indexOf(b));
  return { names: known, rows, worst };
}

/* Layers: name, module, ops, flops, time, parameters, bytes at the peak, in the order of ops. */
function layersOf(side) {
  const by = new Map(), { ops, values } = side;
  const at = (layer, module) => {
    const name = layer || '(no layer)';
    let row = by.get(name);
    if (!row) {
      row = { name, module: module || '', n: 0, flops: 0, ns: 0, parameters: 0, peak: 0,
        resident: 0 };
      by.set(name, row);
    }
    return row;
  };
  for (let s = 0; s < side.n_op; s++) {
    const row = at(side.op('layer', s), side.op('module', s));
    row.n++;
    row.flops += ops.flops[s] || 0;
    if (side.ns) row.ns += side.ns[s];
    if (s === side.peak_step - 1) row.peak += aligned(ops.scratch_bytes[s]);
  }
  for (const storage of side.storages) {
    if (storage.from > side.peak_step || storage.to < side.peak_step) continue;
    let newest = storage.members[0];
    for (const v of storage.members) if (values.first_step[v] <= side.peak_step) newest = v;
    at(side.value('layer', newest), side.value('module', newest)).peak +=
      aligned(values.bytes[newest]);
  }
  for (let v = 0; v < side.n_value; v++) {
    const region = side.value('region', v);
    if (region === 'arena' || region === 'argument' || values.storage_no[v] !== v + 1) continue;
    const row = at(side.value('layer', v), side.value('module', v));
    row.resident += values.bytes[v];
    if (region === 'parameters') row.parameters += values.bytes[v];
  }
  return [...by.values()];
}
