// The reference study reproduced: ratios, how far each is off, what remains when assumptions
// become realistic, and how much each parameter matters.

function studyView(data) {
  const ratios = list(data.ratios);
  const known = ratios.filter((row) => typeof row.deviation === 'number');
  const off = known.map((row) => Math.abs(row.deviation)).sort((a, b) => a - b);
  return [
    h('section', { class: 'card top' }, tiles([
      ['cells', show.count(ratios.length), `${known.length} with a published ratio`],
      off.length ? ['median deviation', show.share(off[Math.floor(off.length / 2)]), 'of the ratio, without its sign'] : null,
      off.length ? ['largest deviation', show.share(off.at(-1)), ''] : null,
      ['within 5 %', show.count(off.filter((v) => v <= 0.05).length), `of ${off.length}`]])),
    ...list(data.waterfalls).map(waterfall),
    ...(ratios.length ? sweepView(ratios, 'Ratios, copper over photons') : []),
    ...list(data.sensitivity).map(sensitivity),
    list(data.components).length ? section('Components beside the study', null,
      dataTable(columnsOf(data.components), data.components, { name: 'components' })) : null,
    ...(list(data.sweeps).length ? sweepView(data.sweeps, 'Sweeps') : []),
    ...genericView(data, ['kind', 'ratios', 'waterfalls', 'sensitivity', 'components', 'sweeps', 'files', 'provenance']),
  ];
}

function waterfall(entry) {
  const bars = list(entry.bars).filter((bar) => typeof bar.ratio === 'number');
  const groups = [...new Set(bars.map((bar) => bar.how))];
  return section(`What remains of the ratio: ${entry.machine}, ${entry.point}`, 'Each assumption made realistic, alone and on top of those above it.',
    groups.map((how) => [h('h3', null, how), stackedBars(bars.filter((bar) => bar.how === how).map((bar) => ({
      name: bar.step, note: show.times(bar.ratio), parts: [['ratio', bar.ratio, 'var(--stream-0)']] })), show.times)]));
}

function sensitivity(entry) {
  const samples = list(entry.samples).filter((s) => typeof s.ratio === 'number' && typeof s.value === 'number');
  const names = [...new Set(samples.map((s) => s.parameter))];
  return section(`Sensitivity: ${entry.machine}, ${entry.point}`, 'The ratio over one parameter at a time.',
    h('div', { class: 'small-multiples' }, names.map((name, index) => {
      const host = h('div');
      const points = samples.filter((s) => s.parameter === name).map((s) => [s.value, s.ratio]).sort((a, b) => a[0] - b[0]);
      sized(host, (width) => lineChart(points, width, name, streamColor(index % 5), three));
      return h('figure', null, h('figcaption', null, name), host);
    })));
}
