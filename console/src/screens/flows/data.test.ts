import { expect, it, vi } from 'vitest';

vi.stubGlobal('document', { baseURI: 'http://127.0.0.1:8091/ui/index.html' });
const { flows, sourcesOf, stateOf, secondsLeft, widthOf } = await import('./data');

it('draws buckets and what follows them', () => {
  const drawn = flows({ 'items:a': 1, 'items:b': 1, 'mutations:a': 10, 'disk_queue:a': 5, 'plugin_lag:index x on b.s.c': 3, 'plugin_documents:index x on b.s.c': 2, 'plugin_lag:alone': 1 });
  expect(drawn.nodes.map(({ id, column }) => [id, column])).toEqual([['a', 0], ['b', 0], ['disk/a', 1], ['plugin/alone', 1], ['plugin/index x on b.s.c', 1]]);
  expect(drawn.flows).toEqual([{ from: 'a', to: 'disk/a', rate: 10, remaining: 5 }, { from: 'b', to: 'plugin/index x on b.s.c', rate: 2, remaining: 3 }]);
  expect(flows(undefined)).toEqual({ nodes: [], flows: [], height: 64 });
});

it('colours a stream by the time that it is behind', () => {
  const flow = (rate: number, remaining: number) => ({ from: '', to: '', rate, remaining });
  expect([flow(0, 0), flow(10, 5), flow(10, 50), flow(10, 500), flow(0, 1)].map(stateOf)).toEqual(['good', 'good', 'warn', 'bad', 'bad']);
  expect([secondsLeft(flow(2, 4)), secondsLeft(flow(0, 4))]).toEqual([2, null]);
  expect(widthOf(0)).toBe(2);
  expect(widthOf(1e9)).toBe(10);
});

it('knows the bucket of what is not named after it', () => {
  const define = (appname: string, source_bucket: string, function_scope?: { bucket: string; scope: string }) => ({ appname, appcode: '', settings: {}, depcfg: { source_bucket }, function_scope });
  const sources = sourcesOf([define('f', 'a', { bucket: '*', scope: '*' }), define('g', 'b', { bucket: 'b', scope: 's' })], [{ name: 'p', state: 'running', source: { bucket: 'a' } }, { name: 'q', state: 'running' }]);
  expect(sources).toEqual({ 'eventing:f': 'a', 'eventing:b/s/g': 'b', p: 'a' });
  const names = ['eventing:f', 'eventing:b/s/g', 'p', 'q'];
  const drawn = flows({ 'items:a': 1, 'items:b': 1, ...Object.fromEntries(names.map((name) => [`plugin_lag:${name}`, 0])) }, { ...sources, q: 'gone' });
  expect(drawn.flows.map(({ from, to }) => [from, to])).toEqual([['b', 'plugin/eventing:b/s/g'], ['a', 'plugin/eventing:f'], ['a', 'plugin/p']]);
});
