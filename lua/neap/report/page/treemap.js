/* treemap.js: layers as rectangles whose areas are their bytes or times: squarified, after Bruls,
 * Huizing and van Wijk, "Squarified treemaps" (2000): rows are filled while the worst of their
 * rectangles gets squarer. */
function squarify(items, x, y, width, height) {
  const out = [];
  let rest = items.reduce((sum, item) => sum + item.size, 0), i = 0;
  while (i < items.length && rest > 0 && width > 0.5 && height > 0.5) {
    const side = Math.min(width, height), scale = width * height / rest;
    let sum = 0, worst = Infinity, n = 0;
    while (i + n < items.length) {
      const size = items[i + n].size, next = sum + size;
      const thick = next * scale / side;
      const most = Math.max(items[i].size * scale / thick / thick,
        thick * thick / (size * scale));
      if (n > 0 && most > worst) break;
      worst = most;
      sum = next;
      n++;
    }
    const thick = sum * scale / side;
    let at = 0;
    for (let k = 0; k < n; k++) {
      const long = items[i + k].size / sum * side;
      out.push(width >= height
        ? { item: items[i + k], x, y: y + at, width: thick, height: long }
        : { item: items[i + k], x: x + at, y, width: long, height: thick });
      at += long;
    }
    if (width >= height) { x += thick; width -= thick; } else { y += thick; height -= thick; }
    rest -= sum;
    i += n;
  }
  return out;
}

function drawTreemap(parent, layers, measures) {
  let measure = measures.find((m) => layers.some((row) => row[m.field] > 0)) || measures[0];
  let cells = [];
  const height = 300;
  const buttons = measures.map((m) => make('button', { onclick: () => { measure = m; repaint(); } },
    m.title));
  parent.append(make('div', { class: 'bar' }, make('span', { class: 'note' }, 'area:'),
    ...buttons));
  const parts = new Map();
  for (const row of layers) {
    const part = (row.module || row.name).split('/')[0];
    if (!parts.has(part)) parts.set(part, parts.size);
  }
  const [canvas, repaint] = makeCanvas(parent, height, 'layers as a treemap', (context, width) => {
    buttons.forEach((b, i) => b.setAttribute('aria-pressed', String(measures[i] === measure)));
    context.clearRect(0, 0, width, height);
    const items = layers.filter((row) => row[measure.field] > 0).map((row) => ({ row,
      size: row[measure.field] })).sort((a, b) => b.size - a.size);
    cells = squarify(items, 0, 0, width, height);
    if (items.length === 0) {
      context.fillStyle = css('--soft');
      context.fillText(`no layer has any ${measure.title}`, 10, 24);
    }
    cells.forEach((cell) => {
      const part = (cell.item.row.module || cell.item.row.name).split('/')[0];
      context.fillStyle = colourOf(part, 'layer', parts.get(part));
      context.fillRect(cell.x, cell.y, cell.width, cell.height);
      context.strokeStyle = css('--panel');
      context.lineWidth = 1.5;
      context.strokeRect(cell.x, cell.y, cell.width, cell.height);
      if (cell.height < 16) return;
      context.fillStyle = css('--ink');
      context.fillText(fitting(context, cell.item.row.name, cell.width - 10), cell.x + 5,
        cell.y + 14);
      if (cell.height < 32) return;
      context.fillText(fitting(context, measure.text(cell.item.size), cell.width - 10), cell.x + 5,
        cell.y + 28);
    });
  });
  canvas.addEventListener('pointermove', (e) => {
    const cell = cells.find((c) => e.offsetX >= c.x && e.offsetX < c.x + c.width
      && e.offsetY >= c.y && e.offsetY < c.y + c.height);
    if (!cell) return hideTip();
    showTip(e, cell.item.row.name + '\n' + measures.map((m) =>
      `${m.title} ${m.text(cell.item.row[m.field])}`).join('\n'));
  });
  canvas.addEventListener('pointerleave', hideTip);
}
