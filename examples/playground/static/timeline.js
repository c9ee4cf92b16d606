// The timeline: a lane for each key, scrolling; it can be paused and moved.
import { $, setAttr, setText, timeOf } from './dom.js';
import { Leases, endOf, isHeld, isLost, overlaps } from './leases.js';
import { Faults } from './faults.js';
import { Painter } from './paint.js';

const lag = 400; // ms: what is newer may not have been heard of
const keep = 130_000; // ms that can be looked at
const frame = 60; // ms between two pictures
const ahead = 1 / 10; // of the width: how long leases may be trusted yet

export class Timeline {
  leases = new Leases();
  faults = new Faults();
  mark; // what an arrow points to: { key, at, to, text }
  #span;
  #paused = 0; // the instant that is shown as now, if it is paused
  #ahead; // of this browser's clock, the playground's
  #held; // the instant at which the playground ceased to answer; undefined while it does
  #painted = -Infinity;
  #tidied = 0;
  #scene;
  #painter = new Painter($('canvas'));

  constructor() {
    const select = $('span');
    select.value = matchMedia('(max-width: 640px)').matches ? '10' : '20';
    const spanned = () => { this.#span = 1000 * select.value; this.#painted = -Infinity; };
    select.addEventListener('change', spanned);
    spanned();
    $('pause').addEventListener('click', () => this.#pause(!this.#paused));
    document.addEventListener('keydown', event => this.#key(event));
    const lanes = $('lanes');
    lanes.addEventListener('pointermove', event => this.#point(event));
    lanes.addEventListener('pointerdown', event => this.#point(event));
    lanes.addEventListener('pointerleave', () => { $('tip').hidden = true; });
    new ResizeObserver(() => { this.#painted = -Infinity; }).observe(lanes);
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => this.#painter.theme());
    const paint = now => {
      if (now - this.#painted >= frame && this.#ahead !== undefined) {
        this.#painted = now;
        this.#paint();
      }
      requestAnimationFrame(paint);
    };
    requestAnimationFrame(paint);
  }

  // sync takes the time of the playground. The quickest message is the one to go by.
  sync(at) {
    const ahead = at - performance.now();
    if (this.#ahead === undefined || ahead > this.#ahead || ahead < this.#ahead - 5000) this.#ahead = ahead;
  }

  add(event) {
    this.leases.add(event);
    this.faults.add(event);
  }

  clear() {
    this.leases.clear();
    this.faults.clear();
  }

  // hold stops the time while the playground does not answer: the past stays in sight.
  hold(held) { this.#held = held ? this.#now : undefined; }

  get #now() { return this.#held ?? performance.now() + this.#ahead - lag; }

  #pause(paused) {
    this.#paused = paused ? this.#now : 0;
    setAttr($('pause'), 'aria-pressed', paused);
    setText($('pause'), paused ? 'Go on' : 'Pause');
  }

  #key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || this.#ahead === undefined) return;
    const on = event.target;
    if (event.key === ' ' && !on.closest('button, a, select, input, [contenteditable]')) {
      event.preventDefault();
      this.#pause(!this.#paused);
    } else if (on === $('lanes') && (event.key === 'ArrowLeft' || event.key === 'ArrowRight')) {
      event.preventDefault();
      if (!this.#paused) this.#pause(true);
      const step = event.key === 'ArrowLeft' ? -this.#span / 10 : this.#span / 10;
      this.#paused = Math.min(this.#now, Math.max(this.#now - keep + this.#span, this.#paused + step));
    }
  }

  #paint() {
    const now = this.#now, at = this.#paused || now, to = at + this.#span * ahead, from = to - this.#span;
    if (now - this.#tidied > 1000) {
      this.#tidied = now;
      this.leases.forget(now - keep);
      this.faults.forget(now - keep);
    }
    const { lanes, more } = this.leases.within(from, at);
    for (const lane of lanes) lane.overlaps = overlaps(lane.leases, at).filter(o => o.to >= from);
    this.#scene = { from, to, at, lanes, faults: this.faults.within(from, at), mark: this.mark, paused: this.#paused > 0 };
    this.#painter.paint(this.#scene);
    this.#tell(more);
  }

  // tell says in words, and to tests, what is to be seen.
  #tell(more) {
    const { lanes, faults, at } = this.#scene;
    let held = 0, lost = 0, both = 0;
    for (const lane of lanes) {
      held += lane.leases.length;
      lost += lane.leases.filter(lease => isLost(lease, at)).length;
      both += lane.overlaps.length;
    }
    const seen = $('seen');
    for (const [name, n] of Object.entries({ keys: lanes.length, leases: held, lost, faults: faults.length, overlaps: both, kept: this.leases.all.length, marks: this.mark ? 1 : 0 })) {
      setAttr(seen, `data-${name}`, n);
    }
    setText(seen, `${this.#paused ? 'Paused: ' : ''}${held} leases of ${lanes.length}${more ? ` (and ${more} more)` : ''} keys, ${lost} lost; ${faults.length} faults` +
      (both ? `; TWO HOLDERS ${both} times` : ''));
  }

  #point(event) {
    const tip = $('tip'), box = $('canvas').getBoundingClientRect();
    const lease = this.#scene && this.#painter.leaseAt(this.#scene, event.clientX - box.left, event.clientY - box.top);
    tip.hidden = !lease;
    if (!lease) return;
    const over = isLost(lease, this.#scene.at) ? ` Lost: ${lease.lost || 'it ran out'}.` : isHeld(lease, this.#scene.at) ? ' Still held.' : '';
    setText(tip, `${lease.key}: replica ${lease.replica}, token ${lease.token}, from ${timeOf(lease.at)} for ${Math.round(endOf(lease, this.#scene.at) - lease.at)} ms.${over}`);
    const left = Math.min(event.clientX - box.left + 12, box.width - tip.offsetWidth);
    tip.style.transform = `translate(${Math.max(0, left)}px, ${event.clientY - box.top + 16}px)`;
  }
}
