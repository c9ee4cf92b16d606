// What the playground sends: the state twice a second, and events as they happen. Where the connection breaks it is made
// again, and the past is sent anew.

const silence = 5_000; // ms; there is a state every half second
const retry = 1_000;

export function follow({ begins, state, events, status }) {
  let source, heard;

  const listen = (name, take) => source.addEventListener(name, message => {
    heard = performance.now();
    take(JSON.parse(message.data));
  });

  const connect = () => {
    source?.close();
    source = new EventSource('/events');
    heard = performance.now();
    source.addEventListener('open', () => {
      status('live');
      begins();
    });
    source.addEventListener('error', () => status('lost'));
    listen('state', state);
    listen('events', events);
  };

  // A browser tries again by itself, but not after an answer that it does not like, and not when a connection hangs.
  setInterval(() => {
    if (source.readyState === EventSource.CLOSED || performance.now() - heard > silence) {
      status('lost');
      connect();
    }
  }, retry);
  connect();
}
