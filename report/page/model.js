// The data of the report: points of a sweep, or one run. Columns hold a value per point, null where a point has none.
'use strict';
const data = JSON.parse(document.getElementById('data').textContent);
const axes = data.axes.map((axis, index) => ({...axis, index}));
const metrics = Object.keys(data.metrics);
const points = Array.from({length: data.points}, (_, i) => i);
const axisNamed = Object.fromEntries(axes.map(a => [a.path, a]));

// What is shown: kept in the address, so that a link opens the same view.
const state = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
function choose(key, value) {
  state[key] = value;
  history.replaceState(null, '', '#' + new URLSearchParams(state));
  show();
}
/// The chosen option of a key, or the first of `options`.
function chosen(key, options, preferred) {
  if (options.includes(state[key])) return state[key];
  return options.includes(preferred) ? preferred : options[0];
}

/// Value of an axis or a metric at a point.
function valueOf(name, point) {
  const axis = axisNamed[name];
  if (axis) return axis.values[axis.at[point]];
  return data.metrics[name][point];
}
/// The same as a number; quantities in their base unit. Only where isNumber().
function numberOf(name, point) {
  const axis = axisNamed[name];
  return axis ? axis.numbers[axis.at[point]] : data.metrics[name][point];
}
function isNumber(name) {
  return name in data.metrics || axisNamed[name].numbers !== null;
}
/// Points whose axes have the chosen values; axes in `free` have all.
function shown(free) {
  const fixed = axes.filter(a => !free.includes(a.path) && state['only:' + a.path] !== undefined && state['only:' + a.path] !== '*');
  return points.filter(p => fixed.every(a => String(a.values[a.at[p]]) === state['only:' + a.path]));
}

/// What a metric is, a sentence; empty where nothing is known.
function meaningOf(metric) { return data.meanings[metric] || ''; }
function shortName(path) {
  const parts = path.split('.');
  const last = parts[parts.length - 1];
  return parts.length > 1 && (last === 'kind' || last === 'preset') ? parts[parts.length - 2] : last;
}
/// Axes that tell the points of a list apart.
function label(point, without = []) {
  return axes.filter(a => a.values.length > 1 && !without.includes(a.path))
    .map(a => shortName(a.path) + ' ' + a.values[a.at[point]]).join(', ') || data.name;
}

/// A labelled selection of one option; what is chosen stays in the address under `key`.
function selection(key, text, options, value, names = shortName) {
  const select = element('select', {id: key, onchange: e => choose(key, e.target.value)});
  for (const option of options) {
    const made = element('option', {value: option}, names(option));
    if (option === value) made.selected = true;
    select.append(made);
  }
  return element('label', {}, text, select);
}
