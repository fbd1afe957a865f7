import { expect, it } from 'vitest';
import { SECTIONS, fieldsOf } from './data';

it('shows what can be changed, in the order of its words', () => {
  const [section] = SECTIONS;
  if (!section) throw new Error('a section');
  expect(fieldsOf({ count: 0, timeout: 120, nested: {}, enabled: true, other: 'x' }, section)).toEqual([['enabled', true], ['timeout', 120], ['other', 'x']]);
});
