// What was done to nodes and replicas, as spans of time on the timeline, and as lines of the log.

const mostFaults = 400;

const ofNode = event => `node ${event.node}`;
const from = event => event.replica ? ` from ${event.replica}` : '';

// What begins a fault: what it is about, so that its end can be found, and what it is called.
const begins = {
  killed: e => [`replica ${e.replica}`, `${e.replica} killed`],
  paused: e => [`replica ${e.replica}`, `${e.replica} paused`],
  node_down: e => [ofNode(e), `node ${e.node} killed`],
  node_paused: e => [ofNode(e), `node ${e.node} paused`],
  node_cut: e => [`network ${e.node}`, `node ${e.node} cut off${from(e)}`],
  node_slow: e => [`network ${e.node}`, `node ${e.node} slow by ${Math.round(e.ms)} ms`],
};

// What happens at once.
const moments = {
  node_emptied: e => `node ${e.node} emptied`,
  node_flushed: e => `node ${e.node} flushed`,
  skewed: e => `${e.replica}’s clock ${e.ms ? `${e.ms > 0 ? '+' : ''}${Math.round(e.ms)} ms` : 'right'}`, // without ms: it is 0
  mode: e => e.text,
};

// What ends faults.
const ends = {
  started: e => `replica ${e.replica}`,
  resumed: e => `replica ${e.replica}`,
  left: e => `replica ${e.replica}`,
  node_emptied: ofNode,
  node_up: e => e.text === 'mended' ? `network ${e.node}` : ofNode(e),
};

// nameOf is the fault that begins with an event, if one does.
export const nameOf = event => begins[event.kind]?.(event)[1] ?? moments[event.kind]?.(event);

export class Faults {
  all = [];

  add(event) {
    const over = ends[event.kind]?.(event) ?? begins[event.kind]?.(event)[0];
    const extends_ = event.kind === 'node_cut' || event.kind === 'node_slow'; // one network fault does not end another
    if (over && !extends_) this.#end(over, event.at);
    const name = nameOf(event);
    if (!name) return;
    const moment = event.kind in moments;
    this.all.push({ about: moment ? '' : over, name, at: event.at, end: moment ? event.at : 0 });
    if (this.all.length > mostFaults) this.all.shift();
  }

  #end(about, at) {
    for (const fault of this.all) if (fault.about === about && !fault.end) fault.end = at;
  }

  forget(before) { this.all = this.all.filter(fault => !fault.end || fault.end >= before); }

  clear() { this.all = []; }

  within(from, to) { return this.all.filter(fault => fault.at <= to && (!fault.end || fault.end >= from)); }
}
