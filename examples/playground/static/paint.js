// Drawing the timeline. A replica's bars have its colour, its letter, and its height within the lane: a above, c below.
import { timeOf } from './dom.js';
import { endOf, isHeld, isLost } from './leases.js';

const barHeight = 14, step = 5, laneHeight = barHeight + 2 * step + 4, nameHeight = 14, axisHeight = 18, faultHeight = 15;
const narrow = 640; // px: names above the bars, not beside them
const gutterWidth = 140;
const fewestLanes = 6, mostFaultRows = 4;
const rows = { a: 0, b: 1, c: 2 };
const font = (size, weight = '') => `${weight} ${size}px system-ui, sans-serif`;

export class Painter {
  #canvas;
  #context;
  #colors;
  #lanes = fewestLanes; // does not shrink, so that the page does not jump

  constructor(canvas) {
    this.#canvas = canvas;
    this.#context = canvas.getContext('2d');
    this.theme();
  }

  // theme reads the colours of the page.
  theme() {
    const style = getComputedStyle(document.documentElement);
    this.#colors = {};
    for (const name of ['card', 'text', 'muted', 'line', 'edge', 'bad', 'warn', 'a', 'on-a', 'b', 'on-b', 'c', 'on-c']) {
      this.#colors[name] = style.getPropertyValue(`--${name}`).trim();
    }
  }

  // place is where things are.
  #place(scene) {
    const width = this.#canvas.clientWidth;
    const gutter = width < narrow ? 0 : gutterWidth;
    const lane = gutter ? laneHeight : laneHeight + nameHeight;
    const top = axisHeight + mostFaultRows * faultHeight;
    const scale = (width - gutter) / (scene.to - scene.from);
    return { width, gutter, lane, top, height: top + this.#lanes * lane, x: at => gutter + (at - scene.from) * scale,
      y: (i, replica) => top + i * lane + (gutter ? 2 : nameHeight) + step * (rows[replica] ?? 0) };
  }

  paint(scene) {
    this.#lanes = Math.max(this.#lanes, scene.lanes.length);
    const p = this.#place(scene), c = this.#context;
    this.#fit(p);
    c.clearRect(0, 0, p.width, p.height);
    this.#axis(scene, p);
    c.save();
    c.beginPath();
    c.rect(p.gutter, 0, p.width - p.gutter, p.height);
    c.clip();
    this.#faults(scene, p);
    scene.lanes.forEach((lane, i) => {
      for (const lease of lane.leases) this.#bar(lease, p, i, scene);
      for (const both of lane.overlaps) this.#overlap(both, p, i);
    });
    this.#mark(scene, p);
    c.restore();
    this.#names(scene, p);
  }

  #fit({ width, height }) {
    const sharp = Math.min(devicePixelRatio || 1, 2), canvas = this.#canvas;
    const w = Math.round(width * sharp), h = Math.round(height * sharp);
    if (canvas.width !== w || canvas.height !== h) {
      canvas.width = w;
      canvas.height = h;
      canvas.style.height = `${height}px`;
    }
    this.#context.setTransform(sharp, 0, 0, sharp, 0, 0);
  }

  #axis({ from, to, at: now }, { x, height, width, gutter }) {
    const c = this.#context, colors = this.#colors;
    const every = 1000 * ([1, 2, 5, 10, 20].find(s => (width - gutter) / ((to - from) / 1000 / s) > 70) ?? 30);
    c.font = font(11);
    c.textAlign = 'left';
    for (let at = Math.ceil(from / every) * every; at < to; at += every) {
      c.fillStyle = colors.line;
      c.fillRect(x(at), 0, 1, height);
      c.fillStyle = colors.muted;
      c.fillText(timeOf(at), x(at) + 3, 12);
    }
    c.fillStyle = colors.edge;
    c.fillRect(x(now), axisHeight, 1, height);
  }

  // faults are bars above the lanes, in as many rows as they need, and lines across.
  #faults({ faults, from, at }, { x, height }) {
    const c = this.#context, colors = this.#colors, free = [];
    c.font = font(11, '600');
    for (const fault of faults) {
      const left = Math.max(x(fault.at), x(from)), right = Math.max(x(fault.end || at), left + 3);
      c.fillStyle = colors.warn;
      c.globalAlpha = .5;
      if (fault.at >= from) c.fillRect(left, axisHeight, 1, height);
      c.globalAlpha = 1;
      let row = 0;
      while (free[row] > left) row++;
      if (row >= mostFaultRows) continue; // it is in the log
      const y = axisHeight + row * faultHeight;
      free[row] = Math.max(right, left + 6 + c.measureText(fault.name).width) + 6;
      c.fillRect(left, y, right - left, 3);
      c.fillText(fault.name, left + 3, y + 13);
    }
  }

  #bar(lease, { x, y }, i, { from, at }) {
    const c = this.#context, colors = this.#colors;
    const left = x(Math.max(lease.at, from - 1000)), right = Math.max(x(endOf(lease, at)), left + 1.5), top = y(i, lease.replica);
    if (isHeld(lease, at)) { // what it may be trusted for, if it is not renewed
      c.strokeStyle = colors.edge;
      c.setLineDash([3, 3]);
      c.strokeRect(left + .5, top + .5, x(lease.until) - left, barHeight - 1);
      c.setLineDash([]);
    }
    c.fillStyle = colors[lease.replica] ?? colors.edge;
    c.fillRect(left, top, right - left, barHeight);
    if (isLost(lease, at)) this.#lost(left, right, top);
    this.#label(lease, Math.max(left, x(from)), right, top);
  }

  // lost is a red frame, and a red end with a cross.
  #lost(left, right, top) {
    const c = this.#context;
    c.strokeStyle = c.fillStyle = this.#colors.bad;
    c.lineWidth = 2;
    c.strokeRect(left, top, right - left, barHeight);
    c.fillRect(right - 3, top - 2, 6, barHeight + 4);
    c.beginPath();
    c.moveTo(right + 6, top + 3);
    c.lineTo(right + 14, top + 11);
    c.moveTo(right + 14, top + 3);
    c.lineTo(right + 6, top + 11);
    c.stroke();
    c.lineWidth = 1;
  }

  #label(lease, left, right, top) {
    const c = this.#context, room = right - left - 6;
    if (room < 8) return;
    c.font = font(11);
    c.fillStyle = this.#colors[`on-${lease.replica}`] ?? this.#colors.card;
    const token = String(lease.token);
    const text = [`${lease.replica} ${token}`, `${lease.replica} …${token.slice(-8)}`, lease.replica].find(t => t.length * 6.6 < room);
    if (text) c.fillText(text, left + 4, top + 11);
  }

  // overlap is where two held a key at a time.
  #overlap({ from, to }, { x, lane, top, gutter }, i) {
    const c = this.#context, left = x(from), width = Math.max(x(to) - left, 3), y = top + i * lane + (gutter ? 0 : nameHeight - 2);
    c.fillStyle = c.strokeStyle = this.#colors.bad;
    c.globalAlpha = .35;
    c.fillRect(left, y, width, laneHeight);
    c.globalAlpha = 1;
    c.lineWidth = 2;
    c.strokeRect(left, y + 1, width, laneHeight - 2);
    c.lineWidth = 1;
    c.font = font(11, 'bold');
    c.fillText('two holders', left + width + 4, y + 11);
  }

  // mark is an arrow under the bars of a key, from an instant to another, or to now, with a text.
  #mark({ lanes, mark, from, to, at: now }, { x, top, lane, gutter, width }) {
    const i = mark ? lanes.findIndex(({ key }) => key === mark.key) : -1;
    if (i < 0 || (mark.to ?? now) < from || mark.at > to) return;
    const c = this.#context, left = x(Math.max(mark.at, from)), right = Math.max(x(mark.to ?? now), left + 10);
    const y = top + i * lane + lane / 2 + (gutter ? 0 : nameHeight / 2);
    c.strokeStyle = c.fillStyle = this.#colors.text;
    c.lineWidth = 2;
    c.beginPath();
    c.moveTo(left, y);
    c.lineTo(right - 2, y);
    c.moveTo(right - 8, y - 5);
    c.lineTo(right - 1, y);
    c.lineTo(right - 8, y + 5);
    c.stroke();
    c.lineWidth = 1;
    c.font = font(12, 'bold');
    const wide = c.measureText(mark.text).width;
    const at = Math.max(gutter + 4, Math.min(left + 4, width - wide - 4));
    c.fillStyle = this.#colors.card;
    c.globalAlpha = .85;
    c.fillRect(at - 3, y - 19, wide + 6, 15);
    c.globalAlpha = 1;
    c.fillStyle = this.#colors.text;
    c.fillText(mark.text, at, y - 7);
  }

  #names({ lanes, paused }, { gutter, top, lane, width }) {
    const c = this.#context, colors = this.#colors;
    c.font = font(12);
    lanes.forEach(({ key }, i) => {
      const y = top + i * lane;
      c.fillStyle = colors.line;
      c.fillRect(0, y, width, 1);
      c.fillStyle = colors.text;
      c.fillText(key, 2, y + (gutter ? lane / 2 + 4 : 12), gutter ? gutter - 8 : width / 2);
    });
    if (gutter) {
      c.fillStyle = colors.muted;
      c.fillText(paused ? 'paused' : 'faults', 2, axisHeight + 12);
    }
  }

  // leaseAt is what is drawn at a point.
  leaseAt(scene, px, py) {
    const p = this.#place(scene), i = Math.floor((py - p.top) / p.lane);
    return scene.lanes[i]?.leases.findLast(lease => {
      const top = p.y(i, lease.replica);
      return px >= p.x(lease.at) - 2 && px <= p.x(endOf(lease, scene.at)) + 2 && py >= top - 1 && py <= top + barHeight + 1;
    });
  }
}
