// The verdict, always in sight, and said aloud when it changes.
import { $, setAttr, setText } from './dom.js';
import { send } from './control.js';

export function showVerdict({ verdict, unsafe }) {
  setAttr($('verdict'), 'data-ok', verdict.ok);
  setText($('verdict-word'), verdict.ok ? '✓ All is right:' : '✗ Violation:');
  setText($('verdict-text'), verdict.text);
  $('reset').hidden = verdict.ok;
  const off = [unsafe.guard && 'the restart guard is off', unsafe.fencing && 'fencing is off'].filter(Boolean).join(', ');
  const note = $('unsafe-note');
  setText(note, off && `⚠ Unsafe: ${off}`);
  note.hidden = !off;
}

export function startVerdict() {
  $('reset').addEventListener('click', async event => {
    if (await send({ do: 'reset' }, event.target)) $('download').focus(); // the button goes away
  });
}
