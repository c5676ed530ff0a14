// What runs when: one lane per stream and one for the loops. Drag to zoom, hover to read.

const LANE = 38, LOOP_LANE = 22, AXIS = 24;

function timelineView(result) {
  const timeline = object(result.timeline);
  const streams = list(timeline.streams);
  const tasks = rowsOf(result.tasks);
  const events = rowsOf(timeline.events).filter((e) => tasks[e.task] && streams[e.stream] !== undefined);
  const loops = list(timeline.loops);
  if (!events.length) return null;
  const end = Math.max(timeline.latency_s, ...events.map((e) => e.end_s));
  const collectives = new Map(list(result.collectives).map((c) => [c.name, c]));
  const view = { from: 0, to: end };
  const host = h('div', { class: 'timeline', tabindex: 0, role: 'application',
    'aria-label': 'Timeline; arrow keys move, plus and minus zoom', onkeydown: key });
  const where = h('span', { class: 'count' });
  const redraw = sized(host, draw);

  const go = (from, to) => {
    const width = Math.min(end, Math.max(to - from, end * 1e-7));
    view.from = Math.max(0, Math.min(from, end - width));
    view.to = view.from + width;
    hideTip();
    redraw();
  };
  const zoom = (factor, at = (view.from + view.to) / 2) =>
    go(at - (at - view.from) * factor, at + (view.to - at) * factor);
  const move = (share) => go(view.from + share * (view.to - view.from), view.to + share * (view.to - view.from));

  function key(event) {
    const acts = { '+': () => zoom(0.5), '=': () => zoom(0.5), '-': () => zoom(2), '0': () => go(0, end),
      ArrowLeft: () => move(-0.25), ArrowRight: () => move(0.25) };
    if (acts[event.key]) { acts[event.key](); event.preventDefault(); }
  }

  function describe(event) {
    const task = tasks[event.task], stream = streams[event.stream];
    const collective = collectives.get(task.name);
    const phase = collective && list(collective.phases).find((p) => p.tier === stream);
    return [
      ['op', task.opcode], ['scope', task.scope], ['runs from', show.seconds(event.start_s)],
      ['takes', show.seconds(event.end_s - event.start_s)],
      ['executions', show.count(task.executions)],
      ['bound by', task.bound], ['format', task.format],
      ['FLOPs', task.flops ? show.flops(task.flops) : ''],
      ['bytes', show.bytes(task.bytes)],
      ['group', task.group_size ? `${task.groups} × ${task.group_size} devices` : ''],
      ['tier', task.kind === 'collective' ? stream : ''], ['algorithm', task.algorithm],
      ['on this tier', phase ? `${show.bytes(phase.bytes)}, ${phase.what}` : ''], ['source', task.source],
    ];
  }

  function draw(width) {
    const lanes = loops.length ? LOOP_LANE : 0;
    const height = lanes + streams.length * LANE + AXIS;
    const scale = width / (view.to - view.from);
    const x = (t) => (t - view.from) * scale;
    const picture = svg('svg', { width, height, class: 'chart', role: 'img',
      'aria-label': `${events.length} events on ${streams.length} streams` });
    picture.append(axis(width, height, x), ...loopMarks(width, x, height));
    streams.forEach((name, index) => picture.append(lane(name, index, lanes + index * LANE, width, x)));
    picture.append(dragging(picture, width, height, scale));
    where.textContent = `${show.seconds(view.from)} to ${show.seconds(view.to)} of ${show.seconds(end)}`;
    return picture;
  }

  function axis(width, height, x) {
    const group = svg('g', { class: 'axis' });
    for (const t of niceTicks(view.from, view.to, Math.max(2, Math.floor(width / 110)))) {
      group.append(svg('line', { x1: x(t), x2: x(t), y1: 0, y2: height - AXIS + 4 }),
        svg('text', { x: Math.min(x(t) + 3, width - 44), y: height - 7 }, show.seconds(t)));
    }
    return group;
  }

  function loopMarks(width, x) {
    return loops.filter((loop) => loop.end_s > view.from && loop.start_s < view.to).map((loop) => {
      const left = Math.max(0, x(loop.start_s)), right = Math.min(width, x(loop.end_s));
      const name = `${loop.scope || loop.name} × ${loop.trips}`;
      const wide = right - left;
      return svg('g', { class: 'loop', tabindex: 0, role: 'button',
        onclick: () => go(loop.start_s, loop.start_s + Math.max(1, loop.drawn || 1) * loop.iteration_s),
        ...tipped(name, [['all trips', show.seconds(loop.end_s - loop.start_s)],
          ['one more trip', show.seconds(loop.iteration_s)],
          ['drawn', `${loop.drawn || 1} of ${loop.trips}`], ['click', 'to see one trip']]) },
      svg('rect', { x: left, y: 2, width: Math.max(1, wide - 1), height: LOOP_LANE - 6, rx: 4 }),
      wide > 7 * name.length + 8 ? svg('text', { x: left + 6, y: 14 }, name) : null);
    });
  }

  function lane(name, index, top, width, x) {
    const group = svg('g', { class: 'lane' });
    group.append(svg('rect', { class: 'lane-back', x: 0, y: top, width, height: LANE - 4 }));
    for (const loop of loops) { // trips that are not drawn
      const from = loop.start_s + Math.max(1, loop.drawn || 1) * loop.iteration_s;
      const left = Math.max(0, x(from)), right = Math.min(width, x(loop.end_s));
      if (right > left + 1) {
        group.append(svg('rect', { class: 'repeat', x: left, y: top, width: right - left, height: LANE - 4 }));
      }
    }
    // events too thin to see are drawn together with their neighbours, until one zooms in
    let crowd = null;
    const flush = () => { if (crowd) group.append(crowdBlock(crowd, top)); crowd = null; };
    for (const event of events) {
      if (event.stream !== index || event.end_s <= view.from || event.start_s >= view.to) continue;
      const left = Math.max(0, x(event.start_s)), right = Math.min(width, x(event.end_s));
      if (right - left >= 1.5) {
        flush();
        group.append(block(event, left, right - left, top));
      } else if (crowd && left - crowd.right < 0.5) {
        crowd.right = Math.max(crowd.right, right);
        crowd.events.push(event);
      } else {
        flush();
        crowd = { left, right, events: [event] };
      }
    }
    flush();
    group.append(svg('text', { class: 'lane-name', x: 6, y: top + 12 }, name));
    return group;
  }

  function colorOf(event) {
    return event.stream ? streamColor(event.stream) : BOUND_COLOR[tasks[event.task].bound] || BOUND_COLOR.compute;
  }

  function crowdBlock({ left, right, events: all }, top) {
    if (all.length === 1) return block(all[0], left, Math.max(0.8, right - left), top);
    const longest = all.reduce((a, b) => b.end_s - b.start_s > a.end_s - a.start_s ? b : a);
    return svg('g', { class: 'event', ...tipped(`${all.length} events`, () => [
      ['from', show.seconds(all[0].start_s)], ['to', show.seconds(all.at(-1).end_s)],
      ['longest', tasks[longest.task].name], ['scope', tasks[longest.task].scope], ['zoom in', 'to see each']]) },
    svg('rect', { class: 'thin', x: left, y: top + 15, width: Math.max(0.8, right - left), height: LANE - 20, fill: colorOf(longest) }));
  }

  function block(event, left, width, top) {
    const task = tasks[event.task];
    const color = colorOf(event);
    const label = (task.scope.split('/').pop() || task.name).replace(/^kernel\[(\w+).*$/, '$1');
    const short = width > 34 ? label.slice(0, Math.floor((width - 8) / 6.4)) : '';
    return svg('g', { class: 'event', tabindex: width > 3 ? 0 : null, ...tipped(task.name, () => describe(event)) },
      svg('rect', { class: width < 3 ? 'thin' : null, x: left, y: top + 15, width, height: LANE - 20, fill: color, rx: width > 6 ? 2 : 0 }),
      short ? svg('text', { x: left + 4, y: top + 28 }, short) : null);
  }

  function dragging(picture, width, height, scale) {
    const mark = svg('rect', { class: 'selection', y: 0, height: height - AXIS, width: 0, visibility: 'hidden' });
    let start = null;
    const at = (event) => event.clientX - picture.getBoundingClientRect().left;
    picture.addEventListener('pointerdown', (event) => { if (event.pointerType === 'mouse') start = at(event); });
    picture.addEventListener('pointermove', (event) => {
      if (start === null) return;
      const now = at(event);
      mark.setAttribute('visibility', 'visible');
      mark.setAttribute('x', Math.min(start, now));
      mark.setAttribute('width', Math.abs(now - start));
    });
    const stop = (event) => {
      if (start === null) return;
      const [a, b] = [start, at(event)].sort((p, q) => p - q);
      start = null;
      mark.setAttribute('visibility', 'hidden');
      if (b - a > 5) go(view.from + a / scale, view.from + b / scale);
    };
    picture.addEventListener('pointerup', stop);
    picture.addEventListener('pointerleave', stop);
    picture.addEventListener('dblclick', () => go(0, end));
    picture.addEventListener('wheel', (event) => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      zoom(event.deltaY > 0 ? 1.25 : 0.8, view.from + at(event) / scale);
    }, { passive: false });
    return mark;
  }

  const longest = loops.reduce((a, b) => !a || b.end_s - b.start_s > a.end_s - a.start_s ? b : a, null);
  const oneTrip = (loop) => go(loop.start_s, loop.start_s + Math.max(1, loop.drawn || 1) * loop.iteration_s);
  if (longest && longest.end_s - longest.start_s > 0.5 * end) oneTrip(longest);
  const button = (text, label, act) => h('button', { type: 'button', 'aria-label': label, title: label, onclick: act }, text);
  return h('div', null,
    h('div', { class: 'tools' },
      h('div', { class: 'choice' }, button('Whole run', 'Whole run', () => go(0, end)),
        loops.slice(0, 6).filter((l) => l.trips > 1).map((loop) => button(
          `One trip of ${(loop.scope || loop.name).split('/').pop()}`, 'One trip of this loop', () => oneTrip(loop)))),
      h('div', { class: 'choice' }, button('+', 'Zoom in', () => zoom(0.5)), button('−', 'Zoom out', () => zoom(2)),
        button('◀', 'Earlier', () => move(-0.5)), button('▶', 'Later', () => move(0.5))), where),
    legend([['compute-bound kernel', BOUND_COLOR.compute], ['memory-bound', BOUND_COLOR.memory],
      ['launch', BOUND_COLOR.latency], ...streams.slice(1).map((name, i) => [name, streamColor(i + 1)])]),
    host,
    h('p', { class: 'note' }, 'Drag to zoom, double-click for all, Ctrl and wheel or + and − to zoom. ',
      loops.length ? 'Of a loop the trips that were scheduled are drawn; hatched: the same again.' : '',
      timeline.events_left_out ? ` ${timeline.events_left_out} shorter events are left out.` : ''));
}

function niceTicks(from, to, count) {
  const raw = (to - from) / count, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= raw) || power * 10;
  const found = [];
  for (let t = Math.ceil(from / step) * step; t <= to && found.length < 100; t += step) found.push(t);
  return found;
}
