// Any other result: its tables as tables, its values as values.

function columnsOf(rows) {
  const names = [...new Set(rows.slice(0, 200).flatMap((row) => Object.keys(object(row))))];
  return names.slice(0, 24).map((key) => {
    const text = !rows.some((row) => typeof object(row)[key] === 'number');
    const print = shownAs(key);
    return { key, title: words(key), text, show: (v) => typeof v === 'number' ? print(v) : show.plain(v) };
  });
}

// Sections for everything in `data`, nested objects as sub-headings, two levels down.
function genericView(data, skip = []) {
  const plain = [], blocks = [];
  const add = (name, value, depth) => {
    if (skip.includes(name)) return;
    if (Array.isArray(value) && value.length && value.every((v) => v && typeof v === 'object' && !Array.isArray(v))) {
      blocks.push(section(words(name), null, dataTable(columnsOf(value), value, { name: 'rows', most: 30 })));
    } else if (value && typeof value === 'object' && !Array.isArray(value)) {
      const entries = Object.entries(value);
      const simple = entries.filter(([, v]) => v === null || typeof v !== 'object' || (Array.isArray(v) && v.every((i) => typeof i !== 'object')));
      if (simple.length) blocks.push(section(words(name), null, facts(simple.slice(0, 200).map(([k, v]) => [words(k), typeof v === 'number' ? shownAs(k)(v) : show.plain(v)]))));
      if (depth < 2) entries.filter((e) => !simple.includes(e)).forEach(([k, v]) => add(`${name} / ${k}`, v, depth + 1));
    } else plain.push([words(name), typeof value === 'number' ? shownAs(name)(value) : show.plain(value)]);
  };
  Object.entries(data).forEach(([name, value]) => add(name, value, 0));
  return [plain.length ? section('Figures', null, facts(plain)) : null, ...blocks];
}
