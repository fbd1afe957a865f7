import { expect, it } from 'vitest';
import { cell } from '../../lib/numbers';
import { BOX, columns, csv, layout, planTree, valueAt } from './data';

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
