// Puts the page together: head, the views of this kind of result, assumptions and provenance.

const RESULT = JSON.parse(document.getElementById('result').textContent);

const VIEWS = {
  estimate: (data) => estimateView(data),
  search: (data) => searchView(data),
  sweep: (data) => sweepView(list(data.rows)),
  serve: (data) => servingView(data),
  study: (data) => studyView(data),
  demo: (data) => demoView(list(data.points)),
};

function demoView(points) {
  const host = h('div', { class: 'stack-of-cards' });
  const fill = (index) => host.replaceChildren(...estimateView(points[index]).filter(Boolean));
  if (points.length) fill(0);
  const name = (p) => {
    const request = object(p.request);
    return `${show.plain(request.seq)} × ${show.plain(request.batch)}, ${shape(request.mesh || '')}, ${p.policy}`;
  };
  return [h('section', { class: 'card' }, h('h2', null, 'Points'),
    stackedBars(points.map((p) => ({ name: name(p), note: show.times(p.ratio), parts: boundParts(p.results[0]) })), show.seconds),
    h('p', { class: 'note' }, 'On the first machine; right: how many times faster the second is.'),
    choice('Point', points.map((p, i) => [i, name(p)]), 0, fill)), host];
}

// What was assumed: the question asked, and every field of the policy.
function assumptionsOf(data) {
  const first = object(list(data.results)[0] || list(list(data.points)[0]?.results)[0] || list(object(data.winner).results)[0]);
  const policy = object(first.policy), network = object(first.network_policy);
  const asked = { ...object(data.input), ...Object.fromEntries(Object.entries(data).filter(([k, v]) =>
    ['model', 'phase', 'seq', 'batch', 'format', 'plan', 'policy', 'attention', 'microbatches', 'capacity_factor', 'placement', 'target', 'machine'].includes(k)
      && (typeof v !== 'object'))) };
  const rows = list(data.rows || data.ratios);
  for (const name of DIMENSIONS) { // what all rows of a sweep share
    const own = new Set(rows.map((row) => object(row)[name]));
    if (own.size === 1 && rows[0][name] !== undefined && !(name in asked)) asked[name] = rows[0][name];
  }
  const mesh = object(data.mesh);
  const facts_ = object(object(data.provenance).facts);
  return {
    asked: [...Object.entries(asked).map(([k, v]) => [words(k), typeof v === 'object' ? JSON.stringify(v) : show.plain(v)]),
      ...(mesh.shape ? [['mesh', `${list(mesh.axes).join(', ')} = ${shape(mesh.shape)} (${mesh.devices} devices)`]] : [])],
    summary: policy.summary || '',
    policy: Object.entries(policy).filter(([k]) => !['name', 'summary'].includes(k)).map(([k, v]) => [words(k), show.plain(v)]),
    network: Object.entries(network).filter(([k]) => k !== 'name').map(([k, v]) => [words(k), show.plain(v)]),
    notes: [...list(facts_.notes), ...Object.entries(object(facts_.padding)).map(([k, v]) => `padding, ${words(k)}: ${typeof v === 'number' ? shownAs(k)(v) : show.plain(v)}`),
      ...list(first.marks)],
  };
}

function provenanceOf(data) {
  const made = object(data.provenance);
  const machines = [...list(data.results), ...list(object(data.winner).results), ...list(list(data.points)[0]?.results)];
  const hashes = new Map(machines.filter((r) => r.machine_hash).map((r) => [r.machine, r.machine_hash]));
  const program = object(object(data.program).provenance || object(object(data.winner).program).provenance);
  return [
    ...Object.entries(object(made.versions)).map(([k, v]) => [k, show.plain(v)]),
    ...(made.code ? [['code', made.code]] : []),
    ...Object.entries(program).filter(([k]) => !['jax', 'jaxlib'].includes(k)).map(([k, v]) => [words(k), show.plain(v)]),
    ...[...hashes].map(([name, hash]) => [`machine ${name}`, hash]),
    ...(list(made.command).length ? [['command', made.command.join(' ')]] : []),
  ];
}

function side(data) {
  const a = assumptionsOf(data), p = provenanceOf(data);
  const block = (title, pairs, open) => pairs.length ? h('details', { open }, h('summary', null, title), facts(pairs)) : null;
  const gist = [...a.asked.filter(([k]) => ['policy', 'format', 'plan'].includes(k)).map(([k, v]) => `${k} ${v}`),
    ...p.filter(([k]) => k === 'xla-cost').map(([k, v]) => `${k} ${v}`)].join(' · ') || 'as the file says';
  const wide = matchMedia('(min-width: 1000px)').matches;
  const panel = h('details', { class: 'side', id: 'assumptions', open: wide },
    h('summary', null, h('b', null, 'Assumptions and provenance'), h('span', null, gist)),
    h('div', { class: 'side-body' },
      block('Asked', a.asked, true), a.summary ? h('p', { class: 'summary' }, a.summary) : null,
      a.notes.length ? h('ul', null, a.notes.map((note) => h('li', null, note))) : null,
      block('Policy', a.policy, false), block('Network policy', a.network, false), block('Provenance', p, true)));
  addEventListener('beforeprint', () => panel.querySelectorAll('details').forEach((d) => { d.open = true; }));
  addEventListener('beforeprint', () => { panel.open = true; });
  return panel;
}

function themeButton() {
  const root = document.documentElement;
  const dark = () => root.dataset.theme ? root.dataset.theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
  return h('button', { type: 'button', class: 'theme', 'aria-label': 'Light or dark', title: 'Light or dark',
    onclick: () => { root.dataset.theme = dark() ? 'light' : 'dark'; } }, '◐');
}

function start() {
  const data = RESULT.data;
  const view = VIEWS[RESULT.kind] || ((all) => genericView(all, ['provenance']));
  let content;
  try {
    content = view(data).flat(Infinity).filter(Boolean);
  } catch (error) { // a file from elsewhere may lack anything; what it holds is still shown
    console.error(error);
    content = [h('p', { class: 'card' }, 'This result cannot be drawn as usual; its values follow.'), ...genericView(data, ['provenance']).filter(Boolean)];
  }
  document.getElementById('report').append(
    h('header', null, h('div', null, h('h1', null, RESULT.title)), themeButton()),
    h('div', { class: 'layout' }, h('main', null, content), side(data)), tip);
  document.documentElement.dataset.ready = 'true';
  addEventListener('keydown', (event) => event.key === 'Escape' && hideTip());
}

start();
