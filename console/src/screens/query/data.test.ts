import { expect, it } from 'vitest';
import { cell, parse } from '../../lib/numbers';
import { ANALYTICS, BOX, QUERY, bars, columns, csv, durationMs, elapsedMs, followed, layout, numericColumns, phases, planTree, stopPath, valueAt } from './data';

const plan = {
  '#operator': 'Sequence',
  '~children': [
    { '#operator': 'IndexScan3', index: 'i', keyspace: 'k', spans: [{}] },
    { '#operator': 'Fetch', keyspace: 'k' },
    { '#operator': 'Parallel', '~child': { '#operator': 'Sequence', '~children': [{ '#operator': 'Filter', condition: 'a = 1', '#stats': { '#itemsIn': 10, '#itemsOut': 2, execTime: '1ms' } }] } },
    { '#operator': 'HashJoin', '~child': { '#operator': 'PrimaryScan3', keyspace: 'other' } },
  ],
};

it('makes a tree of a plan', () => {
  const root = planTree(plan);
  expect(root?.operator).toBe('HashJoin');
  expect(root?.children.map(({ operator, kind }) => [operator, kind])).toEqual([['Filter', 'cheap'], ['PrimaryScan3', 'costly']]);
  const filter = root?.children[0];
  expect([filter?.details, filter?.rowsIn, filter?.rowsOut, filter?.time]).toEqual([['condition a = 1'], 10, 2, '1ms']);
  expect(filter?.children[0]?.children[0]?.details).toEqual(['index i', 'keyspace k', '1 span']);
  expect([planTree(null), planTree('x'), planTree({})]).toEqual([null, null, null]);
});

it('puts what produces rows to the left', () => {
  const root = planTree(plan);
  if (!root) throw new Error('a plan');
  const { width, height, nodes } = layout(root);
  expect(nodes).toHaveLength(5);
  expect([width, height]).toEqual([4 * BOX.width + 3 * BOX.gapX, 2 * BOX.height + BOX.gapY]);
  expect(root.children.every(({ x }) => x < root.x)).toBe(true);
});

it('makes a table of rows of any shape', () => {
  const rows = [{ a: 1 }, { b: [2], a: null }, 7];
  expect(columns(rows)).toEqual(['a', 'b', '']);
  expect([valueAt(rows[1], 'b'), valueAt(7, ''), valueAt(7, 'a')]).toEqual([[2], 7, undefined]);
});

it('writes values that a spreadsheet takes for text', () => {
  expect(csv([{ a: '=1+1', b: 'x,"y"' }, { a: '-5', b: null }], cell)).toBe('a,b\r\n\'=1+1,"x,""y"""\r\n-5,null');
});

it('reads durations as services print them', () => {
  expect(['1m2.5s', '3.2ms', '480µs', '250ns', '1h', '', 'soon', '3.2ms late', undefined].map(durationMs)).toEqual([62_500, 3.2, 0.48, 0.00025, 3_600_000, null, null, null, null]);
  expect(phases({ phaseTimes: { parse: '1ms', plan: '1ms', run: '6ms', odd: '?' } })).toEqual([{ name: 'parse', ms: 1, share: 12.5 }, { name: 'plan', ms: 1, share: 12.5 }, { name: 'run', ms: 6, share: 75 }]);
  expect(phases(undefined)).toEqual([]);
});

it('draws the columns that are numbers', () => {
  const rows = [{ city: 'Oslo', sold: 4, note: 1 }, { city: 'Graz', sold: -8, note: 'x' }, { city: 'Lima', sold: null }];
  expect(numericColumns(rows)).toEqual(['sold']);
  expect(bars(rows, 'city', 'sold')).toEqual([{ label: 'Oslo', value: 4, text: '4', share: 50 }, { label: 'Graz', value: -8, text: '-8', share: 100 }]);
  expect(bars([3, 1], '#', '')).toEqual([{ label: '1', value: 3, text: '3', share: 100 }, { label: '2', value: 1, text: '1', share: expect.closeTo(33.3, 1) as number }]);
  expect(bars(Array.from({ length: 500 }, () => ({ n: 0 })), '#', 'n')).toHaveLength(60);
  expect(numericColumns(parse('[{"a": 9007199254740993}]') as unknown[])).toEqual(['a']);
});

it('names the request that is to be stopped', () => {
  expect(stopPath(QUERY, { requestId: 'a/b', state: '' })).toBe('_p/query/admin/active_requests/a%2Fb');
  expect(stopPath(ANALYTICS, { clientContextID: 'x y', state: '' })).toBe('_p/cbas/analytics/admin/active_requests?client_context_id=x%20y');
  expect([stopPath(QUERY, { state: '' }), stopPath(ANALYTICS, { clientContextID: null, state: '' })]).toEqual(['', '']);
  expect([elapsedMs({ elapsedTime: '1.5s', state: '' }), elapsedMs({ elapsedTime: 0.25, state: '' }), elapsedMs({ state: '' })]).toEqual([1500, 250, null]);
});

it('groups the collections of analytics by their scope', () => {
  const rows = [{ scope: 'Metadata', name: 'Dataset' }, { scope: 'shop/sales', name: 'or`ders' }, { scope: 'shop/sales', name: 'b' }];
  expect(followed(rows)).toEqual([{ name: 'shop/sales', collections: [{ scope: '', name: 'or`ders', path: '`shop`.`sales`.`or``ders`' }, { scope: '', name: 'b', path: '`shop`.`sales`.`b`' }] }]);
});
