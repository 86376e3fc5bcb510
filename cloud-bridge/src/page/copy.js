// kubectl commands, and buttons that copy them.

import { say } from './parts.js';
import * as w from './words.js';

// Milliseconds for which a button says that it has copied.
const SAID = 2000;
// A name that a shell reads as it is (RFC 1123); the API takes no others.
const NAME = /^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$/;

const command = (names, text) => (names.every((name) => NAME.test(name)) ? [text] : []);

export const nodeCommands = (name, cordoned) => [
  ...command([name], `kubectl describe node ${name}`),
  ...command([name], `kubectl ${cordoned ? 'uncordon' : 'cordon'} ${name}`),
];

// Word of the button and command.
export const podCommands = (space, name, restarts) => [
  ...command([space, name], `kubectl describe pod -n ${space} ${name}`).map((text) => ['describe', text]),
  ...command([space, name], `kubectl logs -n ${space} ${name} --all-containers`).map((text) => ['logs', text]),
  ...(restarts ? command([space, name], `kubectl logs -n ${space} ${name} --previous`).map((text) => ['previous logs', text]) : []),
];

export const jobCommands = (kind, name) => command([kind, name], `kubectl get ${kind} ${name} -o yaml`);

export function copyButton(text, word = 'Copy') {
  const button = w.el('button', { type: 'button', class: 'copy', id: `copy-${text.replaceAll(' ', '-')}`, title: text });
  // The name begins with what can be seen (WCAG 2.5.3).
  const shows = (shown) => {
    say(button, shown);
    button.setAttribute('aria-label', `${shown}: ${text}`);
  };
  shows(word);
  button.addEventListener('click', async () => {
    const told = document.getElementById('told');
    try {
      await navigator.clipboard.writeText(text);
      shows('copied');
      say(told, `copied: ${text}`);
      setTimeout(() => { shows(word); say(told, ''); }, SAID);
    } catch {
      // A browser that lets no page write: people copy it themselves.
      window.prompt('Copy this command:', text);
    }
  });
  return button;
}
