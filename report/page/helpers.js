// Numbers with units, elements and colours: for all pages.
'use strict';
/// 0.0123 s as "12.3 ms": three digits and a prefix of the unit.
function readable(value, name) {
  if (value === null || value === undefined) return '-';
  if (typeof value !== 'number') return String(value);
  let unit = unitOf(name);
  if (unit === 'ns') [value, unit] = [value * 1e-9, 's'];
  if (value === 0) return unit ? '0 ' + unit : '0';
  if (unit === 'tokens/s' || unit === 'IOPS') return Number(value.toPrecision(3)).toLocaleString('en') + ' ' + unit;
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
  if (/(^|_)(share|utilization|error_estimate|acceptance|hit_rate|attainment)(_|$)/.test(base) || /^kv_access_share$/.test(base)) return '%';
  if (/tokens_per_s$/.test(base)) return 'tokens/s';
  if (/iops$/.test(base)) return 'IOPS';
  if (base === 'goodput') return '/s';
  if (/_per_(wall_)?s$/.test(base)) return /bytes/.test(base) ? 'B/s' : '/s';
  if (/_ns$/.test(base)) return 'ns';
  if (/_s$/.test(base)) return 's';
  if (/_j$/.test(base)) return 'J';
  if (/(^|_)bytes(_|$)/.test(base)) return 'B';
  return '';
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
/// A colour of the theme.
function colour(name) { return getComputedStyle(document.documentElement).getPropertyValue(name).trim(); }
/// Shows a theme, and draws with its colours.
function applyTheme(theme) {
  const dark = theme === 'dark' || (theme === 'auto' && matchMedia('(prefers-color-scheme: dark)').matches);
  document.documentElement.dataset.theme = dark ? 'dark' : 'light';
  Chart.defaults.color = colour('--text');
  Chart.defaults.borderColor = colour('--line');
}
