// Columns of the table of nodes: what a cell says.

import { status } from './filter.js';
import * as w from './words.js';

const plain = (of, kind = () => '') => (row) => [of(row), kind(row)];
const stated = (of) => (row) => {
  const [shape, word, kind] = of(row);
  return [shape ? `${shape} ${word}` : word, kind];
};
const among = (at, words) => stated((row) => words[row[at]] ?? words[0]);
export const version = (row) => `${row[w.VERSION]} ${row[w.ARCH]}`;

// Title, sort key, text and class of the cell. The name is a link, the time is counted on, and usage is known only of nodes in view.
export const COLUMNS = [
  ['Node', (row) => row[w.NAME], plain((row) => row[w.NAME])],
  ['Link', (row) => row[w.LINK], among(w.LINK, w.LINKS)],
  ['Since', (row) => row[w.SINCE], plain(() => '', () => 'number quiet')],
  ['Status', (row) => row[w.READY] || 3, stated(status)],
  ['Pods', (row) => row[w.PODS] - row[w.WANTED] + row[w.WANTED] / 1e6,
    plain((row) => `${row[w.PODS]}/${row[w.WANTED]}`, (row) => (row[w.PODS] < row[w.WANTED] ? 'number warn' : 'number quiet'))],
  ['Restarts', (row) => row[w.RESTARTS], plain((row) => String(row[w.RESTARTS]), () => 'number quiet')],
  ['Conditions', (row) => row[w.TROUBLES],
    plain((row) => (row[w.TROUBLES] ? `▲ ${w.troubles(row[w.TROUBLES])}` : ''), () => 'warn')],
  ['Storage', (row) => row[w.STORAGE], among(w.STORAGE, w.STORAGES)],
  ['Version', (row) => row[w.VERSION], plain(version, () => 'quiet')],
  ['Upgrade', (row) => row[w.UPGRADE], among(w.UPGRADE, w.UPGRADES)],
  ['CPU', null, plain(() => '', () => 'number quiet')],
  ['Memory', null, plain(() => '', () => 'number quiet')],
  ['Labels', (row) => row[w.LABELS], plain((row) => row[w.LABELS], () => 'quiet')],
];
export const [AGE, CPU, MEMORY] = [2, 10, 11];
