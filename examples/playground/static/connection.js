// Whether the playground answers. While it does not, the page is grey, and shows what it was told last.
import { $, setAttr, setText, timeOf } from './dom.js';

let latest; // the state that was told last
let wasLost = false; // since the state that was told last

export function showConnection(status) {
  wasLost ||= status === 'lost';
  setAttr(document.body, 'data-connection', status);
  setAttr($('connection'), 'data-state', status);
  if (status === 'lost') setText($('connection'), ended());
  else if (!wasLost) setText($('connection'), 'Live');
}

function ended() {
  const shown = latest ? `This page shows what it told until ${timeOf(latest.now)}. ` : '';
  return `The playground has ended, or does not answer. ${shown}Start it again at the same address, and the page follows it.`;
}

// hearState hears which playground it is that answers.
export function hearState(state) {
  const isAnother = latest && latest.began !== state.began;
  latest = state;
  if (isAnother) setText($('connection'), `Live: another playground, begun at ${timeOf(state.began)}. Of the one before, only the violations are kept.`);
  else if (wasLost) setText($('connection'), 'Live again: the same playground goes on.');
  wasLost = false;
}
