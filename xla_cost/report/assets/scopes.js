// Cost by scope as a flame graph: width is cost, a row per level; click to zoom.

const FLAME_ROW = 26;

function flameView(result) {
  const rows = list(result.scope_tree);
  if (rows.length < 2) return null;
  const measures = {
    latency: ['Adds to latency', (r) => r.compute_s + r.exposed_comm_s, show.seconds],
    compute: ['Compute', (r) => r.compute_s, show.seconds],
    network: ['Network, hidden or not', (r) => r.comm_s, show.seconds],
    flops: ['FLOPs', (r) => r.flops || 0, show.flops],
  };
  const nodes = treeOf(rows);
  const state = { measure: 'latency', root: nodes.get('') };
  const host = h('div', { class: 'flame' });
  const path = h('div', { class: 'crumbs' });
  const redraw = sized(host, draw);
  const open = (node) => { state.root = node; hideTip(); crumbs(); redraw(); };

  function crumbs() {
    const steps = [];
    for (let node = state.root; node; node = node.parent) steps.unshift(node);
    path.replaceChildren(...steps.map((node) => h('button', { type: 'button', onclick: () => open(node) },
      node.path ? node.name : 'whole program')));
  }

  function draw(width) {
    const value = measures[state.measure][1];
    const blocks = [];
    let depth = 0;
    const pending = [[state.root, 0, width, 0]];
    while (pending.length) {
      const [node, x, wide, level] = pending.pop();
      depth = Math.max(depth, level);
      blocks.push(block(node, x, wide, level, value));
      const total = value(node.row) || 1;
      const inside = [];
      let at = x;
      for (const child of [...node.children].sort((a, b) => value(b.row) - value(a.row))) {
        const own = wide * value(child.row) / total;
        if (own >= 1.5) inside.push([child, at, own, level + 1]);
        at += own;
      }
      pending.push(...inside.reverse());
    }
    return svg('svg', { width, height: (depth + 1) * FLAME_ROW, class: 'chart', role: 'img',
      'aria-label': 'Cost by scope' }, blocks);
  }

  function block(node, x, width, level, value) {
    const row = node.row, total = row.compute_s + row.exposed_comm_s;
    const share = total ? row.exposed_comm_s / total : 0;
    const name = node.path ? node.name : 'whole program';
    const text = `${name}  ${measures[state.measure][2](value(row))}`;
    const room = Math.floor((width - 10) / 6.6);
    const all = value(nodes.get('').row) || 1;
    return svg('g', { class: 'flame-block', tabindex: 0, role: 'button', onclick: () => open(node),
      onkeydown: (event) => event.key === 'Enter' && open(node),
      ...tipped(node.path || 'whole program', [['share of all', show.share(value(row) / all)],
        ['compute', show.seconds(row.compute_s)], ['network', show.seconds(row.comm_s)],
        ['exposed network', show.seconds(row.exposed_comm_s)], ['FLOPs', show.flops(row.flops || 0)]]) },
    svg('rect', { x: x + 0.5, y: level * FLAME_ROW + 1, width: Math.max(0.5, width - 1), height: FLAME_ROW - 2, rx: 3,
      style: { fill: `color-mix(in oklab, var(--network) ${(100 * share).toFixed(0)}%, var(--compute))` } }),
    room > 3 ? svg('text', { x: x + 6, y: level * FLAME_ROW + 17 },
      text.length <= room ? text : name.slice(0, room)) : null);
  }

  crumbs();
  return h('div', null, h('div', { class: 'tools' },
    choice('Width shows', Object.entries(measures).map(([k, v]) => [k, v[0]]), 'latency',
      (key) => { state.measure = key; redraw(); }), path),
  h('div', { class: 'scale' }, 'all compute', h('i', { class: 'ramp' }), 'all exposed network'), host);
}

function treeOf(rows) {
  const nodes = new Map();
  for (const row of rows) {
    nodes.set(row.scope, { path: row.scope, name: row.scope.split('/').pop().replace(/^kernel\[(\w+).*$/, '$1'), row, children: [], parent: null });
  }
  if (!nodes.has('')) nodes.set('', { path: '', name: '', row: total(rows), children: [], parent: null });
  for (const node of nodes.values()) {
    if (!node.path) continue;
    let above = node.path;
    do above = above.slice(0, Math.max(0, above.lastIndexOf('/'))); while (above && !nodes.has(above));
    node.parent = nodes.get(above);
    node.parent.children.push(node);
  }
  return nodes;
}

function total(rows) {
  const top = rows.filter((row) => !row.scope.includes('/'));
  const add = (key) => sum(top.map((row) => row[key] || 0));
  return { scope: '', compute_s: add('compute_s'), comm_s: add('comm_s'),
    exposed_comm_s: add('exposed_comm_s'), flops: add('flops') };
}
