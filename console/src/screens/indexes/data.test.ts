import { expect, it } from 'vitest';
import { type Index, dropStatement, groups, lagOf } from './data';

it('names what a statement is about, whatever its name', () => {
  expect(dropStatement({ bucket: 'a`b', scope: 's', collection: 'c', name: 'x' })).toBe('DROP INDEX `x` ON `a``b`.`s`.`c`');
});

it('groups indexes by collection and finds their lag', () => {
  const index = (bucket: string, name: string): Index => ({ bucket, name, scope: 's', collection: 'c' }) as Index;
  expect(groups([index('b', '1'), index('a', '2'), index('b', '3')]).map(({ name, indexes }) => [name, indexes.length])).toEqual([['a.s.c', 1], ['b.s.c', 2]]);
  expect([lagOf(index('a', 'i'), { 'plugin_lag:index i on a.s.c': 7 }), lagOf(index('a', 'j'), {})]).toEqual([7, null]);
});
