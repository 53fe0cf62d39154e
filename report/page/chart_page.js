// Charts that are drawn as they are: lines over numbers, or bars of names.
'use strict';
const palette = ['#4477aa', '#ee6677', '#228833', '#ccbb44', '#66ccee', '#aa3377', '#999999', '#cc7711', '#117733', '#882255', '#44aa99', '#ddaa33'];
const charts = [];
// A line has the same colour in all charts.
const names = [];

function shortNumber(value) {
  const inverse = 1 / value;
  if (value > 0 && value < 1 && Math.abs(inverse - Math.round(inverse)) < 1e-9) return '1/' + Math.round(inverse);
  const prefixes = [[1e15, 'P'], [1e12, 'T'], [1e9, 'G'], [1e6, 'M'], [1e4, 'k', 1e3]];
  const found = prefixes.find(([least]) => Math.abs(value) >= least);
  return found ? Number((value / (found[2] || found[0])).toPrecision(3)) + ' ' + found[1] : String(Number(value.toPrecision(4)));
}
function axis(title, log, grows) {
  return {type: log ? 'logarithmic' : 'linear', beginAtZero: grows, title: {display: title !== '', text: title}, ticks: {callback: value => shortNumber(Number(value))}};
}
function lines(chart) {
  const xs = [...new Set(chart.lines.flatMap(line => line.points.map(p => p[0])))].sort((a, b) => a - b);
  const datasets = chart.lines.map(line => {
    const colour = palette[names.indexOf(line.name) % palette.length];
    return {label: line.name, data: line.points.map(([x, y]) => ({x, y})), showLine: true, borderColor: colour, backgroundColor: colour, borderWidth: 2,
            borderDash: line.dashed ? [6, 4] : [], pointRadius: line.dashed ? 0 : 3};
  });
  const x = axis(chart.x, chart.x_log, false);
  // A mark at each place where something was measured, if these are few.
  if (xs.length <= 10) x.afterBuildTicks = scale => { scale.ticks = xs.map(value => ({value})); };
  return {type: 'scatter', data: {datasets}, options: {scales: {x, y: axis(chart.y, chart.y_log, !chart.y_log)}, plugins: {
    tooltip: {callbacks: {label: item => `${item.dataset.label}: ${shortNumber(item.raw.x)}, ${shortNumber(item.raw.y)}`}}}}};
}
function bars(chart) {
  const datasets = [{data: chart.values, backgroundColor: palette[0]}];
  return {type: 'bar', data: {labels: chart.names, datasets}, options: {indexAxis: 'y', scales: {x: axis(chart.x, chart.x_log, true)}, plugins: {legend: {display: false}}}};
}

/// Draws charts, one after the other, into `parent`.
function addCharts(parent, list) {
  for (const chart of list) for (const line of chart.lines) if (!names.includes(line.name)) names.push(line.name);
  for (const chart of list) {
    const canvas = element('canvas', {role: 'img'});
    parent.append(element('div', {class: 'chart'}, canvas));
    const config = chart.names.length ? bars(chart) : lines(chart);
    config.options = {...config.options, animation: false, maintainAspectRatio: false};
    config.options.plugins.title = {display: true, text: chart.title};
    charts.push(new Chart(canvas, config));
  }
}
