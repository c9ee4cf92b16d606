// The leases of the timeline: what each holder was told. What is over and has scrolled out is forgotten.

export const mostLeases = 4000;
const mostKeys = 16;

// lockOf is the name of what an event is about: a key, or a slot of a semaphore, which has a lane of its own.
export const lockOf = event => event.slot === undefined ? event.key : `${event.key} slot ${event.slot}`;

export class Leases {
  all = []; // in the order in which they were heard of
  #open = new Map();

  add(event) {
    const key = lockOf(event), id = `${event.replica} ${event.token} ${key}`;
    switch (event.kind) {
      case 'grant': {
        const lease = { id, key, replica: event.replica, token: event.token, at: event.at, until: event.until, end: 0, lost: '' };
        this.all.push(lease);
        this.#open.set(id, lease);
        if (this.all.length >= 2 * mostLeases) this.forget(0);
        break;
      }
      case 'renew': {
        const lease = this.#open.get(id);
        if (lease) lease.until = Math.max(lease.until, event.until);
        break;
      }
      case 'end':
        this.#end(this.#open.get(id), event.at, '');
        break;
      case 'lost':
        this.#end(this.#open.get(id), event.at, event.text || 'lost');
        break;
      case 'killed':
      case 'left':
        for (const lease of [...this.#open.values()]) {
          if (lease.replica === event.replica) this.#end(lease, event.at, event.kind === 'killed' ? 'its replica was killed' : '');
        }
    }
  }

  #end(lease, at, lost) {
    if (!lease) return;
    lease.end = Math.max(lease.at, Math.min(at, lease.until));
    lease.lost = lost;
    this.#open.delete(lease.id);
  }

  // forget drops what was over before an instant, and the oldest of what is too much.
  forget(before) {
    this.all = this.all.filter(lease => endOf(lease, Infinity) >= before);
    for (const lease of this.all.splice(0, this.all.length - mostLeases)) this.#open.delete(lease.id);
    for (const [id, lease] of this.#open) if (lease.until < before) this.#open.delete(id);
  }

  clear() {
    this.all = [];
    this.#open.clear();
  }

  get openCount() { return this.#open.size; }

  // within returns the leases between two instants by key, in the order of keys, and how many keys are too many to show.
  within(from, to) {
    const lanes = new Map();
    for (const lease of this.all) {
      if (lease.at > to || endOf(lease, to) < from) continue;
      if (!lanes.has(lease.key)) lanes.set(lease.key, []);
      lanes.get(lease.key).push(lease);
    }
    const keys = [...lanes.keys()].sort();
    const more = Math.max(0, keys.length - mostKeys);
    return { lanes: keys.slice(0, mostKeys).map(key => ({ key, leases: lanes.get(key).sort((a, b) => a.at - b.at) })), more };
  }
}

// endOf is when a lease was over, as far as is known at an instant: at the latest when it ran out.
export const endOf = (lease, now) => Math.min(lease.end || lease.until, now);

// isHeld reports whether a lease is not over at an instant, as far as is known.
export const isHeld = (lease, now) => endOf(lease, Infinity) > now;

// isLost reports whether a lease was lost, be it that it ran out while its holder was asleep.
export const isLost = (lease, now) => lease.end ? lease.lost !== '' && lease.end <= now : lease.until < now - lateness;

// lateness is how long after it happened an event may be heard of.
export const lateness = 1500;

// overlaps returns when two leases of a key were held at a time: it must be empty. A lease whose end may not have been
// heard of yet is not held against the next one.
export function overlaps(leases, now) {
  const found = [];
  let last;
  for (const lease of leases) {
    if (last && lease.at < endOf(last, now)) {
      const to = Math.min(endOf(last, now), endOf(lease, now));
      if (to > lease.at && (last.end || lease.at < now - lateness)) found.push({ from: lease.at, to });
    }
    if (!last || endOf(lease, now) > endOf(last, now)) last = lease;
  }
  return found;
}
