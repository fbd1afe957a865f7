import { expect, it, vi } from 'vitest';

vi.stubGlobal('document', { baseURI: 'http://127.0.0.1:8091/ui/index.html' });
const { actions, scopeOf } = await import('./data');

it('offers what a state allows', () => {
  expect(['undeployed', 'deployed', 'paused', 'deploying', 'odd'].map(actions)).toEqual([['deploy'], ['pause', 'undeploy'], ['resume', 'undeploy'], [], []]);
});

it('names the scope of a function, if it has one', () => {
  expect([scopeOf({ bucket: '*', scope: '*' }), scopeOf(undefined), scopeOf({ bucket: 'a b', scope: 's' })]).toEqual(['', '', '?bucket=a%20b&scope=s']);
});
