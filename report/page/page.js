// Views of the report, and the choice among them.
'use strict';
function headings(list, onclick = () => {}) {
  return element('tr', {}, ...list.map(([text, kind, tip], i) => element('th', {class: kind, title: tip, onclick: () => onclick(i)}, text)));
}

/// A metric over two axes, darker where it is larger. A click shows the point.
function heat(view) {
  const names = axes.filter(a => a.values.length > 1).map(a => a.path);
  if (names.length < 2) return view.append(element('p', {class: 'note'}, 'A heat map needs two axes with several values.'));
  const across = chosen('hx', names, names[0]), down = chosen('hy', names.filter(n => n !== across));
  const metric = chosen('y', metrics, data.headline);
  view.append(element('div', {class: 'controls'}, selection('hx', 'across', names, across),
    selection('hy', 'down', names.filter(n => n !== across), down), selection('y', 'metric', metrics, metric)));
  const others = names.filter(n => n !== across && n !== down && (state['only:' + n] || '*') === '*');
  if (others.length > 0) view.append(element('p', {class: 'note'}, `Cells show the mean over ${others.map(shortName).join(', ')}; choose a value above to see one.`));
  const cells = new Map();
  for (const p of shown([across, down])) {
    const value = valueOf(metric, p);
    if (value === null || value === undefined) continue;
    const key = valueOf(across, p) + '|' + valueOf(down, p);
    if (!cells.has(key)) cells.set(key, {sum: 0, count: 0, point: p});
    const cell = cells.get(key);
    cell.sum += value;
    cell.count += 1;
  }
  const means = [...cells.values()].map(c => c.sum / c.count), least = Math.min(...means), most = Math.max(...means);
  const rows = axisNamed[down].values.map(v => element('tr', {}, element('th', {class: 'axis'}, String(v)),
    ...axisNamed[across].values.map(u => {
      const cell = cells.get(u + '|' + v);
      if (!cell) return element('td', {}, '-');
      const mean = cell.sum / cell.count, part = most > least ? (mean - least) / (most - least) : 0;
      return element('td', {style: `background: color-mix(in srgb, var(--mark) ${Math.round(70 * part)}%, var(--back))`, onclick: () => choose('point', String(cell.point))}, readable(mean, metric));
    })));
  view.append(element('div', {class: 'scroll'}, element('table', {class: 'heat'},
    headings([[`${shortName(down)} \\ ${shortName(across)}`, 'axis'], ...axisNamed[across].values.map(u => [String(u), ''])]), ...rows)));
}

/// What binds: the utilisation of every resource, and the critical path.
function resources(view) {
  const phases = Object.keys(data.phases);
  if (phases.length === 0) return view.append(element('p', {class: 'note'}, 'The results state no utilisation.'));
  const phase = chosen('phase', phases, 'decode'), of = data.phases[phase];
  view.append(element('div', {class: 'controls'}, selection('phase', 'phase', phases, phase)));
  const counts = new Map();
  for (const p of shown([])) if (of.bound_by[p] !== null) counts.set(of.bound_by[p], (counts.get(of.bound_by[p]) || 0) + 1);
  const said = [...counts].sort((a, b) => b[1] - a[1]).map(([name, count]) => `${name} (${count})`).join(', ');
  view.append(element('p', {id: 'bound'}, `Bound by: ${said || 'not stated'}`));
  bars(view, of.utilization, 'Utilisation of each resource', 'utilization', false);
  if (Object.keys(of.critical_path_s).length > 0) bars(view, of.critical_path_s, 'Critical path', 'critical_path_s', true);
}

/// Figures that matter, of one run or one point: those that its kind is about.
const figures = ['decode_tokens_per_s', 'iops', 'tokens_per_s', 'goodput', 'slo_attainment', 'request_ttft_mean_s', 'request_ttft_p99_s', 'ttft_s', 'tpot_s',
  'request_tpot_mean_s', 'bandwidth_bytes_per_s', 'latency_mean_ns', 'latency_p99_ns', 'prefix_hit_rate', 'write_amplification', 'drive_lifetime_years',
  'energy_per_token_j', 'relative_error_estimate'];
function cards(view, p) {
  const has = m => m in data.metrics && typeof data.metrics[m][p] === 'number' && (data.metrics[m][p] !== 0 || m !== 'relative_error_estimate');
  // Of requests that arrive, the others are the same figures.
  const served = has('request_ttft_mean_s') ? ['ttft_s', 'tpot_s'] : [];
  const known = figures.filter(m => has(m) && !served.includes(m) && !(m === 'write_amplification' && data.metrics[m][p] === 1)), shownOnes = (known.length > 1 ? known : metrics.filter(has)).slice(0, 8);
  const card = (name, value, text) => element('div', {class: 'card', title: text}, element('span', {class: 'name'}, name), element('b', {}, value), element('small', {}, text));
  const bound = Object.entries(data.phases).filter(([, of]) => of.bound_by[p]).map(([phase, of]) => {
    const [name, waits] = of.bound_by[p].split('; '), use = of.utilization[name];
    const text = (use ? `It is busy ${readable(use[p], 'share')} of the time. ` : '') + (waits ? `Most of the time ${waits.replaceAll('_', ' ')}.` : '');
    return card(`${phase === 'measured' ? 'the run' : phase} is bound by`, name.replaceAll('_', ' '), text);
  });
  view.append(element('div', {class: 'cards'}, ...shownOnes.map(m => card(m, readable(data.metrics[m][p], m), meaningOf(m).split('. ')[0])), ...bound));
}

/// One run on one page: what came out, where the time went, what happened meanwhile.
function summary(view) {
  cards(view, 0);
  for (const [phase, of] of Object.entries(data.phases))
    waterfall(view, `Where the time of ${phase} goes`, Object.fromEntries(Object.entries(of.critical_path_s).map(([part, times]) => [part, times[0]])));
  for (const [kind, stages] of Object.entries(data.stages))
    waterfall(view, `Mean life of a request, ${kind}`, Object.fromEntries(Object.entries(stages).map(([stage, ns]) => [stage, 1e-9 * ns])));
  if (data.distributions.length > 0) distributions(view);
  if (data.series.length > 0) overTime(view);
}

/// All metrics of one run, with what they mean.
function metricList(view) {
  const text = state.find || '';
  view.append(element('div', {class: 'controls'}, element('label', {}, 'filter', element('input', {id: 'find', value: text, placeholder: 'text of a row', onchange: e => choose('find', e.target.value)}))));
  const rows = metrics.filter(m => `${m} ${meaningOf(m)}`.includes(text)).map(m => element('tr', {}, element('td', {class: 'axis'}, m),
    element('td', {title: String(data.metrics[m][0])}, readable(data.metrics[m][0], m)), element('td', {class: 'text'}, meaningOf(m))));
  view.append(element('div', {class: 'scroll'}, element('table', {id: 'rows'}, headings([['metric', 'axis'], ['value', ''], ['what it is', 'axis']]), ...rows)));
}

/// All points: a click on a heading sorts, a text filters.
function table(view) {
  const columns = axes.map(a => a.path).concat(metrics);
  const by = Number(state.sort || -1), down = state.down === '1', text = state.find || '';
  const find = element('input', {id: 'find', value: text, placeholder: 'text of a row', onchange: e => choose('find', e.target.value)});
  view.append(element('div', {class: 'controls'}, element('label', {}, 'filter', find)));
  let list = shown([]);
  if (text) list = list.filter(p => columns.some(c => String(valueOf(c, p)).includes(text)) || (data.errors[p] || '').includes(text));
  if (by >= 0 && by < columns.length) {
    const of = p => isNumber(columns[by]) ? numberOf(columns[by], p) : valueOf(columns[by], p);
    const compare = (a, b) => a === b ? 0 : a === null || a === undefined ? 1 : b === null || b === undefined ? -1 : a < b ? -1 : 1;
    list = [...list].sort((a, b) => (down ? -1 : 1) * compare(of(a), of(b)));
  }
  const sort = i => { state.down = by === i && !down ? '1' : '0'; choose('sort', String(i)); };
  const most = 500, rows = list.slice(0, most).map(p => element('tr', {class: data.errors[p] ? 'failed' : null},
    ...columns.map((c, i) => element('td', {class: i < axes.length ? 'axis' : null, title: String(valueOf(c, p))}, i < axes.length ? String(valueOf(c, p)) : readable(valueOf(c, p), c))),
    ...(data.errors[p] ? [element('td', {class: 'text'}, data.errors[p])] : [])));
  view.append(element('p', {class: 'note', id: 'count'}, `${list.length} of ${data.points} points${list.length > most ? `, the first ${most} are shown` : ''}. The tip of a cell has all digits.`));
  view.append(element('div', {class: 'scroll'}, element('table', {id: 'rows'}, headings(columns.map((c, i) => [i < axes.length ? shortName(c) : c, i < axes.length ? 'axis' : '', meaningOf(c)]), sort), ...rows)));
}

/// The configuration of a point, and where its numbers are from.
function configuration(view) {
  view.append(element('p', {}, data.statement || ''), element('p', {class: 'note'}, `csdsim ${data.build.version}, compiler ${data.build.compiler}, ${data.build.type}; seed ${data.seed}. The configuration is that of point ${data.config_of}; the other points differ from it in their axes.`));
  const rows = data.parameters.map(([path, value, source]) => element('tr', {}, element('td', {class: 'axis'}, path), element('td', {class: 'axis'}, value), element('td', {class: 'text', title: source}, source)));
  view.append(element('h2', {}, 'Parameters and their sources'), element('div', {class: 'scroll'}, element('table', {id: 'parameters'},
    headings([['parameter', 'axis'], ['value', 'axis'], ['source', 'axis']]), ...rows)));
  view.append(element('h2', {}, 'Effective configuration'), element('pre', {id: 'config'}, JSON.stringify(data.config, null, 2)));
}

const series = {...(data.distributions.length > 0 ? {Distribution: distributions} : {}), ...(data.series.length > 0 ? {'Over time': overTime} : {})};
const views = data.points === 1 ? {Summary: summary, ...series, Resources: resources, Metrics: metricList, Configuration: configuration}
                                : {Lines: lines, 'Heat map': heat, Pareto: pareto, Resources: resources, ...series, Table: table, Configuration: configuration};

function filters() {
  const area = document.getElementById('filters');
  area.replaceChildren(...axes.filter(a => a.values.length > 1).map(a =>
    selection('only:' + a.path, shortName(a.path), ['*', ...a.values.map(String)], state['only:' + a.path] || '*', v => v === '*' ? 'all' : v)));
}
/// Everything about one point.
function details() {
  const area = document.getElementById('details'), p = Number(state.point);
  if (state.point === undefined || !(p < data.points)) return area.replaceChildren();
  area.replaceChildren(element('h2', {}, `Point ${p}: ${label(p)}`), element('div', {class: 'scroll'}, element('table', {id: 'point'},
    ...metrics.filter(m => valueOf(m, p) !== null && valueOf(m, p) !== undefined).map(m => element('tr', {}, element('td', {class: 'axis', title: meaningOf(m)}, m), element('td', {title: String(valueOf(m, p))}, readable(valueOf(m, p), m)))))));
}
function show() {
  for (const chart of charts) chart.destroy();
  charts = [];
  const theme = chosen('theme', ['auto', 'light', 'dark']);
  applyTheme(theme);
  const names = Object.keys(views), current = chosen('view', names);
  document.getElementById('views').replaceChildren(...names.map(name =>
    element('button', {role: 'tab', 'aria-selected': String(name === current), onclick: () => choose('view', name)}, name)));
  filters();
  const view = document.getElementById('view');
  view.replaceChildren();
  views[current](view);
  details();
}
document.getElementById('title').textContent = data.name;
document.getElementById('question').textContent = data.question;
document.getElementById('summary').textContent = data.points > 1 ? data.summary : data.statement ? data.statement + '.' : 'One run.';
const theme = document.getElementById('theme');
theme.value = chosen('theme', ['auto', 'light', 'dark']);
theme.addEventListener('change', e => choose('theme', e.target.value));
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', show);
show();
