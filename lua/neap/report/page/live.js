/* live.js: bytes live while each step runs, stacked by category, with the bound: over steps or,
 * with the same switch as the map, over time. Of many steps in a pixel the one that holds most is
 * drawn. */
function drawLive(parent, side, state) {
  const live = liveByCategory(side), height = 210, left = 74, right = 12, top = 14, bottom = 30;
  const bound = side.figures.lower_bound_bytes || 0;
  const most = state.most;
  let width = 0;
  const edge = () => side.edges[state.axis] || side.edges.steps;

  /* For each column of pixels the step that holds most of those in it; -1: none. */
  function columns(n) {
    const list = new Int32Array(n).fill(-1), e = edge(), all = e[side.n_op] || 1;
    for (let s = 0; s < side.n_op; s++) {
      const a = Math.floor(e[s] / all * n), b = Math.min(n, Math.max(a + 1,
        Math.ceil(e[s + 1] / all * n)));
      for (let x = a; x < b; x++)
        if (list[x] < 0 || side.ops.live_bytes[s] > side.ops.live_bytes[list[x]]) list[x] = s;
    }
    return list;
  }
  function paint(context, w) {
    width = w;
    context.clearRect(0, 0, width, height);
    const y = (bytes) => height - bottom - bytes / most * (height - top - bottom);
    context.textAlign = 'right';
    for (const bytes of ticksOf(most, 4, true)) {
      context.fillStyle = css('--soft');
      context.fillText(bytesText(bytes), left - 6, y(bytes) + 4);
      context.fillStyle = css('--grid');
      context.fillRect(left, y(bytes), width - left - right, 1);
    }
    const n = Math.max(1, Math.floor(width - left - right)), steps = columns(n);
    const base = new Float64Array(n);
    for (const name of live.names) {
      context.fillStyle = name === 'scratch' ? css('--scratch') : colourOf(name, 'category', 0);
      const row = live.rows[name];
      for (let x = 0; x < n; x++) {
        if (steps[x] < 0 || !(row[steps[x]] > 0)) continue;
        const bytes = row[steps[x]];
        context.fillRect(left + x, y(base[x] + bytes), 1.02, bytes / most * (height - top - bottom)
          + 0.3);
        base[x] += bytes;
      }
    }
    context.strokeStyle = context.fillStyle = css('--warn');
    context.setLineDash([5, 3]);
    context.beginPath();
    context.moveTo(left, y(bound));
    context.lineTo(width - right, y(bound));
    context.stroke();
    context.setLineDash([]);
    context.fillText(`bound ${bytesText(bound)}`, width - right, y(bound) - 4);
    drawStepAxis(context, side, state, { left, right: width - right, y: height - bottom, from: 0,
      to: 1 });
    context.textAlign = 'left';
  }
  const [canvas, repaint] = makeCanvas(parent, height, 'live bytes by category', paint);
  state.repaint.push(repaint);
  canvas.addEventListener('pointermove', (e) => {
    const e2 = edge(), at = (e.offsetX - left) / (width - left - right) * e2[side.n_op];
    if (at < 0 || at >= e2[side.n_op]) return hideTip();
    let low = 0, high = side.n_op - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (e2[middle] <= at) low = middle; else high = middle - 1;
    }
    showTip(e, `step ${low + 1}: ${side.op('name', low)}, ${side.op('type', low)}\n`
      + `${bytesText(side.ops.live_bytes[low])} live\n` + live.names.filter((name) =>
      live.rows[name][low] > 0).map((name) => `${name} ${bytesText(live.rows[name][low])}`)
      .join('\n'));
  });
  canvas.addEventListener('pointerleave', hideTip);
  const [key] = keyOf(() => live.names.map((name) =>
    [name === 'rest' ? 'rounding and loops' : name, name === 'scratch' ? css('--scratch')
      : colourOf(name, 'category', 0)]));
  parent.append(key);
  return live;
}
