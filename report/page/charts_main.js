// The page of charts alone.
'use strict';
document.getElementById('title').textContent = document.title;
applyTheme('auto');
addCharts(document.getElementById('view'), JSON.parse(document.getElementById('data').textContent));
