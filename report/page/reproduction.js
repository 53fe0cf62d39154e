// A paper: what it states against what csdsim simulates.
'use strict';
const data = JSON.parse(document.getElementById('data').textContent);
const view = document.getElementById('view');
const verdicts = {within: 'good', 'as stated': 'good', outside: 'bad', differs: 'bad', 'no value': 'bad', 'not judged': 'none'};

// Results of the rows side by side: another machine, or another setting of the baselines.
const columns = data.columns ? data.columns.map(c => ({title: c.title, overrides: c.overrides, of: row => ({...row, ...row.columns[c.name]})})) : [{title: 'simulated', overrides: {}, of: row => row}];

function text(value) {
  if (value === null || value === undefined) return '-';
  if (typeof value === 'number') return readable(value, '');
  return typeof value === 'string' ? value : JSON.stringify(value);
}
function percent(share) { return `${share > 0 ? '+' : ''}${(100 * share).toFixed(1)} %`; }
function heading(...names) { return element('tr', {}, ...names.map(name => element('th', {class: 'axis'}, name))); }
function table(id, ...rows) { return element('div', {class: 'scroll whole'}, element('table', {id}, ...rows)); }

/// Where simulated lies beside stated: from half to double, the bounds of the row as a band.
function track(row) {
  const ratio = row.simulated / row.stated;
  if (typeof row.stated !== 'number' || typeof row.simulated !== 'number' || !(ratio > 0)) return '';
  const place = r => 50 + 50 * Math.max(-1, Math.min(1, Math.log2(r)));
  const bound = row.tolerance_points !== null ? row.tolerance_points / Math.abs(row.stated) : row.tolerance;
  const marks = [element('i', {class: 'middle'})];
  if (bound !== null) {
    const from = place(Math.max(1 - bound, 1e-3)), to = place(1 + bound);
    marks.push(element('i', {class: 'band', style: `left: ${from}%; width: ${to - from}%`}));
  }
  const beyond = Math.abs(Math.log2(ratio)) > 1;
  marks.push(element('i', {class: `dot ${verdicts[row.verdict]}${beyond ? ' beyond' : ''}`, style: `left: ${place(ratio)}%`}));
  return element('div', {class: 'track', title: `simulated / stated: ${ratio.toPrecision(3)}${bound === null ? '' : `, bounds ${percent(-bound)} and ${percent(bound)}`}`}, ...marks);
}

/// The rows that do not agree, in short, by column.
function differences() {
  for (const [i, column] of columns.entries()) {
    const list = data.rows.map(column.of).filter(row => verdicts[row.verdict] === 'bad');
    if (list.length === 0) continue;
    const title = columns.length > 1 ? `What does not agree, ${column.title}` : 'What does not agree';
    view.append(element('details', {id: i === 0 ? 'differences' : `differences${i + 1}`}, element('summary', {}, title), element('ul', {}, ...list.map(row => element('li', {},
      element('a', {href: `#${row.id}`}, `${row.where}: ${row.metric}`), `: stated ${text(row.stated)} ${row.unit}, simulated ${text(row.simulated)} ${row.unit}. ${row.note}`)))));
  }
}

function constants() {
  view.append(element('h2', {}, 'Constants'));
  if (data.constants.length === 0) return view.append(element('p', {}, 'None is stated for these rows. With --rows, those of other rows are left out.'));
  const kinds = {fitted: 'fitted, of the system that the paper presents', baseline: 'fitted, of a system that it is compared with', input: 'an input, from the paper or another source: no row confirms it'};
  view.append(element('p', {class: 'note'}, 'These values were chosen so that some figures of the paper come out. The rows they were fitted on confirm nothing; the others are predictions.'));
  view.append(table('constants', heading('what it is', 'value', 'fitted on', 'kind', 'parameter'), ...data.constants.map(c => element('tr', {},
    element('td', {class: 'text'}, c.meaning), element('td', {class: 'axis'}, `${text(c.value)}${c.unit ? ` (${c.unit})` : ''}`), element('td', {class: 'text'}, c.fitted_on),
    element('td', {class: 'text'}, kinds[c.group] || c.group), element('td', {class: 'axis'}, c.path)))));
}

function rows() {
  const contradictions = id => data.inconsistencies.flatMap((each, i) => each.rows.includes(id) ? [element('a', {href: `#contradiction${i + 1}`}, `contradiction ${i + 1}`), ' '] : []);
  view.append(element('h2', {}, 'Stated against simulated'), element('p', {class: 'note'},
    'The dot is simulated over stated, from half to double; the band has the bounds within which a row counts as agreement. A hollow dot lies further out.'));
  const places = [...new Set(data.rows.map(row => row.where))];
  if (columns.length > 1)
    view.append(element('ul', {id: 'columns'}, ...columns.map(c => element('li', {}, `${c.title}: ${Object.entries(c.overrides).map(([path, value]) => `${path} = ${value}`).join(', ') || 'the scenario as it is'}`))));
  view.append(table('rows', heading('result', 'stated', ...columns.flatMap(c => [c.title, 'error', 'half … same … double', 'verdict']), 'remarks'), ...places.flatMap(place => [
    element('tr', {class: 'place'}, element('th', {class: 'axis', colspan: String(3 + 4 * columns.length)}, place)),
    ...data.rows.filter(row => row.where === place).map(row => element('tr', {id: row.id}, element('td', {class: 'text', title: row.expression}, row.metric, element('br'), element('small', {}, row.id)),
      element('td', {class: 'text'}, `${text(row.stated)} ${row.unit}`), ...columns.map(c => c.of(row)).flatMap(result => [
        element('td', {class: 'text'}, result.simulated === null ? '-' : `${text(result.simulated)} ${row.unit}`),
        element('td', {}, typeof row.stated === 'number' && result.error !== null ? percent(result.error) : '-'), element('td', {}, track(result)),
        element('td', {class: verdicts[result.verdict]}, result.verdict)]), element('td', {class: 'text'}, ...contradictions(row.id), row.note)))])));
}

function texts() {
  if (data.inconsistencies.length > 0)
    view.append(element('h2', {}, 'Contradictions in the paper'), element('ol', {}, ...data.inconsistencies.map((each, i) => element('li', {id: `contradiction${i + 1}`}, each.text))));
  if (data.absent.length > 0)
    view.append(element('h2', {}, 'Results without a row'), element('ul', {}, ...data.absent.map(each => element('li', {}, `${each.id}: ${each.why}`))));
}

function curves() {
  if (data.curves.length === 0) return;
  const panels = element('div', {class: 'panels'});
  view.append(element('h2', {}, 'Pictures, as simulated'), panels);
  addCharts(panels, data.curves.map(c => ({title: c.title, x: c.x_title || c.axis, y: c.y_title || c.metric, x_log: true, y_log: c.y_log, names: [], values: [],
    lines: c.series.map(s => ({name: s.name, dashed: false, points: s.points.map(p => [p.x, p.y])}))})));
}

function show() {
  for (const chart of charts.splice(0)) chart.destroy();
  applyTheme(document.getElementById('theme').value);
  view.replaceChildren();
  const count = (kind, column) => data.rows.map(column.of).filter(row => verdicts[row.verdict] === kind).length;
  const simulated = Object.values(data.points).filter(p => p.simulated).length;
  const counts = c => `${columns.length > 1 ? `${c.title}: ` : ''}${count('good', c)} of ${data.rows.length - count('none', c)} results agree with the paper, ${count('bad', c)} do not` +
    `${count('none', c) > 0 ? `; ${count('none', c)} more have no bound and are not judged` : ''}. `;
  view.append(element('p', {id: 'summary'}, `${columns.map(counts).join('')}${data.constants.length} constants; ${simulated} configurations simulated by csdsim ${data.build.version}.`));
  differences();
  constants();
  rows();
  texts();
  curves();
}
document.getElementById('title').textContent = data.title;
document.getElementById('source').textContent = `${data.source}: csdsim reproduce ${data.paper}`;
document.getElementById('theme').addEventListener('change', show);
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', show);
show();
