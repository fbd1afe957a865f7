import { expect, it, vi } from 'vitest';

vi.stubGlobal('document', { baseURI: 'http://127.0.0.1:8091/ui/index.html' });
const { decode, framesOf, subjects, total } = await import('./live.svelte');

it('reads rows in the order of the keys', () => {
  const frame = decode(['cpu', 'plugin_p99:v', 'reads:a'], { t: 1, nodes: { n1: [1, 5, 2], n2: [2, 7, null], n3: [1, null] }, missing: ['n4'] });
  expect(frame.nodes.n2).toEqual({ cpu: 2, 'plugin_p99:v': 7 });
  expect(frame.all).toEqual({ cpu: 4, 'plugin_p99:v': 7, 'reads:a': 2 });
});

it('adds up a word over its subjects', () => {
  const values = { 'reads:a': 1, 'reads:b': 2, reads_other: 9 };
  expect([total(values, 'reads'), total(values, 'reads', 'b'), total(values, 'writes'), total(undefined, 'reads')]).toEqual([3, 2, null, null]);
  expect(subjects(values, 'reads')).toEqual(['a', 'b']);
});

it('turns a history into frames and leaves gaps', () => {
  const frames = framesOf({ nodes: { n1: { step: 10, start: 100, series: { cpu: [1, null] } }, n2: { step: 10, start: 100, series: { cpu: [2, 3] } } }, missing: [] });
  expect(frames.map(({ t, all }) => [t, all.cpu])).toEqual([[100_000, 3], [110_000, 3]]);
});
