/* table.js: a table that is sorted by a click on its head (or Enter), and filtered by the search.
 * Of many rows the first 300 are in the page; a click on "more" adds as many again.
 *
 * columns: {title, of: (row) => value, text: (value, row) => text, number: true} */
function makeTable(columns, rows, options) {
  const state = { by: options.by, down: options.down !== false, words: '', n: 300 };
  const body = make('tbody'), more = make('button', { hidden: '' });
  const heads = columns.map((column, i) => make('th', { tabindex: '0', scope: 'col',
    class: column.number ? 'number' : undefined, onclick: () => sortBy(i),
    onkeydown: (e) => { if (e.key === 'Enter') sortBy(i); } }, column.title));
  function sortBy(i) {
    state.down = state.by === i ? !state.down : Boolean(columns[i].number);
    state.by = i;
    fill();
  }
  function fill() {
    let list = rows;
    if (state.words)
      list = rows.filter((row) => columns.some((column) =>
        String(column.of(row)).toLowerCase().includes(state.words)));
    const column = columns[state.by], sign = state.down ? -1 : 1;
    if (column)
      list = list.slice().sort((a, b) => {
        const x = column.of(a), y = column.of(b);
        return sign * (typeof x === 'number' && typeof y === 'number' ? x - y
          : String(x).localeCompare(String(y)));
      });
    heads.forEach((head, i) => head.setAttribute('aria-sort', i !== state.by ? 'none'
      : state.down ? 'descending' : 'ascending'));
    heads.forEach((head, i) => { head.textContent = columns[i].title + (i !== state.by ? ''
      : state.down ? ' ↓' : ' ↑'); });
    body.replaceChildren(...list.slice(0, state.n).map((row) => {
      const line = make('tr', {}, ...columns.map((column) => {
        const value = column.of(row);
        const cell = make('td', { class: column.number ? 'number' : undefined },
          column.text ? column.text(value, row) : String(value));
        if (!column.number) cell.title = String(value);
        return cell;
      }));
      if (options.onpick) line.addEventListener('click', () => options.onpick(row));
      return line;
    }));
    more.hidden = list.length <= state.n;
    more.textContent = `${list.length - state.n} more`;
  }
  more.addEventListener('click', () => { state.n += 300; fill(); });
  fill();
  const node = make('div', { class: 'scroll' },
    make('table', {}, make('thead', {}, make('tr', {}, ...heads)), body), more);
  return { node, search: (words) => { state.words = words; fill(); } };
}
