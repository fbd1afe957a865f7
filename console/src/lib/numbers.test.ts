import { expect, it } from 'vitest';
import { ExactNumber, cell, parse, pretty, print } from './numbers';

it('prints what it reads', () => {
  const text = '{\n  "a": [\n    1,\n    "<b>",\n    null\n  ],\n  "b": {},\n  "c": []\n}';
  expect(print(parse(text))).toBe(text);
  expect(pretty('{"a":1}')).toBe('{\n  "a": 1\n}');
  expect(pretty('not JSON')).toBe('not JSON');
});

it('keeps a number as it was written', () => {
  expect(print({ a: new ExactNumber('9007199254740993') }, 2)).toBe('{\n  "a": 9007199254740993\n}');
  expect(cell(new ExactNumber('18446744073709551615'))).toBe('18446744073709551615');
});

it('makes cells of values', () => {
  expect([undefined, null, 'x', 1, [1, { a: 2 }]].map(cell)).toEqual(['', 'null', 'x', '1', '[ 1, { "a": 2 } ]']);
});
