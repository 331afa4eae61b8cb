/* page.js: the whole page, in the order in which one reads it; the search, the theme, and the
 * figures that are measured here: document.body has data-opened-ms and data-check. */
const data = JSON.parse(document.getElementById('data').textContent);
const sides = data.sides.map((packed) => loadSide(packed, data.words));
const first = sides[0];

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  paintAll();
}
const dark = matchMedia('(prefers-color-scheme: dark)');
const asked = (location.hash.match(/theme=(dark|light)/) || [])[1];
document.documentElement.dataset.theme = asked || (dark.matches ? 'dark' : 'light');
dark.addEventListener('change', (e) => setTheme(e.matches ? 'dark' : 'light'));

const page = document.getElementById('page');
const state = { axis: first.ns ? 'time' : 'steps', color: 'category', repaint: [],
  found: new Map() };
if (/axis=steps/.test(location.hash)) state.axis = 'steps';
const tables = [], maps = [];
const noTimes = () => empty('No times yet: ', 'neap profile run NET measures them, and the report '
  + 'of the net or of run:ID has them.');

/* ---- head ---- */

const found = make('span', { class: 'note', role: 'status' });
const search = make('input', { id: 'search', type: 'search', placeholder: 'search  (press /)',
  'aria-label': 'search blobs, ops and layers', oninput: () => look(search.value.toLowerCase()) });
const sections = [['map', 'memory'], ['live', 'live bytes'], ['layers', 'layers'],
  ['ops', 'slowest ops'], ['roofline', 'roofline'], ['run', 'run'], ['net', 'net']];
if (sides[1]) sections.unshift(['changes', 'changes']);
const titleOf = (side) => `${side.figures.net || 'net'}, `
  + `${side.figures.mode === 'train' ? 'training' : 'inference'}, batch ${side.figures.batch}`;
page.append(make('header', {}, make('h1', {}, titleOf(first) + (sides[1] ? ' → '
  + titleOf(sides[1]) : '')), make('nav', {}, ...sections.map(([id, name]) =>
  make('a', { href: '#' + id }, name))), found, search, make('button', { id: 'theme',
  'aria-label': 'dark or light', onclick: () => setTheme(
    document.documentElement.dataset.theme === 'dark' ? 'light' : 'dark') }, '◐')), tip);

/* ---- figures ---- */

function cardsOf(side) {
  const f = side.figures, card = (title, value, more) => make('div', { class: 'card' },
    make('span', {}, title), make('b', {}, value), make('span', {}, more || '\u00a0'));
  const total = side.ns ? side.ns.reduce((a, b) => a + b, 0) : 0;
  return make('div', { class: 'cards' },
    card('arena', bytesText(f.arena_bytes), f.proved ? 'the least there is, proved'
      : `bound ${bytesText(f.lower_bound_bytes)}`),
    card('all regions', bytesText(f.total_bytes), `policy ${f.policy}`),
    card('without reuse', bytesText(f.baseline_bytes), f.baseline_bytes > 0
      ? `arena is ${(100 * f.arena_bytes / f.baseline_bytes).toFixed(1)} % of it` : ''),
    card('peak', `step ${side.peak_step}`, `${side.op('type', side.peak_step - 1)} of `
      + `${side.n_op} ops`),
    card('values', String(side.n_value), `${side.storages.length} places in the arena`),
    card('a step', side.step_ns ? timeText(side.step_ns) : total ? timeText(total) : '—',
      side.step_ns || total ? (side.times && side.times.label) || 'median' : 'not measured'));
}
for (const side of sides) {
  if (sides[1]) page.append(make('h3', {}, (side === first ? 'before: ' : 'after: ') + side.label));
  page.append(cardsOf(side));
}

if (data.changes) {
  const rows = data.changes.rows.map(([layer, what, before, after, ns, noise]) =>
    ({ layer, what, before, after, change: after - before, ns, noise }));
  const columns = [
    { title: 'layer', of: (r) => r.layer }, { title: 'what', of: (r) => r.what },
    { title: 'before', of: (r) => r.before, text: bytesText, number: true },
    { title: 'after', of: (r) => r.after, text: bytesText, number: true },
    { title: 'change', of: (r) => r.change, number: true, text: (v) => {
      const node = make('span', { class: v > 0 ? 'more' : v < 0 ? 'less' : '' },
        v > 0 ? '+' + bytesText(v) : bytesText(v));
      return node;
    } }];
  if (data.changes.timed)
    columns.push({ title: 'time', of: (r) => r.ns, number: true, text: (v, r) =>
      `${v > 0 ? '+' : ''}${timeText(v)}${r.noise > 0 ? ' ± ' + timeText(r.noise) : ''}` });
  const table = makeTable(columns, rows, { by: -1 });
  tables.push(table);
  page.append(section('changes', 'What has changed', `Bytes at the peak and from run to run, layer `
    + `by layer, the largest change first; as they were: ${data.changes.same} layers.`,
  rows.length > 0 ? table.node : empty('Nothing has changed.')));
}

/* ---- memory ---- */

const choice = (name, values, words) => values.map((value, i) => {
  const node = make('button', { onclick: () => {
    state[name] = value;
    choices.forEach((mark) => mark());
    for (const repaint of state.repaint) repaint();
  } }, words[i]);
  choices.push(() => node.setAttribute('aria-pressed', String(state[name] === value)));
  return node;
});
const choices = [];
/* All sides have one scale of bytes. */
state.most = Math.max(1, ...sides.flatMap((side) => [side.figures.arena_bytes || 0,
  side.figures.lower_bound_bytes || 0]));
for (const side of sides)
  for (const bytes of side.ops.live_bytes) state.most = Math.max(state.most, bytes || 0);
const memory = make('div', { class: 'sides' }), live = make('div', { class: 'sides' });
const anyTimes = sides.some((side) => side.ns);
page.append(section('map', 'Memory map', 'Addresses of the arena over the steps of the plan: each '
  + 'box is a storage from the step that writes it to the last that reads it.',
make('div', { class: 'bar' }, ...(anyTimes ? choice('axis', ['steps', 'time'],
  ['over steps', 'over time']) : [make('span', { class: 'note' }, 'over steps; no times yet: neap '
    + 'profile run NET measures them')]),
...choice('color', ['category', 'layer'], ['by category', 'by layer'])), memory),
section('live', 'Live bytes', 'What is alive while each step runs, by what it is for; dashed: the '
  + 'least arena for these kernels and this order.', live),
section('regions', 'Regions', 'The arena, and what lives from run to run.',
  drawRegions(sides)));
choices.forEach((mark) => mark());
let worst = 0;
for (const side of sides) {
  const part = make('div'), below = make('div');
  if (sides[1]) part.append(make('h3', {}, side.label));
  if (sides[1]) below.append(make('h3', {}, side.label));
  memory.append(part);
  live.append(below);
  if (side.storages.length === 0) {
    part.append(empty('The arena is empty: nothing lives only between two steps.'));
    maps.push(null);
  } else {
    maps.push(drawMap(part, side, state));
  }
  if (side.n_op === 0) below.append(empty('The plan has no ops.'));
  else worst = Math.max(worst, drawLive(below, side, state).worst);
}

/* ---- layers ---- */

const layers = layersOf(first);
const layerTable = makeTable([
  { title: 'layer', of: (r) => r.name }, { title: 'module', of: (r) => r.module },
  { title: 'ops', of: (r) => r.n, number: true },
  { title: 'parameters', of: (r) => r.parameters, text: bytesText, number: true },
  { title: 'from run to run', of: (r) => r.resident, text: bytesText, number: true },
  { title: 'at the peak', of: (r) => r.peak, text: bytesText, number: true },
  { title: 'flops', of: (r) => r.flops, text: countText, number: true },
  ...(first.ns ? [{ title: 'time', of: (r) => r.ns, text: timeText, number: true }] : [])],
layers, { by: 5 });
tables.push(layerTable);
const treemap = make('div');
page.append(section('layers', 'Layers', 'A backward op, a Reorder and an update belong to the '
  + 'layer that they are for.', treemap, layerTable.node));
drawTreemap(treemap, layers, [{ title: 'bytes at the peak', field: 'peak', text: bytesText },
  { title: 'parameters', field: 'parameters', text: bytesText },
  { title: 'flops', field: 'flops', text: countText },
  ...(first.ns ? [{ title: 'time', field: 'ns', text: timeText }] : [])]);

/* ---- time ---- */

function timesTable(side) {
  const total = side.ns.reduce((a, b) => a + b, 0) || 1;
  const rows = Array.from({ length: side.n_op }, (_, s) => s);
  const table = makeTable([
    { title: 'op', of: (s) => side.op('name', s) },
    { title: 'type', of: (s) => side.op('type', s) },
    { title: 'phase', of: (s) => side.op('phase', s) },
    { title: 'kernel', of: (s) => side.op('kernel', s) + (side.op('algorithm', s) ? ' '
      + side.op('algorithm', s) : '') },
    { title: 'step', of: (s) => s + 1, number: true },
    { title: 'time', of: (s) => side.ns[s], text: timeText, number: true },
    { title: '%', of: (s) => 100 * side.ns[s] / total, text: (v) => v.toFixed(1), number: true },
    { title: 'GFLOP/s', of: (s) => side.ns[s] > 0 ? (side.ops.flops[s] || 0) / side.ns[s] : 0,
      text: (v) => v > 0 ? v.toFixed(1) : '', number: true },
    { title: 'GB/s', of: (s) => side.ns[s] > 0 ? ((side.ops.read_bytes[s] || 0)
      + (side.ops.write_bytes[s] || 0)) / side.ns[s] : 0, text: (v) => v > 0 ? v.toFixed(1) : '',
    number: true },
    { title: 'line', of: (s) => side.op('line', s) }], rows, { by: 5 });
  tables.push(table);
  return [make('p', { class: 'note' }, (side.times.label ? side.times.label + '; ' : '')
    + `medians; all ops take ${timeText(total)}.`), table.node];
}

/* A section with a part for each side, and its label where there are two. */
function bySide(id, title, note, part) {
  page.append(section(id, title, note, ...sides.flatMap((side) => [
    sides[1] ? make('h3', {}, side.label) : null, ...(side.ns ? part(side) : [noTimes()])])));
}
if (anyTimes) {
  bySide('ops', 'Slowest ops', null, timesTable);
  bySide('roofline', 'Roofline', 'Work an op does a second, over its work for each byte that it '
    + 'moves; areas are times.', (side) => [drawRoofline(side)]);
} else {
  page.append(section('ops', 'Slowest ops', null, noTimes()),
    section('roofline', 'Roofline', null, noTimes()));
}

/* ---- the run ---- */

page.append(section('run', 'Loss and metrics', null, drawRuns(sides)
  || empty('No figures over steps: a plan alone has none; ', 'neap report run:ID shows what a '
    + 'training recorded.')));
const net = make('div');
page.append(section('net', 'The net', 'Forward ops from top to bottom, folded by module.', net));
drawGraph(net, first);

/* ---- search and keys ---- */

function look(words) {
  for (const table of tables) table.search(words);
  let n = 0;
  state.found.clear();
  if (words)
    sides.forEach((side, i) => {
      for (let v = 0; v < side.n_value; v++) {
        if (!side.value('blob', v).toLowerCase().includes(words)) continue;
        n++;
        if (!state.found.has(side) && maps[i] && side.value('region', v) === 'arena') {
          const box = maps[i].find(v);
          if (box) state.found.set(side, box);
        }
      }
    });
  found.textContent = words ? `${n} blobs` : '';
  for (const repaint of state.repaint) repaint();
}
addEventListener('keydown', (e) => {
  if (e.target === search) {
    if (e.key === 'Escape') { search.value = ''; look(''); search.blur(); }
    return;
  }
  if (e.key === '/') { e.preventDefault(); search.focus(); }
  if (e.key === 't') document.getElementById('theme').click();
});
let resizing = 0;
addEventListener('resize', () => { clearTimeout(resizing); resizing = setTimeout(paintAll, 80); });
/* Paper is light and as wide as page.css says: what is drawn has to know before it is printed. */
function print(on) {
  document.documentElement.classList.toggle('paper', on);
  setTheme(on ? 'light' : screenTheme);
}
let screenTheme = document.documentElement.dataset.theme;
addEventListener('beforeprint', () => { screenTheme = document.documentElement.dataset.theme;
  print(true); });
addEventListener('afterprint', () => print(false));

document.body.dataset.check = String(worst);
document.body.dataset.openedMs = performance.now().toFixed(0);
document.body.dataset.scriptMs = (performance.now() - began).toFixed(0);
if (/measure/.test(location.hash) && maps[0]) {
  const frames = maps[0].measure(60).sort((a, b) => a - b);
  document.body.dataset.frameMs = frames[30].toFixed(2);
  document.body.dataset.frameMostMs = frames[59].toFixed(2);
}
