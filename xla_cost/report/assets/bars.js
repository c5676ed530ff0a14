// Bars that share one scale: stacked shares, and differences to both sides of zero.

function legend(entries) {
  return h('div', { class: 'legend' }, entries.map(([name, color]) =>
    h('span', null, h('i', { class: 'swatch', style: { background: color } }), name)));
}

// rows: [{name, note, parts: [[part, value, color]], limit?}]; `print` shows a value.
function stackedBars(rows, print, options = {}) {
  const most = Math.max(1e-300, ...rows.map((row) =>
    Math.max(sum(row.parts.map((part) => part[1])), row.limit || 0)));
  const colors = new Map();
  rows.forEach((row) => row.parts.forEach(([name, value, color]) => value && colors.set(name, color)));
  const lines = rows.map((row) => {
    const total = sum(row.parts.map((part) => part[1]));
    return h('div', { class: 'stack' },
      h('div', { class: 'stack-name' }, h('b', null, row.name), h('span', null, row.note || print(total))),
      h('div', { class: 'track' },
        row.parts.filter(([, value]) => value > 0).map(([name, value, color]) => h('div', {
          class: 'part', tabindex: 0,
          style: { width: `${(100 * value / most).toFixed(3)}%`, background: color },
          ...tipped(`${row.name}: ${name}`, [['value', print(value)], ['share', show.share(value / total)]]),
        }, h('span', null, value / most > 0.09 ? print(value) : ''))),
        row.limit ? h('div', {
          class: 'limit', style: { left: `${(100 * row.limit / most).toFixed(3)}%` },
          ...tipped(`${row.name}: ${options.limit || 'limit'}`, [['value', print(row.limit)]]),
        }) : null));
  });
  return h('div', { class: 'stacks' }, colors.size > 1 ? legend([...colors]) : null, lines);
}

// rows: [[name, value]]; positive to the right. `print` shows a value.
function differences(rows, print, good, bad) {
  const most = Math.max(1e-300, ...rows.map(([, value]) => Math.abs(value)));
  const oneSided = rows.every(([, value]) => value >= 0);
  return h('div', { class: oneSided ? 'differences one-sided' : 'differences' }, rows.map(([name, value]) =>
    h('div', { class: 'difference' },
      h('span', { class: 'name', title: name }, name),
      h('div', { class: 'axis' }, h('div', {
        class: value < 0 ? 'bad' : 'good',
        style: { width: `${((oneSided ? 100 : 50) * Math.abs(value) / most).toFixed(2)}%` },
        ...tipped(name, [[value < 0 ? bad : good, print(Math.abs(value))]]),
      })),
      h('span', { class: 'value' }, (value > 0 ? '+' : value < 0 ? '−' : '') + print(Math.abs(value))))));
}
