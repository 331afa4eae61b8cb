/* graph.js: the net as a graph: the forward ops from top to bottom, folded by module. A click on a
 * module unfolds it, one on an op inside folds it again.
 *
 * A group's rank is one below the deepest that it reads from; edges of a module that reads from one
 * drawn below it (it is used twice) do not count, and are dashed. Ops without a module in a long
 * net are folded by their number, so that 30,000 ops are drawn as well as 30. */
function drawGraph(parent, side) {
  const forward = [];
  for (let s = 0; s < side.n_op; s++)
    if (side.op('phase', s) === 'forward' && side.op('type', s) !== 'Reorder'
      && !(side.ops.recomputes && side.ops.recomputes[s])) forward.push(s);
  const maker = new Map();
  for (let v = 0; v < side.n_value; v++)
    if (side.values.first_step[v] > 0) maker.set(v + 1, side.values.first_step[v] - 1);
  const place = new Map(forward.map((s, i) => [s, i])), chunk = 40;
  /* Through a Reorder to what it turns. */
  const reads = (s) => {
    const list = [];
    for (let k = side.reads.at[s]; k < side.reads.at[s + 1]; k++) {
      let from = maker.get(side.reads.value[k]);
      while (from !== undefined && side.op('type', from) === 'Reorder')
        from = side.reads.at[from] < side.reads.at[from + 1]
          ? maker.get(side.reads.value[side.reads.at[from]]) : undefined;
      if (from !== undefined) list.push(from);
    }
    return list;
  };
  const pathOf = (s) => {
    const module = side.op('module', s);
    const parts = module ? module.split('/') : [];
    if (!module && forward.length > 200) {
      const i = Math.floor(place.get(s) / chunk);
      parts.push(`ops ${Math.floor(i / chunk) * chunk * chunk + 1}…`);
      parts.push(`ops ${i * chunk + 1}-${Math.min((i + 1) * chunk, forward.length)}`);
    }
    return parts;
  };
  const paths = new Map(forward.map((s) => [s, pathOf(s)]));
  const open = new Set(), holder = make('div', { class: 'scroll' });
  holder.style.maxHeight = '560px';
  const groupOf = (s) => {
    const parts = paths.get(s);
    let path = '';
    for (const part of parts) {
      path = path ? path + '/' + part : part;
      if (!open.has(path)) return path;
    }
    return '#' + s;
  };
  function paint() {
    const groups = new Map(), edges = new Map();
    for (const s of forward) {
      const name = groupOf(s);
      if (!groups.has(name))
        groups.set(name, { name, ops: [], rank: 0, order: groups.size, ns: 0 });
      const group = groups.get(name);
      group.ops.push(s);
      if (side.ns) group.ns += side.ns[s];
      for (const from of reads(s)) {
        if (!paths.has(from)) continue;
        const other = groups.get(groupOf(from));
        if (!other || other === group) continue;
        const back = other.order > group.order;
        edges.set(other.name + '\n' + name, { from: other, to: group, back });
        if (!back) group.rank = Math.max(group.rank, other.rank + 1);
      }
    }
    const list = [...groups.values()], ranks = [];
    for (const edge of edges.values())
      if (!edge.back) edge.to.rank = Math.max(edge.to.rank, edge.from.rank + 1);
    for (const group of list.sort((a, b) => a.order - b.order))
      for (const edge of edges.values())
        if (!edge.back && edge.to === group) group.rank = Math.max(group.rank, edge.from.rank + 1);
    if (list.length > 900) {
      holder.replaceChildren(empty(`${list.length} boxes are too many to read: fold a module.`));
      return;
    }
    for (const group of list) (ranks[group.rank] = ranks[group.rank] || []).push(group);
    const w = 190, h = 34, gapX = 16, gapY = 26;
    const wide = Math.max(...ranks.filter(Boolean).map((r) => r.length));
    const width = Math.max(560, wide * (w + gapX) + gapX), height = ranks.length * (h + gapY) + 20;
    ranks.forEach((rank, y) => rank.forEach((group, i) => {
      group.x = (width - rank.length * (w + gapX) + gapX) / 2 + i * (w + gapX);
      group.y = 10 + y * (h + gapY);
    }));
    const svg = draw('svg', { viewBox: `0 0 ${width} ${height}`, width, height, role: 'img',
      'aria-label': 'the net as a graph' });
    svg.style.margin = '0 auto';
    svg.style.maxWidth = 'none';
    for (const { from, to, back } of edges.values()) {
      const x1 = from.x + w / 2, y1 = from.y + h, x2 = to.x + w / 2, y2 = to.y;
      const far = to.rank - from.rank > 1 && Math.abs(x1 - x2) < w;
      const side1 = far ? Math.max(x1, x2) + w / 2 + 12 : null;
      svg.append(draw('path', { fill: 'none', stroke: css('--soft'), 'stroke-width': 1,
        'stroke-dasharray': back ? '4 3' : 'none',
        d: far ? `M${x1},${y1} C${side1},${y1 + 16} ${side1},${y1 + 16} ${side1},${y1 + 40} `
          + `L${side1},${y2 - 40} C${side1},${y2 - 16} ${side1},${y2 - 16} ${x2},${y2}`
          : `M${x1},${y1} C${x1},${(y1 + y2) / 2} ${x2},${(y1 + y2) / 2} ${x2},${y2}` }));
    }
    const tops = new Map();
    for (const group of list) {
      const first = group.ops[0], isModule = group.name[0] !== '#';
      const top = (paths.get(first)[0] || side.op('type', first));
      if (!tops.has(top)) tops.set(top, tops.size);
      const name = isModule ? group.name : side.op('name', first);
      const node = draw('g', { tabindex: 0, role: 'button', cursor: 'pointer' });
      node.append(draw('rect', { x: group.x, y: group.y, width: w, height: h, rx: 5,
        fill: colourOf(top, 'layer', tops.get(top)), stroke: css('--edge'),
        'stroke-width': isModule ? 1.6 : 0.7 }));
      const cut = (text, n) => text.length > n ? text.slice(0, n / 2) + '…'
        + text.slice(text.length - n / 2 + 1) : text;
      node.append(draw('text', { x: group.x + 8, y: group.y + 14, class: 'strong' },
        (isModule ? '▸ ' : '') + cut(name, 28)));
      node.append(draw('text', { x: group.x + 8, y: group.y + 28, class: 'strong',
        'fill-opacity': 0.75 }, cut((isModule ? `${group.ops.length} ops` : side.op('type', first))
          + (side.ns ? `, ${timeText(group.ns)}` : ''), 30)));
      const toggle = () => {
        if (isModule) {
          open.add(group.name);
        } else {
          const parts = paths.get(first);
          for (let n = parts.length; n > 0; n--) {
            const path = parts.slice(0, n).join('/');
            if (!open.has(path)) continue;
            for (const other of [...open])
              if (other === path || other.startsWith(path + '/')) open.delete(other);
            break;
          }
        }
        paint();
      };
      node.addEventListener('click', toggle);
      node.addEventListener('keydown', (e) => { if (e.key === 'Enter') toggle(); });
      svg.append(withTip(node, name + '\n' + (isModule ? `${group.ops.length} ops; a click unfolds `
        + 'it' : `${side.op('type', first)}, ${side.op('kernel', first)}\n`
        + side.op('line', first))));
    }
    holder.replaceChildren(svg);
    holder.scrollLeft = Math.max(0, (width - holder.clientWidth) / 2);
  }
  const all = () => {
    for (const parts of paths.values())
      for (let n = 1; n <= parts.length; n++) open.add(parts.slice(0, n).join('/'));
    paint();
  };
  parent.append(make('div', { class: 'bar' },
    make('button', { onclick: () => { open.clear(); paint(); } }, 'fold all'),
    make('button', { onclick: all }, 'unfold all'),
    make('span', { class: 'note' }, 'click a module to unfold it, an op to fold its module')),
  holder);
  onPaint(paint);
}
