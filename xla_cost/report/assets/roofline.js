// Every op against what the machine can do. Two pictures: FLOP/s over FLOP per byte for ops that
// compute, and bytes/s over bytes for all ops, collectives included.

const PLOT = { left: 62, right: 14, top: 12, bottom: 40, height: 380 };

function rooflineView(result) {
  const roofs = object(result.roofs), tasks = rowsOf(result.tasks).filter((t) => t.seconds > 0);
  if (!roofs.memory_bytes_per_s || !tasks.length) return null;
  const computing = tasks.filter((t) => t.kind !== 'collective' && t.flops + (t.vector_flops || 0) > 0 && t.bytes > 0);
  const moving = tasks.filter((t) => t.bytes > 0);
  const pictures = {
    compute: {
      title: `FLOP/s (${computing.length} ops)`, rows: computing, xName: 'FLOP per byte', yName: 'FLOP/s',
      x: (t) => (t.flops + (t.vector_flops || 0)) / t.bytes,
      y: (t) => (t.flops + (t.vector_flops || 0)) / t.seconds,
      xShow: (v) => scaled(v, ['', 'k', 'M', 'G', 'T']).trim(), yShow: show.flopRate, roofs: computeRoofs,
    },
    bytes: {
      title: `bytes/s (all ${moving.length} ops)`, rows: moving, xName: 'bytes per execution', yName: 'bytes/s',
      x: (t) => t.bytes, y: (t) => t.bytes / t.seconds, xShow: show.bytes, yShow: show.byteRate, roofs: byteRoofs,
    },
  };
  const state = { which: computing.length ? 'compute' : 'bytes' };
  const host = h('div', { class: 'roofline' });
  const redraw = sized(host, (width) => plot(pictures[state.which], width));

  function computeRoofs(x0, x1) {
    const used = new Set(computing.filter((t) => t.flops).map((t) => t.format));
    const bandwidth = roofs.memory_bytes_per_s;
    const peaks = Object.entries(object(roofs.peak_flops_per_s)).filter(([f, v]) => v > 0 && (used.has(f) || !used.size));
    return peaks.map(([format, peak]) => ({
      name: `${format}  ${show.flopRate(peak)}`,
      points: [[x0, x0 * bandwidth], [Math.min(peak / bandwidth, x1), Math.min(peak, x1 * bandwidth)], [x1, Math.min(peak, x1 * bandwidth)]],
    }));
  }

  function byteRoofs(x0, x1) {
    const lines = [['memory', roofs.memory_bytes_per_s], ...Object.entries(object(roofs.tier_bytes_per_s))];
    return lines.map(([name, rate]) => ({ name: `${name}  ${show.byteRate(rate)}`, points: [[x0, rate], [x1, rate]] }));
  }

  function plot(picture, width) {
    const { rows, x, y } = picture, height = PLOT.height;
    const xs = rows.map(x), ys = rows.map(y);
    const [x0, x1] = decades(Math.min(...xs), Math.max(...xs));
    const lines = picture.roofs(x0, x1);
    const tops = lines.flatMap((line) => line.points.map((p) => p[1]));
    const [y0, y1] = decades(Math.min(...ys), Math.max(...ys, ...tops));
    const px = (v) => PLOT.left + (width - PLOT.left - PLOT.right) * Math.log(v / x0) / Math.log(x1 / x0);
    const py = (v) => PLOT.top + (height - PLOT.top - PLOT.bottom) * Math.log(y1 / v) / Math.log(y1 / y0);
    const out = svg('svg', { width, height, class: 'chart', role: 'img', 'aria-label': `${picture.yName} over ${picture.xName}` });
    out.append(grid(x0, x1, y0, y1, px, py, width, height, picture));
    const clip = (v) => Math.max(v, y0);
    const taken = [], names = [];
    for (const line of [...lines].sort((a, b) => b.points.at(-1)[1] - a.points.at(-1)[1])) {
      const points = line.points.map(([a, b]) => b < y0 ? [a * y0 / b, y0] : [a, b]);
      out.append(svg('polyline', { class: 'roof', points: points.map(([a, b]) => `${px(a)},${py(clip(b))}`).join(' ') }));
      let at = py(clip(line.points.at(-1)[1])) - 5;
      while (taken.some((t) => Math.abs(t - at) < 12)) at += 12;
      taken.push(at);
      names.push(svg('text', { class: 'roof-name', x: width - PLOT.right - 4, y: Math.max(11, at), 'text-anchor': 'end' }, line.name));
    }
    const weight = (t) => t.seconds * (t.executions || 1), heaviest = Math.max(...rows.map(weight));
    for (const task of [...rows].sort((a, b) => weight(b) - weight(a))) {
      const radius = 3 + 13 * Math.sqrt(weight(task) / heaviest);
      out.append(svg('circle', { class: 'dot', cx: px(x(task)), cy: py(y(task)), r: radius,
        style: { fill: BOUND_COLOR[task.bound] || BOUND_COLOR.compute }, tabindex: 0,
        ...tipped(task.name, [['op', `${task.kind} (${task.opcode})`], ['scope', task.scope], ['format', task.format],
          [picture.xName, picture.xShow(x(task))], [picture.yName, picture.yShow(y(task))],
          ['bound by', task.bound], ['one execution', show.seconds(task.seconds)],
          ['executions', show.count(task.executions)], ['in all', show.seconds(weight(task))]]) }));
    }
    out.append(...names);
    return out;
  }

  return h('div', null,
    h('div', { class: 'tools' }, choice('Picture', Object.entries(pictures).filter(([, p]) => p.rows.length)
      .map(([key, p]) => [key, p.title]), state.which, (key) => { state.which = key; redraw(); })),
    legend([['compute', BOUND_COLOR.compute], ['memory', BOUND_COLOR.memory], ['network', BOUND_COLOR.network], ['latency', BOUND_COLOR.latency]]),
    host, h('p', { class: 'note' }, 'Colour says what bounds an op, area how much of the time it takes in all.'));
}

function decades(low, high) {
  const from = 10 ** Math.floor(Math.log10(Math.max(low, 1e-30)));
  const to = 10 ** Math.ceil(Math.log10(Math.max(high, 1e-30)) + 1e-9);
  return to > from ? [from, to] : [from, from * 10];
}

function grid(x0, x1, y0, y1, px, py, width, height, picture) {
  const group = svg('g', { class: 'axis' });
  const steps = (from, to, most) => {
    const count = Math.round(Math.log10(to / from)), every = Math.max(1, Math.ceil(count / most));
    return Array.from({ length: Math.floor(count / every) + 1 }, (_, i) => from * 10 ** (i * every));
  };
  for (const v of steps(x0, x1, Math.max(3, Math.floor(width / 80)))) {
    group.append(svg('line', { x1: px(v), x2: px(v), y1: PLOT.top, y2: height - PLOT.bottom }),
      svg('text', { x: Math.min(px(v), width - 22), y: height - PLOT.bottom + 15, 'text-anchor': 'middle' }, picture.xShow(v)));
  }
  for (const v of steps(y0, y1, 8)) {
    group.append(svg('line', { x1: PLOT.left, x2: width - PLOT.right, y1: py(v), y2: py(v) }),
      svg('text', { x: PLOT.left - 5, y: py(v) + 4, 'text-anchor': 'end' }, picture.yShow(v).replace('FLOP', 'F')));
  }
  group.append(svg('text', { class: 'axis-name', x: (width + PLOT.left) / 2, y: height - 6, 'text-anchor': 'middle' }, picture.xName));
  return group;
}
