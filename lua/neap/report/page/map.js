/* map.js: the memory map: addresses over steps, or over time. Each storage is a box; scratch is
 * drawn grey where its place is known.
 *
 * Level of detail: only boxes in the window are looked at. What is smaller than a pixel is added to
 * that pixel, which is painted once and as strongly as it is filled, below all that is larger: a
 * frame costs no more for 30,000 values than a screen holds. What is thinner than a pixel is
 * painted as strongly as it is thick. */
function drawMap(parent, side, state) {
  const edge = () => side.edges[state.axis] || side.edges.steps;
  const left = 74, right = 12, top = 22, bottom = 30, height = 420;
  const view = { from: 0, to: 1, low: 0, high: 1 };
  const total = state.most;
  const layers = new Map();
  const numberOf = (name) => {
    if (!layers.has(name)) layers.set(name, layers.size);
    return layers.get(name);
  };
  let hover = null, width = 0;
  const groupOf = (storage) => side.value(state.color, storage.members[0]);
  const xOf = (step) => {
    const e = edge(), all = e[side.n_op] || 1;
    return left + (e[step] / all - view.from) / (view.to - view.from) * (width - left - right);
  };
  const yOf = (bytes) => height - bottom
    - (bytes / total - view.low) / (view.high - view.low) * (height - top - bottom);

  const boxes = side.storages.map((s) => ({ from: s.from - 1, to: s.to, offset: s.offset,
    bytes: s.bytes, storage: s, step: 0 }));
  const scratch = [];
  if (side.ops.scratch_offset)
    for (let s = 0; s < side.n_op; s++)
      if (side.ops.scratch_bytes[s] > 0)
        scratch.push({ from: s, to: s + 1, offset: side.ops.scratch_offset[s],
          bytes: side.ops.scratch_bytes[s], step: s + 1 });
  const all = boxes.concat(scratch);

  let colours = null, frames = 0;
  const recolour = () => {
    const cache = new Map();
    colours = all.map((box, i) => {
      if (!box.storage) return css('--scratch');
      const group = groupOf(box.storage), key = group + i % 3;
      if (!cache.has(key))
        cache.set(key, colourOf(group, state.color, numberOf(group), (i % 3 - 1) * 4));
      return cache.get(key);
    });
  };

  function paint(context, w) {
    width = w;
    recolour();
    repaintWith(context);
  }
  function repaintWith(context) {
    frames++;
    context.clearRect(0, 0, width, height);
    drawAxes(context);
    context.save();
    context.beginPath();
    context.rect(left, top, width - left - right, height - top - bottom);
    context.clip();
    const line = css('--edge'), ink = css('--ink'), across = Math.ceil(width) + 1;
    const cells = new Map(), large = [];
    for (let i = 0; i < all.length; i++) {
      const box = all[i], x = xOf(box.from), x2 = xOf(box.to);
      if (x2 < left || x > width - right) continue;
      const y = yOf(box.offset + box.bytes), y2 = yOf(box.offset);
      if (y2 < top || y > height - bottom) continue;
      const w = x2 - x, h = y2 - y;
      if (w < 1.2 && h < 1.2) {
        const at = (y | 0) * across + (x | 0), cell = cells.get(at);
        if (cell) cell[1] += w * h; else cells.set(at, [i, w * h]);
      } else {
        large.push(i);
      }
    }
    for (const [at, [i, filled]] of cells) {
      context.globalAlpha = Math.min(1, Math.max(0.15, filled));
      context.fillStyle = colours[i];
      context.fillRect(at % across, Math.floor(at / across), 1, 1);
    }
    context.globalAlpha = 1;
    for (const i of large) {
      const box = all[i], x = xOf(box.from), x2 = xOf(box.to);
      const y = yOf(box.offset + box.bytes), y2 = yOf(box.offset), w = x2 - x, h = y2 - y;
      context.fillStyle = colours[i];
      context.globalAlpha = Math.min(1, Math.max(0.12, Math.min(w, h)));
      context.fillRect(x, y, Math.max(w, 1), Math.max(h, 1));
      context.globalAlpha = 1;
      if (w > 3 && h > 3) {
        context.strokeStyle = line;
        context.lineWidth = 0.5;
        context.strokeRect(x, y, w, h);
      }
      if (h >= 12 && w > 34 && box.storage) {
        const shown = fitting(context, side.value('blob', box.storage.members[0]),
          Math.min(x2, width - right) - Math.max(x, left) - 8);
        context.fillStyle = ink;
        if (shown) context.fillText(shown, Math.max(x, left) + 4, (Math.max(y, top)
          + Math.min(y2, height - bottom)) / 2 + 4);
      }
    }
    const peak = side.peak_step;
    context.strokeStyle = css('--warn');
    context.lineWidth = 1.5;
    context.strokeRect(xOf(peak - 1), top + 1, Math.max(2, xOf(peak) - xOf(peak - 1)),
      height - top - bottom - 2);
    const mark = hover || state.found.get(side);
    if (mark) {
      context.lineWidth = 2.5;
      context.strokeStyle = css('--accent');
      context.strokeRect(xOf(mark.from), yOf(mark.offset + mark.bytes),
        Math.max(3, xOf(mark.to) - xOf(mark.from)), Math.max(3, yOf(mark.offset)
          - yOf(mark.offset + mark.bytes)));
    }
    context.restore();
    context.fillStyle = css('--warn');
    context.textAlign = xOf(peak) > width * 0.6 ? 'right' : 'left';
    context.fillText(fitting(context, `peak ${bytesText(side.ops.live_bytes[peak - 1] || 0)}, step `
      + `${peak}: ${side.op('name', peak - 1)}`, width * 0.6),
    Math.min(Math.max(xOf(peak - 1), left), width - right), top - 8);
    context.textAlign = 'left';
  }

  function drawAxes(context) {
    context.fillStyle = css('--soft');
    context.strokeStyle = css('--grid');
    context.lineWidth = 1;
    context.textAlign = 'right';
    const low = view.low * total, high = view.high * total;
    const ticks = ticksOf(high - low, 7, true), step = ticks.length > 1 ? ticks[1] : high;
    for (let at = Math.ceil(low / step) * step; at <= high * 1.0001; at += step) {
      const y = yOf(at);
      context.beginPath();
      context.moveTo(left, y);
      context.lineTo(width - right, y);
      context.stroke();
      context.fillText(bytesText(at), left - 6, y + 4);
    }
    drawStepAxis(context, side, state, { left, right: width - right, y: height - bottom,
      from: view.from, to: view.to });
    context.textAlign = 'left';
  }

  const [canvas] = makeCanvas(parent, height, 'memory map: addresses over steps', paint);
  const repaint = () => repaintWith(canvas.getContext('2d'));
  state.repaint.push(() => { recolour(); repaint(); });
  let asked = false;
  const soon = () => {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => { asked = false; repaint(); });
  };

  const clamp = () => {
    for (const [a, b] of [['from', 'to'], ['low', 'high']]) {
      const span = Math.min(1, Math.max(view[b] - view[a], 1e-5));
      view[a] = Math.min(Math.max(view[a], 0), 1 - span);
      view[b] = view[a] + span;
    }
  };
  const pan = (x, y) => {
    const w = view.to - view.from, h = view.high - view.low;
    view.from += x * w; view.to += x * w; view.low += y * h; view.high += y * h;
    clamp();
    soon();
  };
  const zoom = (factor, x, y) => {
    const w = (view.to - view.from) * factor, h = (view.high - view.low) * factor;
    const cx = view.from + (view.to - view.from) * x, cy = view.low + (view.high - view.low) * y;
    view.from = cx - w * x; view.to = view.from + w;
    view.low = cy - h * y; view.high = view.low + h;
    clamp();
    soon();
  };
  const reset = () => { Object.assign(view, { from: 0, to: 1, low: 0, high: 1 }); soon(); };

  const find = (px, py) => {
    for (let i = all.length - 1; i >= 0; i--) {
      const box = all[i];
      if (px >= xOf(box.from) - 1 && px <= xOf(box.to) + 1 && py >= yOf(box.offset + box.bytes) - 1
        && py <= yOf(box.offset) + 1) return box;
    }
    return null;
  };
  const words = (box) => box.storage ? box.storage.members.slice(0, 8).map((v) =>
    `${side.value('blob', v)}  ${side.value('shape', v)} ${side.value('dtype', v)}, `
    + `${side.value('category', v)}${side.value('line', v) ? ', ' + side.value('line', v) : ''}`)
    .join('\n') + (box.storage.members.length > 8 ? `\nand ${box.storage.members.length - 8} more`
    : '') + `\n${bytesText(box.bytes)} at ${bytesText(box.offset)}, steps ${box.from + 1}-${box.to}`
    : `scratch of ${side.op('name', box.step - 1)}\n${bytesText(box.bytes)} at `
      + `${bytesText(box.offset)}, step ${box.step}`;

  let drag = null;
  canvas.addEventListener('pointerdown', (e) => {
    drag = [e.offsetX, e.offsetY];
    canvas.setPointerCapture(e.pointerId);
  });
  canvas.addEventListener('pointerup', () => { drag = null; });
  canvas.addEventListener('pointermove', (e) => {
    if (drag) {
      pan((drag[0] - e.offsetX) / (width - left - right), (e.offsetY - drag[1])
        / (height - top - bottom));
      drag = [e.offsetX, e.offsetY];
      return;
    }
    const was = hover;
    hover = find(e.offsetX, e.offsetY);
    if (hover) showTip(e, words(hover)); else hideTip();
    if (hover !== was) soon();
  });
  canvas.addEventListener('pointerleave', () => { hover = null; hideTip(); soon(); });
  canvas.addEventListener('wheel', (e) => {
    if (document.activeElement !== canvas && !e.ctrlKey) return;
    e.preventDefault();
    zoom(e.deltaY > 0 ? 1.2 : 1 / 1.2, (e.offsetX - left) / (width - left - right),
      (height - bottom - e.offsetY) / (height - top - bottom));
  }, { passive: false });
  canvas.addEventListener('keydown', (e) => {
    const act = { ArrowLeft: () => pan(-0.15, 0), ArrowRight: () => pan(0.15, 0),
      ArrowUp: () => pan(0, 0.15), ArrowDown: () => pan(0, -0.15), '+': () => zoom(0.7, 0.5, 0.5),
      '=': () => zoom(0.7, 0.5, 0.5), '-': () => zoom(1 / 0.7, 0.5, 0.5), 0: reset }[e.key];
    if (!act) return;
    e.preventDefault();
    act();
  });
  const button = (text, act, label) => make('button', { onclick: act, 'aria-label': label }, text);
  parent.append(make('div', { class: 'bar' }, button('+', () => zoom(0.7, 0.5, 0.5), 'zoom in'),
    button('−', () => zoom(1 / 0.7, 0.5, 0.5), 'zoom out'), button('whole', reset, 'show all'),
    make('span', { class: 'note' }, 'drag to move; click, then wheel, + − 0 and arrows')));
  const [key, paintKey] = keyOf(() => {
    const sums = new Map();
    for (const s of side.storages) sums.set(groupOf(s), (sums.get(groupOf(s)) || 0) + s.bytes);
    const list = [...sums].sort((a, b) => b[1] - a[1]).slice(0, 14).map(([name]) =>
      [name || '(no layer)', colourOf(name, state.color, numberOf(name))]);
    if (sums.size > 14) list.push([`and ${sums.size - 14} more`, 'transparent']);
    if (scratch.length > 0) list.push(['scratch', css('--scratch')]);
    return list;
  });
  state.repaint.push(paintKey);
  parent.append(key);
  return {
    find: (v) => boxes.find((box) => box.storage.members.includes(v)),
    /* Draws n frames while it moves, and gives the ns of each: what panning costs. */
    measure: (n) => {
      const list = [];
      zoom(0.5, 0.5, 0.5);
      for (let i = 0; i < n; i++) {
        const t = performance.now();
        pan(i % 2 ? 0.02 : -0.02, 0.01);
        repaint();
        canvas.getContext('2d').getImageData(0, 0, 1, 1);
        list.push(performance.now() - t);
      }
      reset();
      repaint();
      return list;
    },
  };
}

/* Numbers of steps, or times, below a picture; and the strip of phases. */
function drawStepAxis(context, side, state, at) {
  const edge = side.edges[state.axis] || side.edges.steps, all = edge[side.n_op] || 1;
  const isTime = edge === side.edges.time, span = (at.to - at.from) * all;
  const x = (value) => at.left + (value / all - at.from) / (at.to - at.from)
    * (at.right - at.left);
  let begin = 0;
  for (let s = 1; s <= side.n_op; s++) {
    if (s < side.n_op && side.ops.phase[s] === side.ops.phase[begin]) continue;
    const a = Math.max(at.left, x(edge[begin])), b = Math.min(at.right, x(edge[s]));
    context.fillStyle = phaseColour(side.op('phase', begin));
    if (b > a) context.fillRect(a, at.y + 2, b - a, 5);
    begin = s;
  }
  context.fillStyle = css('--soft');
  context.textAlign = 'center';
  const ticks = ticksOf(span, 9, false);
  const step = Math.max(ticks.length > 1 ? ticks[1] : span || 1, isTime ? 1e-9 : 1);
  for (let value = Math.ceil(at.from * all / step) * step; value <= at.to * all + 1e-9;
    value += step) {
    const px = isTime ? x(value) : (x(Math.max(value - 1, 0)) + x(Math.max(value, 1))) / 2;
    if (px < at.left - 1 || px > at.right - 8) continue;
    if (!isTime && value === 0 && span < 12) continue;
    context.fillText(isTime ? timeText(value) : String(Math.max(1, value)), px, at.y + 20);
  }
}
