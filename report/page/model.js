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

/// 0.0123 s as "12.3 ms": three digits and a prefix of the unit.
function readable(value, name) {
  if (value === null || value === undefined) return '-';
  if (typeof value !== 'number') return String(value);
  let unit = unitOf(name);
  if (unit === 'ns') [value, unit] = [value * 1e-9, 's'];
  if (value === 0) return unit ? '0 ' + unit : '0';
  if (unit === '%') return Number((100 * value).toPrecision(3)) + ' %';
  const size = Math.abs(value);
  if (!unit && Number.isInteger(value) && size < 1e6) return String(value);
  // "273 m/s" would be metres per second.
  if (unit === '/s' && size < 1) return Number(value.toPrecision(3)) + ' /s';
  const prefixes = [[1e15, 'P'], [1e12, 'T'], [1e9, 'G'], [1e6, 'M'], [1e3, 'k'], [1, ''], [1e-3, 'm'], [1e-6, 'u'], [1e-9, 'n'], [1e-12, 'p']];
  const [scale, prefix] = prefixes.find(([least]) => size >= least * 0.9995) || prefixes[prefixes.length - 1];
  if (!unit && size < 1) return value.toPrecision(3);
  const digits = Number((value / scale).toPrecision(3));
  return digits + (prefix + unit ? ' ' + prefix + unit : '');
}
function unitOf(name) {
  if (!name) return '';
  const base = name.replace(/_per_(token|step|request)$/, '');
  if (/(^|_)(share|utilization|error_estimate|acceptance)(_|$)/.test(base) || /^kv_access_share$/.test(base)) return '%';
  if (/_per_(wall_)?s$/.test(base)) return /bytes/.test(base) ? 'B/s' : '/s';
  if (/_ns$/.test(base)) return 'ns';
  if (/_s$/.test(base)) return 's';
  if (/_j$/.test(base)) return 'J';
  if (/(^|_)bytes(_|$)/.test(base)) return 'B';
  return '';
}
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

function element(kind, properties = {}, ...children) {
  const made = document.createElement(kind);
  for (const [key, value] of Object.entries(properties)) {
    if (key.startsWith('on')) made.addEventListener(key.slice(2), value);
    else if (value !== null && value !== undefined) made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
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
