// Pictures of the chosen points, by Chart.js.
'use strict';
const palette = ['#4477aa', '#ee6677', '#228833', '#ccbb44', '#66ccee', '#aa3377', '#999999', '#cc7711', '#117733', '#882255', '#44aa99', '#ddaa33',
                 '#7766dd', '#a0522d', '#88bb22', '#ff99bb', '#2255cc', '#cc2222', '#66887a', '#bb88dd'];
let charts = [];

/// A chart in a new element of `parent`. Data sets and scales as Chart.js takes them.
function draw(parent, type, content, options) {
  const canvas = element('canvas', {role: 'img'});
  parent.append(element('div', {class: 'chart'}, canvas));
  const chart = new Chart(canvas, {type, data: content, options: {animation: false, maintainAspectRatio: false, ...options}});
  charts.push(chart);
  return chart;
}
function axisOptions(name, log, reserved = {}) {
  const numbers = name === '' || isNumber(name);
  const options = {type: !numbers ? 'category' : log ? 'logarithmic' : 'linear', title: {display: true, text: name},
                   ticks: numbers && name !== '' ? {callback: value => readable(Number(value), name)} : {}, ...reserved};
  const axis = axisNamed[name], most = 12;
  if (!numbers || !axis || axis.values.length > most) return options;
  // A tick at each value, as the scenario writes it.
  options.afterBuildTicks = scale => { scale.ticks = [...axis.numbers].sort((a, b) => a - b).map(value => ({value})); };
  options.ticks = {callback: value => textOf(axis, value)};
  if (axis.values.length > 1) Object.assign(options, {min: Math.min(...axis.numbers), max: Math.max(...axis.numbers)});
  return options;
}
function textOf(axis, number) {
  const at = axis.numbers.indexOf(number);
  return at < 0 ? readable(number, axis.path) : String(axis.values[at]);
}
/// Whether an axis is logarithmic: each value is a multiple of the one before, or most of them would lie at its left end.
function spreads(name) {
  const numbers = axisNamed[name] ? [...axisNamed[name].numbers].sort((a, b) => a - b) : [0];
  const ratios = numbers.slice(1).map((n, i) => n / numbers[i]);
  return numbers[0] > 0 && (numbers[numbers.length - 1] / numbers[0] >= 16 || (ratios.length > 1 && ratios.every(r => r >= 1.5)));
}
function tooltip(x, y) {
  const xText = value => x in axisNamed ? textOf(axisNamed[x], value) : readable(value, x);
  return {callbacks: {label: item => `${item.raw.label || item.dataset.label}: ${shortName(x)} ${xText(item.raw.x)}, ${y} ${readable(item.raw.y, y)}`}};
}

/// A line per value of the series axis, over the x axis; bars where x has names.
function lines(view) {
  const varied = axes.filter(a => a.values.length > 1).map(a => a.path);
  const y = chosen('y', metrics, data.headline), xs = varied.concat(metrics.filter(m => m !== y));
  const x = chosen('x', xs, usualX(varied));
  const series = ['none'].concat(axes.filter(a => a.values.length > 1 && a.path !== x).map(a => a.path));
  const by = chosen('by', series, series[1]);
  const scale = chosen('scale', ['linear', 'logarithmic']);
  view.append(element('div', {class: 'controls'}, selection('x', 'x', xs, x), selection('y', 'y', metrics, y),
    selection('by', 'line per', series, by), selection('scale', 'scale', ['linear', 'logarithmic'], scale)));
  const groups = new Map();
  for (const p of shown([x, by])) {
    const value = valueOf(y, p);
    if (value === null || value === undefined) continue;
    // Other axes with several values make lines of their own, so that no line mixes them.
    const name = label(p, [x]);
    if (!groups.has(name)) groups.set(name, {p, list: []});
    groups.get(name).list.push({x: isNumber(x) ? numberOf(x, p) : valueOf(x, p), y: value, label: label(p)});
  }
  const order = by === 'none' ? [] : axisNamed[by].values;
  const sets = [...groups].map(([name, group], i) => {
    // A value keeps its colour whatever else is shown, unless several lines have it.
    const at = by === 'none' || (x in axisNamed && groups.size > order.length) ? i : order.indexOf(valueOf(by, group.p));
    if (isNumber(x)) group.list.sort((a, b) => a.x - b.x);
    return {label: name, data: group.list, borderColor: palette[at % palette.length], backgroundColor: palette[at % palette.length],
            showLine: x in axisNamed, pointRadius: group.list.length > 200 ? 1 : 3, borderWidth: 2, clip: 5};
  });
  const places = panels(view, sets, groups, x);
  for (const {parent, title, list} of places) {
    const y0 = {beginAtZero: scale === 'linear'};
    const plugins = {legend: {display: list.length > 1 || places.length > 1}, title: {display: title !== '', text: title}};
    if (isNumber(x)) {
      const scales = {x: axisOptions(x, scale === 'logarithmic' || spreads(x)), y: axisOptions(y, scale === 'logarithmic', y0)};
      draw(parent, 'scatter', {datasets: list}, {scales, plugins: {...plugins, tooltip: tooltip(x, y)}});
      continue;
    }
    // Names have no order: bars instead of lines; they lie where their names are long.
    const labels = axisNamed[x].values.map(String);
    for (const set of list) set.data = labels.map(name => (set.data.find(d => String(d.x) === name) || {y: null}).y);
    const lying = labels.join('').length > 60, ofNames = {title: {display: true, text: shortName(x)}, ticks: {autoSkip: false}};
    const ofValues = axisOptions(y, scale === 'logarithmic', y0);
    const chart = draw(parent, 'bar', {labels, datasets: list}, {indexAxis: lying ? 'y' : 'x', scales: lying ? {x: ofValues, y: ofNames} : {x: ofNames, y: ofValues},
      plugins: {...plugins, tooltip: {callbacks: {label: item => `${item.dataset.label}: ${readable(item.raw, y)}`}}}});
    if (lying) chart.canvas.parentElement.style.height = `${Math.max(12, 6 + labels.length * (0.7 + 0.9 * list.length))}rem`;
  }
}

/// The axis that a picture is over at first: of the numbers, the one with the most values.
function usualX(varied) {
  const numbers = varied.filter(isNumber), count = path => axisNamed[path].values.length;
  return numbers.sort((a, b) => count(a) - count(b)).pop();
}

/// Lines in charts of eight at most: a chart for each value of another axis, or in turn.
function panels(view, sets, groups, x) {
  const most = 8;
  if (sets.length <= most) return [{parent: view, title: '', list: sets}];
  const grid = element('div', {class: 'panels'});
  view.append(grid);
  const others = axes.filter(a => a.values.length > 1 && a.path !== x), first = [...groups.values()].map(g => g.p);
  const lists = axis => axis.values.map(v => sets.filter((s, i) => valueOf(axis.path, first[i]) === v));
  const largest = axis => Math.max(...lists(axis).map(l => l.length));
  const axis = [...others].sort((a, b) => Math.max(most, largest(a)) - Math.max(most, largest(b)) || a.values.length - b.values.length)[0];
  if (!axis || largest(axis) > most || others.length < 2)
    return Array.from({length: Math.ceil(sets.length / most)}, (_, i) => ({parent: grid, title: '', list: sets.slice(most * i, most * (i + 1))}));
  return lists(axis).map((list, i) => ({parent: grid, title: `${shortName(axis.path)} ${axis.values[i]}`, list: list.map((s, k) => (
    {...s, label: label(first[sets.indexOf(s)], [x, axis.path]), borderColor: palette[k], backgroundColor: palette[k]}))})).filter(p => p.list.length > 0);
}

/// Curves of one point over time, or over what else its run counts in, a chart for each group.
function overTime(view) {
  const with_series = points.filter(p => data.series[p]).map(String), point = chosen('over', with_series, state.point);
  const names = p => label(Number(p));
  if (with_series.length > 1) view.append(element('div', {class: 'controls'}, selection('over', 'point', with_series, point, names)));
  const of = data.series[Number(point)], at = of.time_s ? {name: 'time', values: of.time_s} : of.at;
  const readableAt = value => readable(value, of.time_s ? 'time_s' : '');
  const panels = element('div', {class: 'panels'});
  view.append(panels);
  for (const [group, curves] of Object.entries(of.curves)) {
    const panel = element('div', {}, element('h2', {}, group));
    panels.append(panel);
    const sets = Object.entries(curves).map(([name, values], k) => ({label: name, data: values.map((y, i) => ({x: at.values[i], y})),
      borderColor: palette[k % palette.length], backgroundColor: palette[k % palette.length], showLine: true, stepped: 'before', pointRadius: 0, borderWidth: 2}));
    draw(panel, 'scatter', {datasets: sets}, {interaction: {mode: 'nearest', axis: 'x', intersect: false},
      scales: {x: {type: 'linear', title: {display: true, text: at.name}, ticks: {callback: value => readableAt(Number(value))}}, y: {beginAtZero: true, ticks: {callback: value => readable(Number(value), '')}}},
      plugins: {tooltip: {callbacks: {label: item => `${item.dataset.label}: ${readable(item.raw.y, '')} at ${readableAt(item.raw.x)}`}}}});
  }
}

/// The distribution function of a time, a line per point: which share of the requests takes at most so long.
function distribution(parent, metric, list, title) {
  const sets = list.map((p, k) => {
    const of = data.distributions[p];
    return {label: data.points === 1 ? metric : label(p), data: of.values[metric].map((x, i) => ({x, y: of.shares[i]})),
            borderColor: palette[k % palette.length], backgroundColor: palette[k % palette.length], showLine: true, stepped: 'before', pointRadius: 0, borderWidth: 2};
  });
  const values = sets.flatMap(s => s.data.map(d => d.x)), least = Math.min(...values), most = Math.max(...values);
  const ofShares = {min: 0, max: 1, title: {display: true, text: metric === 'itl_s' ? 'share of the tokens' : 'share of the requests'}, ticks: {callback: v => readable(Number(v), 'share')}};
  const type = least > 0 && most / least >= 16 ? 'logarithmic' : 'linear';
  draw(parent, 'scatter', {datasets: sets}, {interaction: {mode: 'nearest', axis: 'y', intersect: false},
    scales: {x: {type, title: {display: true, text: metric}, ticks: {callback: v => readable(Number(v), metric)}}, y: ofShares},
    plugins: {legend: {display: sets.length > 1}, title: {display: title !== '', text: title},
              tooltip: {callbacks: {label: item => `${item.dataset.label}: ${readable(item.raw.y, 'share')} take at most ${readable(item.raw.x, metric)}`}}}});
}
const ofTimes = {request_ttft_s: 'Time to the first token', request_tpot_s: 'Time per further token, mean of a request', itl_s: 'Time between two tokens', request_latency_s: 'From arrival to last token'};
/// All distributions of one run, or one of all points of a sweep.
function distributions(view) {
  const with_curves = shown([]).filter(p => data.distributions[p]), first = with_curves[0];
  if (first === undefined) return view.append(element('p', {class: 'note'}, 'No point that is shown has a distribution.'));
  if (data.points === 1) {
    const panels = element('div', {class: 'panels'});
    view.append(panels);
    for (const metric of Object.keys(data.distributions[first].values)) {
      const panel = element('div', {}, element('h2', {}, ofTimes[metric] || metric));
      panels.append(panel);
      distribution(panel, metric, [first], '');
    }
    return;
  }
  const names = Object.keys(data.distributions[first].values), metric = chosen('of', names, names[0]);
  view.append(element('div', {class: 'controls'}, selection('of', 'time', names, metric, name => ofTimes[name] || name)));
  const all = with_curves.filter(p => data.distributions[p].values[metric]), kept = all.slice(0, palette.length);
  if (all.length > kept.length) view.append(element('p', {class: 'note'}, `The first ${kept.length} points; choose values of the axes above to see the other ${all.length - kept.length}.`));
  distribution(view, metric, kept, ofTimes[metric] || metric);
}

/// Points that no other point beats in both metrics, and the others.
function pareto(view) {
  const y = chosen('py', metrics, data.headline), xs = metrics.filter(m => m !== y);
  const x = chosen('px', xs, ['energy_per_token_j', 'latency_p99_ns', 'tokens_per_s', 'ttft_s'].find(m => xs.includes(m)));
  const wishes = ['least', 'most'];
  const wishX = chosen('pxw', wishes, betterIsMore(x) ? 'most' : 'least'), wishY = chosen('pyw', wishes, betterIsMore(y) ? 'most' : 'least');
  view.append(element('div', {class: 'controls'}, selection('px', 'x', xs, x), selection('pxw', '', wishes, wishX),
    selection('py', 'y', metrics, y), selection('pyw', '', wishes, wishY)));
  const list = shown([]).map(p => ({x: valueOf(x, p), y: valueOf(y, p), label: label(p)})).filter(d => d.x !== null && d.y !== null && d.x !== undefined && d.y !== undefined);
  const front = paretoFront(list, wishX === 'most' ? 1 : -1, wishY === 'most' ? 1 : -1);
  const rest = list.filter(d => !front.includes(d));
  draw(view, 'scatter', {datasets: [
    {label: `front (${front.length})`, data: front, showLine: true, stepped: wishX === 'most' ? 'after' : 'before', borderColor: colour('--mark'), backgroundColor: colour('--mark'), pointRadius: 5},
    {label: `other points (${rest.length})`, data: rest, backgroundColor: palette[6], pointRadius: 3}]},
    {scales: {x: axisOptions(x), y: axisOptions(y)}, plugins: {tooltip: tooltip(x, y)}});
  const rows = front.map(d => element('tr', {}, element('td', {class: 'axis'}, d.label), element('td', {}, readable(d.x, x)), element('td', {}, readable(d.y, y))));
  view.append(element('h2', {}, 'Front'), element('div', {class: 'scroll'}, element('table', {id: 'front'},
    element('tr', {}, element('th', {class: 'axis'}, 'point'), element('th', {}, x), element('th', {}, y)), ...rows)));
}
function betterIsMore(metric) { return data.better[metric] === 'more'; }
/// signX, signY: 1 if more is better, -1 if less is.
function paretoFront(list, signX, signY) {
  const sorted = [...list].sort((a, b) => signX * (b.x - a.x) || signY * (b.y - a.y));
  let best = -Infinity;
  const front = [];
  for (const d of sorted) if (signY * d.y > best) { best = signY * d.y; front.push(d); }
  return front.sort((a, b) => a.x - b.x);
}

/// Bars of each shown point: parts of the critical path, or the utilisation of each resource.
function bars(view, table, text, name, stacked) {
  const kept = shown([]).slice(0, 60), left = shown([]).length - kept.length;
  const parts = Object.keys(table).filter(part => kept.some(p => table[part][p]));
  view.append(element('h2', {}, text));
  if (left > 0) view.append(element('p', {class: 'note'}, `The first 60 points; choose values of the axes above to see the other ${left}.`));
  const sets = parts.map((part, i) => ({label: part.replaceAll('_', ' '), data: kept.map(p => table[part][p]), backgroundColor: palette[i % palette.length]}));
  draw(view, 'bar', {labels: kept.map(p => label(p)), datasets: sets},
    {indexAxis: 'y', scales: {x: {stacked, title: {display: true, text: name}, ticks: {callback: v => readable(v, name)}}, y: {stacked}},
     plugins: {tooltip: {callbacks: {label: item => `${item.dataset.label}: ${readable(item.raw, name)}`}}}})
    .canvas.parentElement.style.height = `${Math.max(12, 4 + kept.length * (stacked ? 1.6 : 0.4 * parts.length + 0.8))}rem`;
}

/// Parts of a time as {name: seconds}, one after the other.
function waterfall(view, text, times) {
  const parts = Object.keys(times).filter(part => times[part] > 0);
  if (parts.length === 0) return;
  const whole = parts.reduce((sum, part) => sum + times[part], 0);
  let end = 0;
  const spans = parts.map(part => [end, end += times[part]]);
  view.append(element('h2', {}, `${text}: ${readable(whole, 'time_s')}`));
  const labels = parts.map(part => `${part.replaceAll('_', ' ')} ${readable(times[part] / whole, 'share')}`);
  draw(view, 'bar', {labels, datasets: [{data: spans, backgroundColor: parts.map((_, i) => palette[i % palette.length])}]},
    {indexAxis: 'y', scales: {x: {ticks: {callback: v => readable(v, 'time_s')}}, y: {ticks: {autoSkip: false}}},
     plugins: {legend: {display: false}, tooltip: {callbacks: {label: item => readable(item.raw[1] - item.raw[0], 'time_s')}}}})
    .canvas.parentElement.style.height = `${4 + 2 * parts.length}rem`;
}
