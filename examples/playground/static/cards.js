// A card for each node and each replica: how it is doing, and buttons for what can be done to it.
import { $, el, millis, setAttr, setText } from './dom.js';
import { send } from './control.js';

// A button does what does(), when it is pressed, says: one that undoes what the other one did has its place, so that the
// keyboard stays where it is.
function button(name, about, does) {
  const node = el('button', { type: 'button', 'data-name': name, 'aria-label': `${name} ${about}` }, name);
  node.addEventListener('click', () => send(does(), node));
  return node;
}

function named(node, name, about) {
  setText(node, name);
  setAttr(node, 'data-name', name);
  setAttr(node, 'aria-label', `${name} ${about}`);
}

// card has a title, a state in words, and facts by name.
function card(id, title, facts, buttons) {
  const state = el('span', { class: 'state' }), values = {}, list = el('dl');
  for (const fact of facts) list.append(el('dt', {}, fact), values[fact] = el('dd', { 'data-fact': fact }));
  const node = el('article', { class: 'card', id, 'aria-label': title }, el('h3', {}, title, state), list,
    el('div', { class: 'buttons', role: 'group', 'aria-label': `Do to ${title}` }, ...buttons));
  return { node, show(is, words, facts) {
    setAttr(node, 'data-state', is);
    setText(state, words);
    for (const [fact, value] of Object.entries(facts)) setText(values[fact], value);
  } };
}

const list = names => names?.length ? names.join(', ') : '–';

function nodeCard(i) {
  const about = `node ${i}`;
  let is = 'up', cut = false;
  const whom = el('select', { 'aria-label': `Cut ${about} off from` }, el('option', { value: '' }, 'from all'),
    ...['a', 'b', 'c'].map(r => el('option', { value: r }, `from ${r}`)));
  const kill = button('Kill', about, () => ({ do: is === 'down' ? 'node_restart' : 'node_kill', node: i }));
  const pause = button('Pause', about, () => ({ do: is === 'paused' ? 'node_resume' : 'node_pause', node: i }));
  const sever = button('Cut off', about, () => cut ? { do: 'node_mend', node: i } : { do: 'node_cut', node: i, replica: whom.value });
  const { node, show } = card(`node-${i}`, `Node ${i}`, ['votes', 'guard', 'latency', 'breaker', 'address'], [
    kill, pause,
    button('Restart with data', about, () => ({ do: 'node_restart', node: i })),
    button('Restart empty', about, () => ({ do: 'node_restart_empty', node: i })),
    button('Flush', about, () => ({ do: 'node_flush', node: i })),
    button('Slow', about, () => ({ do: 'node_slow', node: i, ms: 150 })),
    sever, whom,
  ]);
  return { node, update(n) {
    is = n.state;
    cut = is === 'cut' || is === 'slow';
    named(kill, is === 'down' ? 'Start' : 'Kill', about);
    named(pause, is === 'paused' ? 'Resume' : 'Pause', about);
    named(sever, cut ? 'Mend' : 'Cut off', about);
    show(n.state, n.state, { votes: n.votes ? 'yes' : 'no', guard: n.guard, latency: millis(n.latencyMs), breaker: n.breaker, address: n.addr });
  } };
}

function replicaCard(name) {
  const about = `replica ${name}`;
  let is = 'up', skew = 0;
  const kill = button('Kill', about, () => ({ do: is === 'down' ? 'restart' : 'kill', replica: name }));
  const pause = button('Pause', about, () => ({ do: is === 'paused' ? 'resume' : 'pause', replica: name }));
  const ahead = (label, by) => button(label, about, () => ({ do: 'skew', replica: name, ms: by === 0 ? 0 : skew + by }));
  const { node, show } = card(`replica-${name}`, `Replica ${name}`, ['leads', 'holds', 'waits for', 'clock', 'cut off from'], [
    kill, pause,
    button('Restart', about, () => ({ do: 'restart', replica: name })),
    ahead('Clock −0.5 s', -500), ahead('Clock +0.5 s', 500), ahead('Clock right', 0),
  ]);
  node.style.borderLeftColor = `var(--${name})`;
  return { node, update(r) {
    is = r.state;
    skew = r.skewMs;
    named(kill, is === 'down' ? 'Start' : 'Kill', about);
    named(pause, is === 'paused' ? 'Resume' : 'Pause', about);
    show(r.state, r.state, { leads: r.leader ? 'yes' : 'no', holds: list(r.held), 'waits for': list(r.waiting),
      clock: r.skewMs ? `${r.skewMs > 0 ? '+' : ''}${Math.round(r.skewMs)} ms` : 'right',
      'cut off from': list(r.cut?.map(i => `node ${i}`)) });
  } };
}

const cards = new Map();

function show(within, id, make, value) {
  if (!cards.has(id)) {
    cards.set(id, make());
    document.querySelector(`#${within} .cards`).append(cards.get(id).node);
  }
  cards.get(id).update(value);
}

export function showCards(state) {
  setText($('kind'), state.kind);
  for (const r of state.replicas) show('replicas', `replica-${r.name}`, () => replicaCard(r.name), r);
  for (const n of state.nodes) show('nodes', `node-${n.i}`, () => nodeCard(n.i), n);
}
