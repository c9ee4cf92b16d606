// What is fixed for a run: the TTL of its leases, and when it ends.
import { $, millis, setText, timeOf } from './dom.js';

export function showFacts({ ttlMs, endsAt }) {
  setText($('ttl'), `The TTL of a lease is ${millis(ttlMs)}: a dead replica keeps its keys for no longer.`);
  const ends = endsAt ? `This playground plays by itself, and ends at about ${timeOf(endsAt)}.` : 'This playground ends with Ctrl-C in its terminal.';
  setText($('ends'), `${ends} Without a terminal and without -for, it ends after a minute.`);
}
