// Cells of a pod, in the table of all pods and in that of one node.

import { copyButton, podCommands } from './copy.js';
import * as w from './words.js';

// Its state, whether it is ready, restarts and age. `created` and `now` in seconds since 1970.
export const podState = (phase, ready, restarts, created, reason, now) => [
  reason ? `${phase}: ${reason}` : phase,
  w.state(ready ? ['●', 'yes', 'quiet'] : ['○', 'no', phase === 'Succeeded' ? 'quiet' : 'warn']),
  String(restarts), created ? w.when(created, now, '') : ''];

export const podCommand = (namespace, name, restarts) =>
  w.el('span', {}, ...podCommands(namespace, name, restarts).flatMap(([word, text]) => [copyButton(text, word), ' ']));
