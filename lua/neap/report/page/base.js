/* base.js: elements, units, colours and the tip under the pointer: what every picture uses. */
const began = performance.now();

/* An element with attributes and children; texts become text, so that no name is ever markup. */
function make(name, attributes, ...children) {
  const node = document.createElement(name);
  for (const key in attributes || {}) {
    if (key.startsWith('on')) node.addEventListener(key.slice(2), attributes[key]);
    else if (attributes[key] !== undefined) node.setAttribute(key, attributes[key]);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

/* The name space of SVG, from an element that the parser of HTML has put into it. */
const svgRoot = (() => {
  const template = document.createElement('template');
  template.innerHTML = '<svg></svg>';
  return template.content.firstChild;
})();
function draw(name, attributes, text) {
  const node = document.createElementNS(svgRoot.namespaceURI, name);
  for (const key in attributes) node.setAttribute(key, attributes[key]);
  if (text !== undefined) node.textContent = text;
  return node;
}

/* ---- units ---- */

function bytesText(bytes) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let u = 0, size = Math.abs(bytes);
  while (size >= 1024 && u < units.length - 1) { size /= 1024; u++; }
  return (bytes < 0 ? '-' : '') + (u === 0 ? size : size.toFixed(1)) + ' ' + units[u];
}
function timeText(ns) {
  const size = Math.abs(ns);
  if (size >= 1e9) return (ns / 1e9).toFixed(2) + ' s';
  if (size >= 1e6) return (ns / 1e6).toFixed(2) + ' ms';
  if (size >= 1e3) return (ns / 1e3).toFixed(1) + ' µs';
  return Math.round(ns) + ' ns';
}
function countText(n) {
  for (const [size, unit] of [[1e12, ' T'], [1e9, ' G'], [1e6, ' M'], [1e3, ' k']])
    if (Math.abs(n) >= size) return (n / size).toFixed(2) + unit;
  return String(Math.round(n * 100) / 100);
}

/* Round values from 0 to `most`, about `n` of them: of bytes round in powers of two. */
function ticksOf(most, n, isBytes) {
  if (!(most > 0)) return [0];
  const base = isBytes ? Math.pow(1024, Math.floor(Math.log(most) / Math.log(1024))) : 1;
  const rough = most / base / n;
  const power = Math.pow(10, Math.floor(Math.log10(rough)));
  let step = [1, 2, 5, 10].find((k) => k * power >= rough) * power;
  if (isBytes) step = Math.max(1, Math.pow(2, Math.ceil(Math.log2(rough))) * base);
  const list = [];
  for (let at = 0; at <= most * 1.0001; at += step) list.push(at);
  return list;
}

/* ---- colours ---- */

const categoryColour = { activation: [210, 62], gradient: [14, 72], stash: [285, 45],
  reorder: [170, 38], output: [95, 50], input: [60, 50], parameter: [228, 45], state: [262, 36],
  update: [42, 70], constant: [50, 34], frame: [190, 34], scratch: [0, 0], rest: [0, 0] };

function css(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}
function colourOf(group, by, number, shade) {
  const light = parseFloat(css('--light')) + (shade || 0);
  const [hue, saturation] = by === 'category' ? categoryColour[group] || [0, 0]
    : [(number * 222.49) % 360, 55];
  const vivid = (saturation * parseFloat(css('--vivid'))).toFixed(0);
  return `hsl(${hue.toFixed(0)},${vivid}%,${light}%)`;
}
const phaseHue = { forward: [120, 26], backward: [0, 38], update: [234, 36] };
function phaseColour(phase) {
  const [hue, saturation] = phaseHue[phase] || [0, 0];
  return `hsl(${hue},${saturation}%,${css('--light')})`;
}

/* ---- the tip ---- */

const tip = make('div', { id: 'tip', role: 'tooltip', hidden: '' });
function showTip(event, text) {
  tip.textContent = text;
  tip.hidden = false;
  const x = event.clientX + 14, y = event.clientY + 14;
  tip.style.left = Math.min(x, innerWidth - tip.offsetWidth - 8) + 'px';
  tip.style.top = (y + tip.offsetHeight > innerHeight ? event.clientY - tip.offsetHeight - 8 : y)
    + 'px';
}
function hideTip() { tip.hidden = true; }

/* ---- what is drawn anew when the theme or the width changes ---- */

const painters = [];
function onPaint(paint) { painters.push(paint); paint(); }
function paintAll() { for (const paint of painters) paint(); }

/* A canvas as wide as its parent, sharp on any screen. paint(context, width, height) */
function makeCanvas(parent, height, label, paint) {
  const canvas = make('canvas', { tabindex: '0', role: 'img', 'aria-label': label });
  canvas.style.height = height + 'px';
  parent.append(canvas);
  let seen = 0;
  const repaint = () => {
    const width = seen = canvas.clientWidth || 600, ratio = Math.min(devicePixelRatio || 1, 2);
    canvas.width = width * ratio;
    canvas.height = height * ratio;
    const context = canvas.getContext('2d');
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.font = '11px system-ui, "DejaVu Sans", sans-serif';
    paint(context, width, height);
  };
  onPaint(repaint);
  new ResizeObserver(() => { if (canvas.clientWidth !== seen) repaint(); }).observe(canvas);
  return [canvas, repaint];
}

function keyOf(entries) {
  const key = make('div', { class: 'key' });
  const paint = () => key.replaceChildren(...entries().map(([name, colour]) => {
    const mark = make('i');
    mark.style.background = colour;
    return make('span', {}, mark, name);
  }));
  onPaint(paint);
  return [key, paint];
}

function section(id, title, note, ...children) {
  return make('section', { id }, make('h2', {}, title),
    note ? make('p', { class: 'note' }, note) : null, ...children);
}
function empty(text, command) {
  return make('div', { class: 'empty' }, text, command ? make('code', {}, command) : null);
}

/* Text cut to so many pixels of a canvas; "" where nothing of it fits. */
function fitting(context, text, room) {
  if (room < 16) return '';
  if (context.measureText(text).width <= room) return text;
  let n = Math.floor(text.length * room / context.measureText(text).width) - 1;
  while (n > 2 && context.measureText(text.slice(0, n) + '…').width > room) n--;
  return n > 2 ? text.slice(0, n) + '…' : '';
}
