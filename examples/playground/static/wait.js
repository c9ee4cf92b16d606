// How long locks were waited for: a histogram.
import { $, millis, setText } from './dom.js';

const short = ms => ms === 0 ? 'more' : ms >= 1000 ? `${ms / 1000}s` : `${ms}`;
const color = name => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const height = 190;

let plot, buckets = [], shown;

function options(width) {
  const axis = { stroke: () => color('muted'), grid: { stroke: () => color('line'), width: 1 }, ticks: { show: false }, font: '11px system-ui, sans-serif' };
  return {
    width, height, legend: { show: false }, cursor: { show: false }, padding: [8, 8, 0, 0],
    scales: { x: { time: false, range: () => [-.6, buckets.length - .4] }, y: { range: (_, __, max) => [0, Math.max(max || 0, 1) * 1.05] } },
    axes: [
      { ...axis, grid: { show: false }, splits: () => buckets.map((_, i) => i).filter(i => buckets.length < 10 || width > 420 || i % 2 === 0),
        values: (_, splits) => splits.map(i => short(buckets[i].le)), label: 'at most, ms', labelSize: 16, labelFont: '11px system-ui, sans-serif', size: 26 },
      { ...axis, size: 46, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 1e6, 1e7] },
    ],
    series: [{}, { stroke: () => color('a'), fill: () => color('a'), paths: uPlot.paths.bars({ size: [.8, 60] }), points: { show: false } }],
  };
}

// trim leaves out what nobody waited for, at the long end.
function trim(all) {
  const last = all.findLastIndex(b => b.n > 0);
  return all.slice(0, Math.max(last + 2, 6));
}

export function showWait(wait) {
  setText($('p50'), millis(wait.p50));
  setText($('p99'), millis(wait.p99));
  const now = JSON.stringify(wait.buckets);
  if (now === shown || !wait.buckets.length) return;
  shown = now;
  buckets = trim(wait.buckets);
  const data = [buckets.map((_, i) => i), buckets.map(b => b.n)], box = $('histogram');
  if (plot) {
    plot.setData(data);
    return;
  }
  plot = new uPlot(options(box.clientWidth), data, box);
  new ResizeObserver(() => plot.setSize({ width: box.clientWidth, height })).observe(box);
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => plot.redraw());
}
