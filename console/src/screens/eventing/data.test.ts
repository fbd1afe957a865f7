import { expect, it, vi } from 'vitest';

vi.stubGlobal('document', { baseURI: 'http://127.0.0.1:8091/ui/index.html' });
const { actions, newFunction, scopeOf, trialOf } = await import('./data');

it('offers what a state allows', () => {
  expect(['undeployed', 'deployed', 'paused', 'deploying', 'odd'].map(actions)).toEqual([['deploy'], ['pause', 'undeploy'], ['resume', 'undeploy'], [], []]);
});

it('names the scope of a function, if it has one', () => {
  expect([scopeOf({ bucket: '*', scope: '*' }), scopeOf(undefined), scopeOf({ bucket: 'a b', scope: 's' })]).toEqual(['', '', '?bucket=a%20b&scope=s']);
});

it('tries the code as it is typed', () => {
  const definition = { appname: 'f', appcode: 'old', depcfg: { source_bucket: 'b' }, settings: {} };
  expect(trialOf(definition, 'new', ' a, b ,')).toEqual({ function: { ...definition, appcode: 'new' }, documents: ['a', 'b'] });
  expect(trialOf(definition, 'new', ' ')).toEqual({ function: { ...definition, appcode: 'new' }, last: 10 });
});

it('names the source in the code only when asked to', () => {
  const at = { bucket: 'b', scope: 's', collection: 'c' };
  const [without, named] = ['', 'db'].map((alias) => newFunction('f', at, { ...at, collection: 'm' }, alias).depcfg as Record<string, unknown>);
  expect([without?.buckets, named?.buckets, named?.metadata_collection]).toEqual([[], [{ alias: 'db', bucket_name: 'b', scope_name: 's', collection_name: 'c', access: 'rw' }], 'm']);
});
