import { expect, it } from 'vitest';
import { type Bucket, changesOf, nameProblem, settingsOf } from './data';

it('says what is wrong with a name', () => {
  expect(['', 'travel-sample', 'a.b'].map((name) => nameProblem(name, 'bucket'))).toEqual(['', '', '']);
  expect(['a b', '<b>', 'x'.repeat(101)].map((name) => nameProblem(name, 'bucket') !== '')).toEqual([true, true, true]);
  expect(['inventory', 'a-b'].map((name) => nameProblem(name, 'scope'))).toEqual(['', '']);
  expect(['_x', '%x', 'a.b', 'x'.repeat(252)].map((name) => nameProblem(name, 'scope') !== '')).toEqual([true, true, true, true]);
});

it('sends only settings that were changed', () => {
  const before = settingsOf({ name: 'a', uuid: '', bucketType: 'membase', replicaNumber: 1, maxTTL: 60, quota: { ram: 3 << 20, rawRAM: 256 << 20 }, controllers: { flush: '/x' } } as Bucket);
  expect(before).toEqual({ ramQuota: 256, replicaNumber: 1, maxTTL: 60, compressionMode: 'passive', durabilityMinLevel: 'none', flushEnabled: true });
  expect(changesOf(before, { ...before })).toEqual({});
  expect(changesOf(before, { ...before, maxTTL: 0, flushEnabled: false, durabilityMinLevel: 'majority' })).toEqual({ maxTTL: 0, durabilityMinLevel: 'majority', flushEnabled: 0 });
});
