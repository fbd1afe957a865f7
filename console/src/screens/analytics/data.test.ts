import { expect, it, vi } from 'vitest';

vi.stubGlobal('document', { baseURI: 'http://127.0.0.1:8091/ui/index.html' });
const { copies } = await import('./data');

it('lists what is copied, each collection by itself', () => {
  const state = { progress: 0.5, scopes: [{ name: 'Default', collections: [{ name: 'orders' }, { name: 'returns' }] }], itemsProcessed: 7, seqnoAdvances: 3 };
  const found = copies([{ name: 'Local', scope: 'Default', status: 'unhealthy', reason: 'no bucket', state: [state] }, { name: 'Local', scope: 'x', status: 'healthy', state: [{ progress: 1, scopes: [] }] }]);
  expect(found).toEqual(['orders', 'returns'].map((name) => ({ name: `Default.${name}`, status: 'unhealthy', reason: 'no bucket', progress: 50, processed: 7, remaining: 3 })));
});
