// The violations that this page has seen. They stay when they are forgotten, when the log has moved on, and when the
// playground has ended.
import { $, el, setText, timeOf } from './dom.js';

const most = 100;
let seen = []; // { at, text, guessed }, the earliest first

// The past is sent again after the connection was lost, so a violation may be heard of twice.
export function hearViolation({ kind, at, text }) {
  if (kind !== 'verdict' || !text || seen.some(v => v.at === at)) return;
  seen = seen.filter(v => !v.guessed || v.text !== text);
  add({ at, text });
}

// showViolations also looks at the verdict. Its event comes a moment later, or may not be kept any more: the time is a guess.
export function showViolations({ now, verdict }) {
  if (!verdict.ok && !seen.some(v => v.text === verdict.text)) add({ at: now, text: verdict.text, guessed: true });
}

function add(violation) {
  seen = [...seen, violation].slice(-most);
  const lines = seen.map(v => el('li', {}, el('time', {}, timeOf(v.at)), v.text));
  $('violations').querySelector('ol').replaceChildren(...lines.reverse());
  $('violations').hidden = $('to-violations').hidden = false;
  setText($('to-violations'), `Violations: ${seen.length}`);
}
