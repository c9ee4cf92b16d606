// The numbers that must be right.
import { $, el, setAttr, setText } from './dom.js';

// Each row: its name, the number, and what it must be: a text, and whether it is that. Without the last there is nothing
// that it must be.
const rows = [
  ['Cron: runs', c => c.runs, c => `at most one for each of ${c.ticks} ticks`, c => c.runs <= c.ticks],
  ['Tasks: completed', c => c.completed, c => `each of ${c.tasks} once`, c => c.completed <= c.tasks],
  ['Tasks: completed twice', c => c.again, () => '0', c => c.again === 0],
  ['… again, when nodes had forgotten it', c => c.forgotten, () => 'any number, with nodes emptied'],
  ['Tasks: duplicates not run', c => c.duplicates, () => 'any number'],
  ['Updates with the lock', c => c.updates, () => 'any number'],
  ['… of these lost', c => c.lost_with, () => '0', c => c.lost_with === 0],
  ['Updates lost without it', c => c.lost_without, () => 'that is what locks are for'],
  ['Stale writes refused', c => c.stale_refused, () => 'any number'],
  ['Stale writes accepted', c => c.stale_accepted, () => '0', c => c.stale_accepted === 0],
  ['Leases granted', c => c.grants, () => 'any number'],
  ['Leases lost', c => c.losses, () => 'any number, with faults'],
];

let cells;

function build() {
  const body = $('counters').querySelector('tbody');
  return rows.map(([name]) => {
    const number = el('td', { class: 'number' }), should = el('td');
    body.append(el('tr', { 'data-name': name }, el('th', { scope: 'row' }, name), number, should));
    return { number, should };
  });
}

export function showCounters(counters) {
  cells ??= build();
  rows.forEach(([, number, should, right], i) => {
    setText(cells[i].number, number(counters));
    const is = right?.(counters);
    setText(cells[i].should, (is === undefined ? '' : is ? '✓ ' : '✗ ') + should(counters));
    setAttr(cells[i].should, 'class', is === undefined ? 'muted' : is ? 'good' : 'bad');
  });
}
