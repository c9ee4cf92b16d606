// What to do first: kill the replica that leads, and see on the timeline who takes over, and when.
import { $, setAttr, setText } from './dom.js';
import { send } from './control.js';

const key = 'leader';
const begin = 'Three replicas of a service share the locks below, and one of them leads. ';

export class First {
  #timeline;
  #killed; // { replica, at, next }: whose death is followed
  #leader = '';
  #victim = ''; // whom the visitor kills; another may lead before that is done
  #button = $('first-button');

  constructor(timeline) {
    this.#timeline = timeline;
    this.#button.addEventListener('click', () => this.#press());
  }

  clear() {
    this.#killed = undefined;
    this.#victim = '';
    this.#timeline.mark = undefined;
  }

  hear(event) {
    const killed = this.#killed;
    if (event.kind === 'killed' && (event.replica === this.#leader || event.replica === this.#victim)) {
      this.#killed = { replica: event.replica, at: event.at };
    } else if (event.kind === 'started' && event.replica === killed?.replica) {
      this.clear();
    } else if (event.kind === 'grant' && event.key === key && killed && !killed.next && event.replica !== killed.replica) {
      killed.next = { replica: event.replica, at: event.at };
    }
  }

  show({ replicas }) {
    const leads = replicas.find(r => r.leader && r.state === 'up')?.name;
    const killed = this.#killed;
    if (!killed) this.#leader = leads ?? this.#leader;
    const name = killed ? `Start replica ${killed.replica} again` : 'Kill the leader';
    setText(this.#button, name);
    setAttr(this.#button, 'aria-disabled', !killed && !leads);
    setText($('first-text'), this.#sentence(leads));
    this.#timeline.mark = killed && { key, at: killed.at, to: killed.next?.at, text: this.#arrow() };
  }

  #sentence(leads) {
    const killed = this.#killed;
    if (!killed) return begin + (leads ? `Now it is replica ${leads}: kill it, and see who takes over.` : 'The next leader is being elected.');
    if (!killed.next) return `Replica ${killed.replica} is dead. Nobody leads until its lease has run out: see the arrow.`;
    return `Replica ${killed.next.replica} took over ${this.#wait()} after replica ${killed.replica} was killed, when the dead one’s lease had run out. At no time did two lead.`;
  }

  #arrow() {
    const { replica, next } = this.#killed;
    return next ? `${next.replica} took over after ${this.#wait()}` : `${replica} was killed`;
  }

  #wait() { return `${((this.#killed.next.at - this.#killed.at) / 1000).toFixed(1)} s`; }

  #press() {
    if (this.#button.getAttribute('aria-disabled') === 'true') return;
    const killed = this.#killed;
    if (!killed) this.#victim = this.#leader;
    send(killed ? { do: 'restart', replica: killed.replica } : { do: 'kill', replica: this.#leader }, this.#button);
  }
}
