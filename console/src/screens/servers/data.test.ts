import { expect, it } from 'vitest';
import { describe as describeVbucket, gridOf, share } from './data';

const map = { serverList: ['a:1', 'b:1'], vBucketMap: [[0, 1], [1, -1], [-1, 0]] };

it('lays vBuckets out as a square where that is possible', () => {
  expect([1024, 128, 64, 1, 7].map(gridOf)).toEqual([{ columns: 32, rows: 32 }, { columns: 16, rows: 8 }, { columns: 8, rows: 8 }, { columns: 1, rows: 1 }, { columns: 7, rows: 1 }]);
});

it('counts and describes copies', () => {
  expect(share(map)).toEqual([{ server: 'a:1', active: 1, replica: 1 }, { server: 'b:1', active: 1, replica: 1 }]);
  expect(describeVbucket(map, 0)).toBe('vBucket 0: active on a:1, replica on b:1');
  expect(describeVbucket(map, 2)).toBe('vBucket 2: active on no node, replica on a:1');
  expect(describeVbucket(map, 9)).toBe('vBucket 9: active on no node, no replica');
});
