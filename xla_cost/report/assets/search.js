// A search: the ranking, why the winner wins, what was rejected, and the winner in full.

function searchView(data) {
  const winner = data.winner ? estimateView(data.winner) : [];
  return [
    searchHead(data),
    rankingView(data, data.machine),
    data.against ? rankingView(data.against, data.against.machine) : null,
    winner.length ? h('h2', { class: 'divider' }, 'The winner in full') : null,
    ...winner,
  ];
}

function searchHead(data) {
  const best = list(data.best)[0], other = data.against && list(data.against.best)[0];
  return h('section', { class: 'card top' },
    best && other ? h('div', { class: 'hero' }, h('div', { class: 'ratio' }, show.times(best.latency_s / other.latency_s)),
      h('div', null, h('p', null, 'the best mesh of ', h('b', null, data.against.machine), ' against the best of ', h('b', null, data.machine)),
        h('p', { class: 'factors' }, `${shape(best.mesh)} takes ${show.seconds(best.latency_s)}; ${shape(other.mesh)} takes ${show.seconds(other.latency_s)}`))) : null,
    tiles([
      best ? ['best mesh', shape(best.mesh), `plan ${best.plan}`] : ['best mesh', 'none', 'nothing fits'],
      best ? ['latency', show.seconds(best.latency_s), `compute ${show.seconds(best.compute_s)}, network ${show.seconds(best.comm_s)}`] : null,
      ['candidates', show.count(data.candidates), counted(data)],
      typeof data.elapsed_s === 'number' ? ['took', show.seconds(data.elapsed_s), `${data.lowered ?? 0} partitioned, ${data.from_cache ?? 0} from the cache`] : null,
    ]));
}

// Every candidate is in one count; older files have none.
function counted(data) {
  const counts = Object.entries(data.counts || {}).filter(([, count]) => count);
  return counts.length ? counts.map(([name, count]) => `${count} ${name.replaceAll('_', ' ')}`).join(', ') : `${data.evaluated} priced`;
}

function rankingView(data, machine) {
  const best = list(data.best).map((row, i) => ({ ...row, rank: i + 1, mesh: shape(row.mesh),
    exposed_comm_s: row.exposed_comm_s ?? Math.max(0, row.latency_s - row.compute_s) }));
  const rejected = list(data.rejected).map((row) => ({ ...row, mesh: shape(row.mesh) }));
  const why = list(data.why).map((row) => [row.part, row.runner_up_s - row.winner_s]).filter(([, v]) => v);
  return section(`Ranking${machine ? ` on ${machine}` : ''}`, 'Fastest first; axes x, y, z.',
    stackedBars(best.slice(0, 15).map((row) => ({ name: `${row.rank}.  ${row.mesh}`,
      note: `${show.seconds(row.latency_s)} · ${row.plan}${row.microbatches > 1 ? ` · ${row.microbatches} microbatches` : ''}`,
      parts: [['compute', row.compute_s, BOUND_COLOR.compute], ['exposed network', row.exposed_comm_s, BOUND_COLOR.network]] })), show.seconds),
    dataTable([
      { key: 'rank', title: '#' }, { key: 'mesh', title: 'Mesh', text: true }, { key: 'plan', title: 'Plan', text: true },
      { key: 'placement', title: 'Order', text: true }, { key: 'microbatches', title: 'Microbatches' },
      { key: 'latency_s', title: 'Latency', show: show.seconds, bar: true }, { key: 'compute_s', title: 'Compute', show: show.seconds },
      { key: 'comm_s', title: 'Network', show: show.seconds }, { key: 'exposed_comm_s', title: 'Exposed', show: show.seconds },
      { key: 'fits', title: 'Fits', text: true },
    ], best, { name: 'meshes' }),
    why.length ? [h('h3', null, 'Why the first beats the second'), differences(why.slice(0, 10), show.seconds, 'saved by the winner', 'lost by the winner')] : null,
    rejected.length ? h('details', null, h('summary', null, `${rejected.length} rejected, with reasons`),
      dataTable([{ key: 'mesh', title: 'Mesh', text: true }, { key: 'plan', title: 'Plan', text: true }, { key: 'why', title: 'Why', text: true }],
        rejected, { name: 'rejected meshes' })) : null);
}
