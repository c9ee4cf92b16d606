// The page: what comes in is kept, and shown with the next picture.
import { $ } from './dom.js';
import { follow } from './stream.js';
import { Timeline } from './timeline.js';
import { First } from './first.js';
import { showCards } from './cards.js';
import { showCounters } from './counters.js';
import { showWait } from './wait.js';
import { showVerdict, startVerdict } from './verdict.js';
import { hearViolation, showViolations } from './violations.js';
import { showFacts } from './facts.js';
import { hearState, showConnection } from './connection.js';
import { hear, showPlay, startPlay } from './play.js';
import { clearLog, note, showLog } from './log.js';

const timeline = new Timeline();
const first = new First(timeline);

let latest, asked = false;

function show() {
  asked = false;
  showLog();
  if (!latest) return;
  showVerdict(latest);
  showViolations(latest);
  showFacts(latest);
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

// What is scrolled to comes to lie below the header, whose height changes.
new ResizeObserver(([{ target }]) => {
  document.documentElement.style.scrollPaddingTop = `${target.offsetHeight + 8}px`;
}).observe($('top'));

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
    hearState(state);
    timeline.sync(state.now);
    ask();
  },
  events(events) {
    for (const event of events) {
      timeline.add(event);
      first.hear(event);
      hear(event);
      hearViolation(event);
      note(event);
    }
    ask();
  },
  status(is) {
    showConnection(is);
    timeline.hold(is === 'lost');
  },
});
