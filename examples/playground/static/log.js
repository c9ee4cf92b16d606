// What happened, in words, latest first: without what happens all the time.
import { $, el, millis, timeOf } from './dom.js';
import { nameOf } from './faults.js';
import { lockOf } from './leases.js';

const mostLines = 100;

// What there is to say of an event, and how bad it is.
function line(e) {
  const fault = nameOf(e);
  switch (e.kind) {
    case 'verdict': return e.text ? ['bad', `VIOLATION: ${e.text}`] : ['', 'The violation is forgotten'];
    case 'lost': return ['bad', `${e.replica} lost ${lockOf(e)}: ${e.text}`];
    case 'killed': return ['fault', e.text ? `${fault}: ${e.text}` : fault];
    case 'refused': return ['', `${e.replica} did not get ${e.key}: ${e.text}${e.ms ? ` after ${millis(e.ms)}` : ''}`];
    case 'write':
      if (e.text === 'refused') return ['fault', `a stale write of ${e.replica} to ${e.key} was refused`];
      return e.text === 'stale' ? ['bad', `a stale write of ${e.replica} to ${e.key} was accepted`] : null;
    case 'task': return e.text === 'duplicate' ? ['', `${e.replica} did not run a task again that was completed`] : null;
    case 'started': return ['', `${e.replica} started`];
    case 'resumed': return ['', `${e.replica} resumed`];
    case 'left': return ['', `${e.replica} shut down`];
    case 'elected': return ['', `${e.replica} leads`];
    case 'node_up': return ['', `node ${e.node} ${e.text}`];
    case 'burst': return ['', `a burst of ${e.text}`];
    case 'scene': return ['', e.text];
    case 'scenario': return ['', `scenario ${e.key} ${e.text}`];
    case 'error': return ['bad', e.text];
    default: return fault ? ['fault', fault] : null;
  }
}

let waiting = [];

export function note(event) {
  const said = line(event);
  if (said) waiting.push([event.at, ...said]);
  if (waiting.length > mostLines) waiting.shift();
}

// showLog adds what has come since the last time.
export function showLog() {
  if (!waiting.length) return;
  const list = $('log').querySelector('ol');
  list.prepend(...waiting.reverse().map(([at, kind, text]) => el('li', {}, el('time', {}, timeOf(at)), el('span', { class: kind }, text))));
  while (list.childElementCount > mostLines) list.lastElementChild.remove();
  waiting = [];
}

export function clearLog() {
  waiting = [];
  $('log').querySelector('ol').replaceChildren();
}
