import { expect, it } from 'vitest';
import { difference } from './data';

it('shows what differs line by line', () => {
  const shown = difference('a\nb\nc', 'a\nx\nc\nd').map(({ kind, text }) => `${{ same: ' ', out: '-', in: '+' }[kind]}${text}`);
  expect(shown).toEqual([' a', '-b', '+x', ' c', '+d']);
  expect(difference('same', 'same')).toEqual([{ kind: 'same', text: 'same' }]);
});

it('does not compare what is too large', () => {
  const large = Array.from({ length: 3000 }, (_, line) => `line ${line}`).join('\n');
  expect(difference(large, large)).toHaveLength(6000);
});
