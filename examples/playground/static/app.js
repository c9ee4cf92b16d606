// The page: what comes in is kept, and shown with the next picture.
import { $, setAttr, setText } from './dom.js';
import { follow } from './stream.js';
import { Timeline } from './timeline.js';
import { First } from './first.js';
import { showCards } from './cards.js';
import { showCounters } from './counters.js';
import { showWait } from './wait.js';
import { showVerdict, startVerdict } from './verdict.js';
import { hear, showPlay, startPlay } from './play.js';
import { clearLog, note, showLog } from './log.js';

const timeline = new Timeline();
const first = new First(timeline);
const words = { connecting: 'Connecting', live: 'Live', lost: 'The connection is lost; trying again' };

let latest, asked = false;

function show() {
  asked = false;
  showLog();
  if (!latest) return;
  showVerdict(latest);
  first.show(latest);
  showPlay(latest);
  showCards(latest);
  showCounters(latest.counters);
  showWait(latest.wait);
  latest = undefined;
}

function ask() {
  if (asked) return;
  asked = true;
  requestAnimationFrame(show);
}

startVerdict();
startPlay();
follow({
  begins() {
    timeline.clear();
    first.clear();
    clearLog();
  },
  state(state) {
    latest = state;
    timeline.sync(state.now);
    ask();
  },
  events(events) {
    for (const event of events) {
      timeline.add(event);
      first.hear(event);
      hear(event);
      note(event);
    }
    ask();
  },
  status(is) {
    setAttr($('connection'), 'data-state', is);
    setText($('connection'), words[is]);
  },
});
