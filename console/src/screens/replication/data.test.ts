import { expect, it, vi } from 'vitest';

vi.stubGlobal('document', { baseURI: 'http://127.0.0.1:8091/ui/index.html' });
const { kindOf, progressOf, rateOf, replicationsOf, wordOf } = await import('./data');

const reference = { uuid: 'u1', name: 'second', hostname: 'h:8091', username: 'a', secureType: 'none' };
const task = { type: 'xdcr', id: 'u1/a/b', source: 'a', target: '/remoteClusters/u1/buckets/b', status: 'running', changesLeft: 5, stuckDocuments: 1, errors: ['late'] };

it('puts together what three endpoints know', () => {
  const infos = [{ Id: 'u1/a/b', StatsMap: { docs_processed: 15, docs_written: 9, docs_failed_cr_source: 2 } }];
  const [known, unknown] = replicationsOf([reference], [{ ...task, id: 'z', target: '/remoteClusters/u9/buckets/c', changesLeft: null }, { ...task, type: 'rebalance' }, task], infos);
  expect(known).toMatchObject({ cluster: 'second', target: 'b', left: 5, done: 15, written: 9, lostHere: 2, lostThere: null, stuck: 1, errors: ['late'] });
  expect(unknown).toMatchObject({ cluster: 'u9', left: null, done: null });
});

it('counts progress and rates only where there is something to count', () => {
  expect([progressOf({ done: 15, left: 5 }), progressOf({ done: 0, left: 0 }), progressOf({ done: null, left: 5 })]).toEqual([75, 100, null]);
  expect([rateOf(undefined, { at: 2000, done: 9 }), rateOf({ at: 1000, done: 5 }, { at: 2000, done: 9 }), rateOf({ at: 1000, done: 9 }, { at: 2000, done: 1 }), rateOf({ at: 1000, done: 1 }, { at: 1100, done: 2 })]).toEqual([null, 4, null, null]);
});

it('words what a replication does', () => {
  const all = [{ status: 'running', paused: false, stuck: 0 }, { status: 'running', paused: true, stuck: 0 }, { status: 'paused', paused: true, stuck: 0 }, { status: 'notRunning', paused: false, stuck: 0 }, { status: 'running', paused: false, stuck: 2 }];
  expect(all.map((one) => [kindOf(one), wordOf(one)])).toEqual([['good', 'running'], ['warn', 'pausing'], ['warn', 'paused'], ['bad', 'not running'], ['warn', 'running']]);
});
