// Sortable, filterable tables.

// columns: {key, title, show?, text?, bar?} where `show(value, row)` is what is printed, `text`
// columns sort as words, and `bar` draws the value's share of the column's maximum behind it.
function dataTable(columns, rows, options = {}) {
  const { most = 50, filter = rows.length > 8, name = 'rows' } = options;
  const state = { key: options.sort || null, down: true, query: '', all: false };
  const body = h('tbody');
  const count = h('span', { class: 'count' });
  const heads = columns.map((column) => h('th', {
    scope: 'col', class: classOf(column), 'aria-sort': 'none',
  }, h('button', { type: 'button', onclick: () => sortBy(column) }, column.title)));
  const maxima = Object.fromEntries(columns.filter((c) => c.bar).map((c) =>
    [c.key, Math.max(0, ...rows.map((row) => Number(row[c.key]) || 0))]));
  const more = h('button', { type: 'button', class: 'more', onclick: () => {
    state.all = !state.all;
    fill();
  } });

  function sortBy(column) {
    state.down = state.key === column.key ? !state.down : !column.text;
    state.key = column.key;
    fill();
  }

  function matches(row) {
    return !state.query || columns.some((c) => printed(c, row).toLowerCase().includes(state.query));
  }

  function printed(column, row) {
    const value = row[column.key];
    return column.show ? String(column.show(value, row)) : show.plain(value);
  }

  function ordered() {
    const found = rows.filter(matches);
    const column = columns.find((c) => c.key === state.key);
    if (!column) return found;
    const sign = state.down ? -1 : 1;
    const value = (row) => row[column.key];
    return found.sort((a, b) => sign * (column.text
      ? printed(column, a).localeCompare(printed(column, b), 'en', { numeric: true })
      : (Number(value(a)) || 0) - (Number(value(b)) || 0)));
  }

  function cell(column, row) {
    const text = printed(column, row);
    const share = column.bar && maxima[column.key] ? (Number(row[column.key]) || 0) / maxima[column.key] : 0;
    return h('td', {
      class: classOf(column), title: text.length > 24 ? text : null,
      style: share > 0 ? { '--share': `${(100 * share).toFixed(1)}%` } : undefined,
    }, column.swatch ? h('i', { class: 'swatch', style: { background: column.swatch(row) } }) : null,
    h('span', { class: share > 0 ? 'bar' : null }, text));
  }

  function fill() {
    const found = ordered();
    const shown = state.all ? found : found.slice(0, most);
    heads.forEach((head, i) => head.setAttribute('aria-sort', columns[i].key !== state.key ? 'none'
      : state.down ? 'descending' : 'ascending'));
    body.replaceChildren(...shown.map((row) => h('tr', {
      class: options.open ? 'opens' : null,
      tabindex: options.open ? 0 : null,
      onclick: () => options.open && options.open(row),
      onkeydown: (event) => event.key === 'Enter' && options.open && options.open(row),
    }, columns.map((column) => cell(column, row)))));
    count.textContent = found.length === rows.length ? `${rows.length} ${name}`
      : `${found.length} of ${rows.length} ${name}`;
    more.hidden = found.length <= most;
    more.textContent = state.all ? `Show the first ${most}` : `Show all ${found.length}`;
  }

  fill();
  const search = filter ? h('input', {
    type: 'search', placeholder: 'Filter', 'aria-label': `Filter ${name}`,
    oninput: (event) => { state.query = event.target.value.trim().toLowerCase(); fill(); },
  }) : null;
  return h('div', { class: 'data' },
    h('div', { class: 'tools' }, search, count),
    h('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': name },
      h('table', null, h('thead', null, h('tr', null, heads)), body)),
    more);
}

// `minor` columns are left out on paper, which does not scroll.
const classOf = (column) => (column.text ? 'text' : 'number') + (column.minor ? ' minor' : '');

// A two-column list of names and values; nested objects one level down.
function facts(pairs) {
  return h('dl', { class: 'facts' }, pairs
    .filter(([, value]) => value !== undefined)
    .map(([name, value]) => h('div', null, h('dt', null, name), h('dd', null, value))));
}

function tiles(entries) {
  return h('div', { class: 'tiles' }, entries.filter(Boolean).map(([name, value, note]) =>
    h('div', { class: 'tile' }, h('span', null, name), h('b', null, value),
      note ? h('small', null, note) : null)));
}
