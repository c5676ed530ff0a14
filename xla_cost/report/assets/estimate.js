// An estimate: ratio, breakdown, timeline, scopes, collectives, roofline, ops, memory, energy.

const boundParts = (result) => {
  const bound = object(result.bound_s);
  if (!Object.keys(bound).length) {
    return [['compute', result.compute_s, BOUND_COLOR.compute],
      ['exposed network', result.exposed_comm_s, BOUND_COLOR.network]];
  }
  const names = { compute: 'compute-bound kernels', memory: 'memory-bound kernels', latency: 'launches', network: 'exposed network' };
  return Object.entries(names).map(([key, name]) => [name, Number(bound[key]) || 0, BOUND_COLOR[key]]);
};

function estimateView(answer) {
  const results = list(answer.results);
  if (!results.length) return [];
  return [
    headline(answer, results),
    section('Where the time goes', 'Latency by what bounds it. Network that computing hides costs no latency and is not in the bar.',
      stackedBars(results.map((r) => ({ name: r.machine, parts: boundParts(r) })), show.seconds)),
    results.length > 1 ? differenceView(answer, results) : null,
    perMachine(results),
    programView(answer),
  ];
}

function headline(answer, results) {
  const [first, second] = results;
  const split = Object.entries(object(answer.ratio_split)).filter(([, v]) => Math.abs(v - 1) > 5e-4);
  const compared = second ? h('div', { class: 'hero' },
    h('div', { class: 'ratio' }, show.times(answer.ratio)),
    h('div', null,
      h('p', null, h('b', null, second.machine), answer.ratio >= 1 ? ' is faster than ' : ' is slower than ', h('b', null, first.machine)),
      split.length ? h('p', { class: 'factors' }, split.map(([name, value], i) => [
        i ? ' × ' : '= ', h('span', { class: 'factor' }, `${name} ${show.times(value)}`)])) : null)) : null;
  return h('section', { class: 'card top' }, compared, results.map((r) => h('div', { class: 'machine' },
    results.length > 1 ? h('h3', null, r.machine) : null,
    tiles([
      ['latency', show.seconds(r.latency_s), r.bound_by ? `bound by ${r.bound_by}` : ''],
      ['compute', show.seconds(r.compute_s), `${show.share(r.compute_s / (r.latency_s || 1))} of latency`],
      ['network', show.seconds(r.comm_s), Object.entries(object(r.comm_s_by_tier)).map(([t, v]) => `${t} ${show.seconds(v)}`).join(', ')],
      ['exposed network', show.seconds(r.exposed_comm_s), r.comm_s ? `${show.share(r.exposed_comm_s / r.comm_s)} of network` : ''],
      ['memory', show.bytes(needed(r.memory)), `${r.memory.fits ? 'fits in' : 'DOES NOT FIT in'} ${show.bytes(r.memory.capacity_bytes)}`],
      typeof r.energy_j === 'number' ? ['energy per device', show.joules(r.energy_j), ''] : null,
    ]))));
}

const needed = (m) => m.weights_bytes + m.kv_cache_bytes + m.peak_activation_bytes;

function differenceView(answer, results) {
  const rows = list(answer.difference).filter((row) => Math.abs(row.saved_s) > 1e-6 * results[0].latency_s);
  if (!rows.length) return null;
  return section(`Where ${results[1].machine} saves time`, `Seconds of latency, by part of the model; to the left what it loses.`,
    differences(rows.slice(0, 12).map((row) => [row.scope, row.saved_s]), show.seconds, 'saved', 'lost'));
}

// Everything that exists once per machine, with a choice of the machine.
function perMachine(results) {
  const host = h('div', { class: 'stack-of-cards' });
  const fill = (index) => host.replaceChildren(...detailsOf(results[index]).filter(Boolean));
  fill(0);
  return h('div', { class: 'stack-of-cards' },
    results.length > 1 ? h('div', { class: 'pick' }, 'Details of ', choice('Machine', results.map((r, i) => [i, r.machine]), 0, fill)) : null, host);
}

function detailsOf(result) {
  const timeline = result.timeline ? timelineView(result) : null;
  const flame = flameView(result);
  const roofline = result.roofs ? rooflineView(result) : null;
  return [
    timeline ? section('Timeline', `Streams of one device of ${result.machine}.`, timeline) : null,
    section('Cost by part of the model', 'What each part adds to the latency.', partsTable(result)),
    flame ? section('Cost by scope', 'Every named scope of the program, down to single ops. Click to zoom in.', flame) : null,
    list(result.collectives).length ? section('Collectives', 'All executions; payload is what one device gives to one execution.', collectivesTable(result)) : null,
    roofline ? section('Roofline', null, roofline) : null,
    result.tasks || result.ops ? section('Ops', 'Kernels and collectives; seconds of one execution and of all.', opsTable(result)) : null,
    section('Memory and energy', 'Per device.', memoryAndEnergy(result)),
    list(result.warnings).length ? section('Warnings', null, h('ul', { class: 'warnings' }, result.warnings.map((w) => h('li', null, w)))) : null,
  ];
}

function partsTable(result) {
  const rows = list(result.by_scope).map((row) => ({ ...row, critical: row.compute_s + row.exposed_comm_s }));
  const all = sum(rows.map((row) => row.critical)) || 1;
  return dataTable([
    { key: 'scope', title: 'Part', text: true },
    { key: 'critical', title: 'Adds to latency', show: show.seconds, bar: true },
    { key: 'share', title: 'Share', show: show.share },
    { key: 'compute_s', title: 'Compute', show: show.seconds },
    { key: 'comm_s', title: 'Network', show: show.seconds },
    { key: 'exposed_comm_s', title: 'Exposed', show: show.seconds },
  ], rows.map((row) => ({ ...row, share: row.critical / all })), { sort: 'critical', name: 'parts', most: 20 });
}

function collectivesTable(result) {
  const rows = result.collectives.map((c) => ({ ...c,
    groups: c.groups || 0, group: `${c.groups || '?'} × ${c.group_size || '?'}`,
    tiers: [...new Set(list(c.phases).map((p) => p.tier))].join(' + ') }));
  return dataTable([
    { key: 'kind', title: 'Kind', text: true },
    { key: 'seconds', title: 'Seconds', show: show.seconds, bar: true },
    { key: 'scope', title: 'Scope', text: true },
    { key: 'exposed_s', title: 'Exposed', show: (v) => show.seconds(v || 0) },
    { key: 'executions', title: 'Times', show: (v) => show.count(v || 0) },
    { key: 'payload_bytes', title: 'Payload', show: (v) => show.bytes(v || 0) },
    { key: 'group', title: 'Groups', text: true },
    { key: 'tiers', title: 'Tiers', text: true },
    { key: 'algorithm', title: 'Algorithm', text: true },
    { key: 'format', title: 'Format', text: true, minor: true },
    { key: 'source', title: 'Source', text: true, minor: true },
    { key: 'name', title: 'Name', text: true, minor: true },
  ], rows, { sort: 'seconds', name: 'collectives', filter: true });
}

function opsTable(result) {
  const tasks = result.tasks ? rowsOf(result.tasks).map((t) => ({ ...t, all: t.seconds * t.executions }))
    : result.ops.map((o) => ({ ...o, all: o.seconds, seconds: o.seconds / (o.executions || 1) }));
  return dataTable([
    { key: 'name', title: 'Op', text: true, swatch: (row) => BOUND_COLOR[row.bound] || BOUND_COLOR.latency },
    { key: 'all', title: 'Seconds in all', show: show.seconds, bar: true },
    { key: 'scope', title: 'Scope', text: true },
    { key: 'kind', title: 'Kind', text: true, minor: true },
    { key: 'executions', title: 'Times', show: show.count },
    { key: 'seconds', title: 'Seconds each', show: show.seconds },
    { key: 'bound', title: 'Bound by', text: true },
    { key: 'flops', title: 'FLOPs each', show: (v) => v ? show.flops(v) : '–' },
    { key: 'bytes', title: 'Bytes each', show: (v) => show.bytes(v || 0) },
    { key: 'format', title: 'Format', text: true, minor: true, show: (v) => v || '–' },
    { key: 'source', title: 'Source', text: true, minor: true, show: (v) => v || '–' },
  ], tasks, { sort: 'all', name: 'ops', most: 25, filter: true });
}

function memoryAndEnergy(result) {
  const m = result.memory, energy = object(result.energy);
  const network = Object.entries(object(energy.network_j));
  return h('div', { class: 'pair' },
    stackedBars([{ name: 'memory', limit: m.capacity_bytes, note: `${show.bytes(needed(m))} of ${show.bytes(m.capacity_bytes)}`,
      parts: [['weights', m.weights_bytes, 'var(--stream-0)'], ['KV cache', m.kv_cache_bytes, 'var(--stream-1)'],
        ['activations at the peak', m.peak_activation_bytes, 'var(--stream-2)']] }], show.bytes, { limit: 'capacity' }),
    typeof energy.compute_j === 'number' ? stackedBars([{ name: 'energy', parts: [
      ['compute', energy.compute_j, 'var(--stream-0)'],
      ...network.map(([tier, v], i) => [tier, Number(v) || 0, streamColor(i + 1)]),
      ['static', Number(energy.static_j) || 0, 'var(--latency)']] }], show.joules) : null);
}

function programView(answer) {
  const program = object(answer.program);
  const unpriced = list(program.unpriced);
  const flops = Object.entries(object(program.flops_by_format));
  if (!flops.length && !unpriced.length) return null;
  return section('The program', 'What is computed, on any machine: one device, one execution.',
    facts([...flops.map(([f, v]) => [`matrix FLOPs in ${f}`, show.flops(v)]),
      ['arguments', program.parameter_bytes === undefined ? undefined : show.bytes(program.parameter_bytes)],
      ['instructions understood', typeof program.coverage === 'number' ? show.share(program.coverage) : undefined],
      ['loops', list(program.loops).map((l) => `${l.name} × ${l.trips ?? 'unknown'}`).join(', ') || 'none']]),
    unpriced.length ? dataTable(columnsOf(unpriced), unpriced, { name: 'unpriced ops' }) : h('p', { class: 'note' }, 'Every op is priced.'));
}
