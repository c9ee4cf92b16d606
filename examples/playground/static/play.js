// Bursts, scenarios, and what can be turned off.
import { $, setAttr, setText } from './dom.js';
import { send } from './control.js';

let off = {};

export function startPlay() {
  for (const button of document.querySelectorAll('#play [data-do]')) {
    const { do: what, n, name } = button.dataset;
    button.addEventListener('click', () => send(n ? { do: what, n: Number(n) } : { do: what, name }, button));
  }
  for (const what of ['guard', 'fencing']) {
    const button = $(what);
    button.addEventListener('click', () => send({ do: 'unsafe', [what]: !off[what] }, button));
  }
}

export function showPlay({ unsafe, scenario }) {
  off = unsafe;
  setAttr($('guard'), 'aria-checked', !unsafe.guard);
  setAttr($('fencing'), 'aria-checked', !unsafe.fencing);
  for (const button of document.querySelectorAll('#play [data-name]')) {
    if (button.dataset.name === scenario) setAttr(button, 'aria-current', 'true');
    else button.removeAttribute('aria-current');
  }
}

// hear shows what a scenario says that it does.
export function hear(event) {
  if (event.kind === 'scene') setText($('scene'), event.text);
  if (event.kind !== 'scenario') return;
  const ends = event.text === 'begins' ? '' : $('scene').textContent.replace(/[^.]$/, '$&.');
  setText($('scene'), `${ends} Scenario ${event.key}${/^(begins|is over)$/.test(event.text) ? '' : ':'} ${event.text}.`.trim());
}
