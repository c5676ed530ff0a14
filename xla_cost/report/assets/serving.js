// A serving simulation: latencies, throughput, occupancy, and how they went over time.

const LATENCIES = [['ttft_s', 'time to first token'], ['tpot_s', 'time per output token'],
  ['inter_token_s', 'inter-token time'], ['e2e_s', 'end to end'], ['wait_outside_s', 'waiting to be sent']];

function servingView(data) {
  const others = list(data.against).filter((one) => one && one.ttft_s && one.tpot_s && one.e2e_s);
  return [
    others.length ? servingComparison([data, ...others]) : null,
    ...[data, ...others].flatMap((one) => [
      others.length ? h('h2', { class: 'divider' }, one.machine || 'as specified') : null, ...oneServing(one)]),
    list(data.study).length ? section('Changes beside the study', null, dataTable(columnsOf(data.study), data.study, {})) : null,
    ...genericView(Object.fromEntries(['curve_checks', 'pools'].filter((k) => data[k]).map((k) => [k, data[k]]))),
  ];
}

function servingComparison(runs) {
  const rows = [['time to first token, p50', (r) => r.ttft_s.p50], ['time to first token, p99', (r) => r.ttft_s.p99],
    ['time per output token, p50', (r) => r.tpot_s.p50], ['end to end, p50', (r) => r.e2e_s.p50]]
    .filter(([, of]) => runs.every((run) => typeof of(run) === 'number'));
  return section('Machines beside each other', null, rows.map(([name, of]) => [h('h3', null, name),
    stackedBars(runs.map((run, i) => ({ name: run.machine || 'as specified', parts: [[name, of(run), streamColor(i)]] })), show.seconds)]));
}

function oneServing(data) {
  const rest = Object.entries(data).filter(([, v]) => typeof v === 'number' || typeof v === 'string' || v === null);
  const batch = object(data.decode_batch);
  return [
    h('section', { class: 'card top' }, tiles([
      ['time to first token, p50', show.seconds(data.ttft_s.p50), `p99 ${show.seconds(data.ttft_s.p99)}`],
      typeof data.tpot_s.p50 === 'number' ? ['time per output token, p50', show.seconds(data.tpot_s.p50), `p99 ${show.seconds(data.tpot_s.p99)}`] : null,
      ['output tokens/s per GPU', show.plain(data.output_tokens_per_s_per_gpu), `input ${show.plain(data.input_tokens_per_s_per_gpu)}`],
      typeof data.goodput_share === 'number' ? ['requests within SLO', show.share(data.goodput_share), `${show.plain(data.goodput_per_s_per_gpu)} per s and GPU`] : null,
      ['decode batch', show.plain(batch.mean), `at most ${show.plain(batch.max)}`],
    ]), data.bottleneck ? h('p', null, h('b', null, 'What holds it back: '), data.bottleneck, '.') : null),
    section('Latency distributions', 'Logarithmic scale. Bar: median to p90 and to p99; line: to the largest; mark: mean with its 95 % interval.', distributions(data)),
    ...Object.keys(object(data.series)).length ? [section('Over time', 'Averages over short intervals of the whole run.', seriesView(data.series))] : [],
    section('All figures', null, facts(rest.map(([k, v]) => [words(k), v === null ? '–' : shownAs(k)(v)]))),
  ];
}

function distributions(data) {
  const rows = LATENCIES.filter(([key]) => object(data[key]).p99 > 0).map(([key, name]) => ({ name, d: data[key] }));
  const host = h('div');
  sized(host, (width) => {
    const row = 54, height = rows.length * row + 30, pad = 10;
    const all = rows.flatMap(({ d }) => [d.p50, d.mean, d.max || d.p99]).filter((v) => v > 0);
    const [low, high] = decades(Math.min(...all), Math.max(...all));
    const x = (v) => pad + (width - 2 * pad) * Math.log(Math.max(v, low) / low) / Math.log(high / low);
    const out = svg('svg', { width, height, class: 'chart', role: 'img', 'aria-label': 'Latency distributions' });
    const axis = svg('g', { class: 'axis' });
    for (let v = low; v <= high * 1.01; v *= 10) {
      axis.append(svg('line', { x1: x(v), x2: x(v), y1: 0, y2: height - 22 }),
        svg('text', { x: Math.min(Math.max(x(v), 18), width - 22), y: height - 6, 'text-anchor': 'middle' }, show.seconds(v)));
    }
    out.append(axis);
    rows.forEach(({ name, d }, i) => {
      const y = i * row + 34, box = (a, b, color, tall) => svg('rect', { x: x(a), y: y - tall / 2, width: Math.max(1.5, x(b) - x(a)), height: tall, rx: 3, style: { fill: color } });
      const half = d.mean_half_width_95;
      out.append(svg('g', { tabindex: 0, class: 'dist', ...tipped(name, [['mean', show.seconds(d.mean)],
        ['95 % of the mean', typeof half === 'number' ? `± ${show.seconds(half)}` : ''],
        ...['p50', 'p90', 'p99', 'max'].filter((k) => typeof d[k] === 'number').map((k) => [k, show.seconds(d[k])])]) },
      svg('rect', { x: 0, y: i * row + 4, width, height: row - 6, class: 'hit' }),
      svg('text', { x: pad, y: i * row + 17, class: 'label' }, `${name}   p50 ${show.seconds(d.p50)}   p90 ${show.seconds(d.p90)}   p99 ${show.seconds(d.p99)}`),
      d.max > 0 ? svg('line', { x1: x(d.p50), x2: x(d.max), y1: y, y2: y, class: 'whisker' }) : null,
      box(d.p50, d.p99, 'color-mix(in srgb, var(--stream-0) 45%, transparent)', 12), box(d.p50, d.p90, 'var(--stream-0)', 12),
      typeof half === 'number' ? svg('line', { x1: x(Math.max(low, d.mean - half)), x2: x(d.mean + half), y1: y, y2: y, class: 'interval' }) : null,
      svg('circle', { cx: x(d.mean), cy: y, r: 4.5, class: 'mean' })));
    });
    return out;
  });
  return host;
}

function seriesView(series) {
  return h('div', { class: 'small-multiples' }, Object.entries(series).map(([name, points], index) => {
    const host = h('div');
    const rows = list(points).filter((p) => Array.isArray(p) && p.length > 1);
    sized(host, (width) => lineChart(rows, width, name, streamColor(index % 5)));
    return h('figure', null, h('figcaption', null, words(name)), host);
  }));
}

function lineChart(points, width, name, color, print = show.seconds) {
  const height = 130, left = 40, bottom = 20;
  const x1 = Math.max(1e-9, ...points.map((p) => p[0])), y1 = Math.max(...points.map((p) => p[1])) || 1;
  const x = (v) => left + (width - left - 8) * v / x1, y = (v) => 8 + (height - bottom - 8) * (1 - v / y1);
  const out = svg('svg', { width, height, class: 'chart', role: 'img', 'aria-label': words(name) });
  out.append(svg('g', { class: 'axis' }, [0, y1 / 2, y1].map((v) => [svg('line', { x1: left, x2: width - 8, y1: y(v), y2: y(v) }),
    svg('text', { x: left - 4, y: y(v) + 4, 'text-anchor': 'end' }, three(v))]),
  svg('text', { x: left, y: height - 4 }, print(0)), svg('text', { x: width - 8, y: height - 4, 'text-anchor': 'end' }, print(x1))),
  svg('polyline', { class: 'line', style: { stroke: color }, points: points.map(([a, b]) => `${x(a).toFixed(1)},${y(b).toFixed(1)}`).join(' ') }));
  out.addEventListener('pointermove', (event) => {
    const at = (event.clientX - out.getBoundingClientRect().left - left) / (width - left - 8) * x1;
    const near = points.reduce((a, b) => Math.abs(b[0] - at) < Math.abs(a[0] - at) ? b : a, points[0]);
    if (near) showTip(event, words(name), [['at', print(near[0])], ['value', three(near[1])]]);
  });
  out.addEventListener('pointerleave', hideTip);
  return out;
}
