// Telling the playground what to do.
import { $, setText } from './dom.js';

// send returns whether it was done; if not, the page says why.
export async function send(command, button) {
  if (button?.getAttribute('aria-busy') === 'true') return false;
  button?.setAttribute('aria-busy', 'true');
  let answer = '';
  try {
    const response = await fetch('/do', { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(command) });
    if (!response.ok) answer = (await response.text()).trim() || response.statusText;
  } catch {
    answer = 'The playground does not answer.';
  } finally {
    button?.removeAttribute('aria-busy');
  }
  setText($('answer'), answer && `Not done: ${answer}`);
  return answer === '';
}
