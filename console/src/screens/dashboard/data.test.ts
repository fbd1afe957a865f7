import { expect, it, vi } from 'vitest';

vi.stubGlobal('document', { baseURI: 'http://127.0.0.1:8091/ui/index.html' });
const { byNode, connections, line, lines, queryTime, recent } = await import('./data');

const frame = (t: number, all: Record<string, number>) => ({ t, nodes: { n1: all }, all, missing: [] });
const frames = [frame(1000, { 'reads:a': 1, 'reads:b': 2, queries: 0, query_seconds: 0, cpu: 3 }), frame(2000, { 'reads:a': 3, queries: 2, query_seconds: 0.01 })];

it('draws one bucket, all of them, and each', () => {
  expect(line(frames, 'r', 'reads', 'c').values).toEqual([3, 3]);
  expect(line(frames, 'r', 'reads', 'c', 'b').values).toEqual([2, null]);
  expect(lines([frames[1]!, frames[0]!], 'reads').map(({ label }) => label)).toEqual(['b', 'a']);
  expect(lines([frames[0]!], 'reads', 1).map(({ label, values }) => [label, values])).toEqual([['b', [2]], ['1 others', [1]]]);
});

it('shows gaps as gaps', () => {
  expect(byNode(frames, 'cpu')[0]?.values).toEqual([3, null]);
  expect(queryTime(frames).values).toEqual([null, 5]);
  expect(recent(frames, 1, 2500)).toEqual([frames[1]]);
});

it('names how to connect', () => {
  const lines = Object.fromEntries(connections('http://db.test:8091/prefix', 'ann', 11_210));
  expect(lines['Connection string']).toBe('couchbase://db.test');
  expect(connections('http://127.0.0.1:19700', 'ann', 19_710)[0]).toEqual(['Connection string', 'couchbase://127.0.0.1:19710']);
  expect(lines.Shell).toBe('nacre sh --server http://db.test:8091/prefix --user ann');
});
