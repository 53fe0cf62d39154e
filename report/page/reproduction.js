// The pictures of a reproduction, and its theme; all else is in the page.
'use strict';
const curves = JSON.parse(document.getElementById('data').textContent);
function show() {
  for (const chart of charts.splice(0)) chart.destroy();
  applyTheme(document.getElementById('theme').value);
  const panels = document.getElementById('pictures');
  panels.replaceChildren();
  addCharts(panels, curves.map(c => ({title: c.title, x: c.x_title || c.axis, y: c.y_title || c.metric, x_log: true, y_log: c.y_log, names: [], values: [],
    lines: c.series.map(s => ({name: s.name, dashed: false, points: s.points.map(p => [p.x, p.y])}))})));
}
document.getElementById('theme').addEventListener('change', show);
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', show);
show();
