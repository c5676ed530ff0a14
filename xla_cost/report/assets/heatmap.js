// Rows of a sweep as a heat map over two of its dimensions; a click shows the rows of a cell.

const DIMENSIONS = ['model', 'phase', 'seq', 'batch', 'format', 'devices', 'machine', 'policy', 'plan', 'reading', 'swept'];

function sweepView(rows, title = 'Heat map') {
  rows = withRatios(rows);
  const values = (name) => [...new Set(rows.map((row) => row[name]))].filter((v) => v !== undefined && v !== null)
    .sort((a, b) => typeof a === 'number' && typeof b === 'number' ? a - b : String(a).localeCompare(String(b)));
  const varied = DIMENSIONS.filter((name) => values(name).length > 1);
  const measures = Object.keys(rows.reduce((all, row) => Object.assign(all, row), {}))
    .filter((name) => !DIMENSIONS.includes(name) && rows.some((row) => typeof row[name] === 'number'));
  if (!measures.length) return [section(title, null, dataTable(columnsOf(rows), rows, {}))];
  const state = {
    x: varied.includes('devices') ? 'devices' : varied[0] || 'devices',
    measure: measures.includes('ratio') ? 'ratio' : measures.includes('latency_s') ? 'latency_s' : measures[0],
  };
  state.y = varied.find((name) => name !== state.x && name !== 'machine') || varied.find((name) => name !== state.x) || 'machine';
  state.fixed = {};
  const host = h('div', { class: 'heat' }), picks = h('div', { class: 'tools' }), drill = h('div', { 'aria-live': 'polite' });
  const select = (label, options, value, change) => h('label', null, `${label} `, h('select', { onchange: (e) => change(options[e.target.selectedIndex]) },
    options.map((o) => h('option', { selected: o === value }, words(String(o))))));

  function update() {
    for (const name of Object.keys(state.fixed)) if (name === state.x || name === state.y) delete state.fixed[name];
    for (const name of varied) {
      const known = [state.x, state.y, ...varied.filter((other) => other in state.fixed && other !== name)];
      if (name === state.x || name === state.y || known.some((other) => follows(name, other))) delete state.fixed[name];
      else if (!(name in state.fixed)) state.fixed[name] = bestDefault(name);
    }
    picks.replaceChildren(...[
      select('Colour', measures, state.measure, (v) => { state.measure = v; update(); }),
      varied.length ? select('Across', varied, state.x, (v) => { if (v === state.y) state.y = state.x; state.x = v; update(); }) : null,
      varied.length > 1 ? select('Down', varied, state.y, (v) => { if (v === state.x) state.x = state.y; state.y = v; update(); }) : null,
      ...Object.keys(state.fixed).map((name) => select(name, values(name), state.fixed[name], (v) => { state.fixed[name] = v; update(); })),
    ].filter(Boolean));
    host.replaceChildren(map());
    drill.replaceChildren();
  }

  // Whether one value of `other` leaves one value of `name`: the batch of a length, say.
  function follows(name, other) {
    const found = new Map();
    return rows.every((row) => found.has(row[other]) ? found.get(row[other]) === row[name] : found.set(row[other], row[name]));
  }

  function bestDefault(name) {
    const with_ = values(name).find((v) => rows.some((row) => row[name] === v && typeof row[state.measure] === 'number'));
    return with_ ?? values(name)[0];
  }

  function map() {
    const xs = values(state.x), ys = values(state.y);
    const inside = rows.filter((row) => Object.entries(state.fixed).every(([name, v]) => row[name] === v));
    const cell = (x, y) => inside.filter((row) => row[state.x] === x && row[state.y] === y);
    const number = (found) => found.map((row) => row[state.measure]).find((v) => typeof v === 'number');
    const numbers = inside.map((row) => row[state.measure]).filter((v) => typeof v === 'number');
    const positive = numbers.every((v) => v > 0);
    const scale = (v) => positive ? Math.log(v) : v;
    const low = Math.min(...numbers.map(scale)), high = Math.max(...numbers.map(scale));
    const printed = /^(ratio|study_)/.test(state.measure) ? show.times : shownAs(state.measure);
    return h('div', { class: 'scroll' }, h('table', { class: 'map' },
      h('caption', null, `${words(state.measure)}: ${words(state.y)} down, ${words(state.x)} across`),
      h('thead', null, h('tr', null, h('th'), xs.map((x) => h('th', { scope: 'col' }, show.plain(x))))),
      h('tbody', null, ys.map((y) => h('tr', null, h('th', { scope: 'row' }, show.plain(y)), xs.map((x) => {
        const found = cell(x, y), value = number(found);
        if (value === undefined) return h('td', { class: 'empty', title: found.length ? String(found[0].why || '') : 'not swept' }, found.length ? 'none' : '');
        const share = high > low ? (scale(value) - low) / (high - low) : 0.5;
        return h('td', null, h('button', { type: 'button', style: { '--heat': `${(100 * share).toFixed(1)}%` }, class: share > 0.5 ? 'hot' : null,
          onclick: () => open(x, y, found),
          ...tipped(`${words(state.x)} ${x}, ${words(state.y)} ${y}`, () => tipLines(found[0])) }, printed(value)));
      }))))));
  }

  const tipLines = (row) => ['mesh', 'plan', 'latency_s', 'compute_s', 'comm_s', 'exposed_comm_s', 'ratio'].filter((k) => row[k] !== undefined && row[k] !== null)
    .map((k) => [words(k), k === 'ratio' ? show.times(row[k]) : shownAs(k)(row[k])]);

  function open(x, y, found) {
    const related = rows.filter((row) => row[state.x] === x && row[state.y] === y);
    drill.replaceChildren(h('h3', null, `${words(state.x)} ${x}, ${words(state.y)} ${y}`),
      stackedBars(related.filter((r) => typeof r.compute_s === 'number').slice(0, 12).map((r) => ({
        name: Object.keys(state.fixed).map((k) => r[k]).join(' · ') || String(r.machine), note: `${show.seconds(r.latency_s)}${r.mesh ? ` · ${shape(r.mesh)}` : ''}`,
        parts: [['compute', r.compute_s, BOUND_COLOR.compute], ['exposed network', r.exposed_comm_s ?? 0, BOUND_COLOR.network]] })), show.seconds),
      dataTable(columnsOf(related), related, { name: 'points', filter: false }));
    drill.scrollIntoView({ block: 'nearest' });
  }

  update();
  return [section(title, 'Click a cell to see what is behind it.', picks, host, drill),
    section('All points', null, dataTable(columnsOf(rows), rows, { name: 'points', most: 30 }))];
}

// On copper rows the latency over that of the photonic twin at the same point.
function withRatios(rows) {
  if (rows.some((row) => 'ratio' in row)) return rows;
  const key = (row, machine) => JSON.stringify(DIMENSIONS.filter((d) => d !== 'plan').map((d) => d === 'machine' ? machine : row[d]));
  const known = new Map(rows.map((row) => [key(row, row.machine), row]));
  return rows.map((row) => {
    const twin = known.get(key(row, `${row.machine}-photonic`));
    return twin && row.latency_s && twin.latency_s ? { ...row, ratio: row.latency_s / twin.latency_s } : row;
  });
}
