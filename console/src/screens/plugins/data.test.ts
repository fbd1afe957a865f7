import { expect, it, vi } from 'vitest';

vi.stubGlobal('document', { baseURI: 'http://127.0.0.1:8091/ui/index.html' });
const { costs, kindOf } = await import('./data');

it('lists what runs by what it costs', () => {
  const found = costs({ 'plugin_lag:a': 0, 'plugin_lag:b': 5, 'plugin_cpu:b': 3, 'plugin_memory:a': 10, 'plugin_p99:b': 2, 'plugin_p99_read:b': 4, 'reads:x': 1 });
  expect(found.map(({ name, cpu, lag, p99, memory }) => [name, cpu, lag, p99, memory])).toEqual([['b', 3, 5, 4, 0], ['a', 0, 0, null, 10]]);
  expect(costs(undefined)).toEqual([]);
});

it('knows kinds by their names', () => {
  expect(['orders', 'index i on b.s.c', 'b/d', 'eventing:f'].map(kindOf)).toEqual(['plugin', 'index', 'view', 'function']);
});
