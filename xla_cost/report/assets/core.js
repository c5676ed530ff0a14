// Elements, numbers as people read them, one tooltip. Data only ever becomes text nodes.

const SVG = 'http://www.w3.org/2000/svg';

// An HTML element. Attributes starting with "on" are listeners; "style" is an object.
const h = (tag, attributes, ...children) => build(document.createElement(tag), attributes, children);
const svg = (tag, attributes, ...children) =>
  build(document.createElementNS(SVG, tag), attributes, children);

function build(element, attributes, children) {
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith('on')) element.addEventListener(key.slice(2), value);
    else if (key === 'style') {
      for (const [name, setting] of Object.entries(value)) element.style.setProperty(name, setting);
    } else element.setAttribute(key, value === true ? '' : String(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return element;
}

const three = (value) => {
  const size = Math.abs(value);
  if (value === Math.round(value) && size < 1000) return String(value);
  return size >= 99.95 ? value.toFixed(0) : size >= 9.995 ? value.toFixed(1) : value.toFixed(2);
};

function scaled(value, units, step = 1000) {
  let index = 0;
  while (index < units.length - 1 && Math.abs(value) >= 0.9995 * step) {
    value /= step;
    index += 1;
  }
  return `${three(value)} ${units[index]}`;
}

const show = {
  seconds: (v) => {
    const size = Math.abs(v);
    if (size < 1e-12) return '0 s'; // what rounding leaves of a difference
    for (const [unit, one] of [['s', 1], ['ms', 1e-3], ['µs', 1e-6]]) {
      if (size >= one) return `${three(v / one)} ${unit}`;
    }
    return `${three(v / 1e-9)} ns`;
  },
  bytes: (v) => scaled(v, ['B', 'kB', 'MB', 'GB', 'TB', 'PB', 'EB']),
  flops: (v) => scaled(v, ['FLOP', 'kFLOP', 'MFLOP', 'GFLOP', 'TFLOP', 'PFLOP', 'EFLOP', 'ZFLOP']),
  flopRate: (v) => `${show.flops(v)}/s`,
  byteRate: (v) => `${show.bytes(v)}/s`,
  joules: (v) => scaled(v, ['J', 'kJ', 'MJ', 'GJ']),
  count: (v) => Number.isInteger(v) ? v.toLocaleString('en-US') : three(v),
  share: (v) => `${(100 * v).toFixed(Math.abs(v) < 0.0995 ? 1 : 0)} %`,
  times: (v) => `${v.toFixed(2)}×`,
  plain: (v) => {
    if (v === null || v === undefined || v === '') return '–';
    if (typeof v === 'boolean') return v ? 'yes' : 'no';
    if (typeof v === 'number') return Number.isInteger(v) ? show.count(v) : String(+v.toPrecision(4));
    if (Array.isArray(v)) return v.map(show.plain).join(', ') || 'none';
    return typeof v === 'object' ? JSON.stringify(v) : String(v);
  },
};

// How a field of a result file is shown, told by the unit in its name.
function shownAs(name) {
  if (/_bytes_per_s$/.test(name)) return show.byteRate;
  if (/(_s|^seconds)$/.test(name) && !/_per_s$/.test(name)) return show.seconds;
  if (/bytes$/.test(name)) return show.bytes;
  if (/flops$/.test(name)) return show.flops;
  if (/_j$/.test(name)) return show.joules;
  if (/share$|utilisation$|coverage|deviation$/.test(name)) return show.share;
  return show.plain;
}

const list = (value) => Array.isArray(value) ? value : [];
const object = (value) => value && typeof value === 'object' && !Array.isArray(value) ? value : {};
const sum = (values) => values.reduce((total, value) => total + value, 0);
const words = (name) => name.replace(/(?<!_per)_(s|j)$/, '').replaceAll('_', ' ');
const shape = (mesh) => Array.isArray(mesh) ? mesh.join('×') : String(mesh);

// Columns of equal length as a list of objects.
function rowsOf(columns) {
  const names = Object.keys(object(columns)).filter((name) => Array.isArray(columns[name]));
  const count = Math.max(0, ...names.map((name) => columns[name].length));
  return Array.from({ length: count }, (_, i) =>
    Object.fromEntries(names.map((name) => [name, columns[name][i]])));
}

// Colour of a stream: compute, then the tiers from the inside out.
const streamColor = (index) => `var(--stream-${Math.min(index, 4)})`;
const BOUND_COLOR = {
  compute: 'var(--compute)', memory: 'var(--memory)', network: 'var(--network)',
  latency: 'var(--latency)', nothing: 'var(--latency)',
};

const tip = h('div', { class: 'tip', role: 'tooltip', hidden: true });

// Shows `lines` ([name, value] pairs; the first is the title) near the pointer or the element.
function showTip(event, title, lines) {
  tip.replaceChildren(
    h('strong', null, title),
    h('dl', null, lines.filter(([, v]) => v !== '' && v !== null && v !== undefined)
      .map(([k, v]) => [h('dt', null, k), h('dd', null, v)])));
  tip.hidden = false;
  const box = event.target.getBoundingClientRect();
  const x = event.clientX ?? box.left + Math.min(box.width, 200) / 2;
  const y = event.clientY ?? box.bottom;
  const own = tip.getBoundingClientRect();
  const left = x + 14 + own.width > innerWidth ? x - 14 - own.width : x + 14;
  const top = y + 14 + own.height > innerHeight ? y - 14 - own.height : y + 14;
  tip.style.setProperty('left', `${Math.max(6, left)}px`);
  tip.style.setProperty('top', `${Math.max(6, top)}px`);
}

const hideTip = () => { tip.hidden = true; };

// Listeners that show a tip on hover, touch and keyboard focus.
function tipped(title, lines) {
  const open = (event) => showTip(event, title, typeof lines === 'function' ? lines() : lines);
  return { onpointermove: open, onpointerdown: open, onpointerleave: hideTip,
    onfocus: open, onblur: hideTip };
}

// A titled block of the report.
function section(title, note, ...children) {
  return h('section', { class: 'card' },
    h('h2', null, title), note ? h('p', { class: 'note' }, note) : null, children);
}

// Buttons of which one is pressed; `choose(value)` is called on a change.
function choice(label, options, value, choose) {
  const buttons = options.map(([key, text]) => h('button', {
    type: 'button', 'aria-pressed': String(key === value),
    onclick: (event) => {
      buttons.forEach((b) => b.setAttribute('aria-pressed', String(b === event.currentTarget)));
      choose(key);
    },
  }, text));
  return h('div', { class: 'choice', role: 'group', 'aria-label': label }, buttons);
}

// Redraws when the width of `host` changes: `draw(width)` returns the new content.
function sized(host, draw) {
  let width = 0;
  const redraw = () => { if (width) host.replaceChildren(draw(width)); };
  new ResizeObserver((entries) => {
    const now = Math.floor(entries[0].contentRect.width);
    // in the next frame: a new height must not change sizes while they are being told
    if (now && now !== width) { width = now; requestAnimationFrame(redraw); }
  }).observe(host);
  return redraw;
}
