import { expect, it } from 'vitest';
import { nameProblem } from './data';

it('says what is wrong with a name', () => {
  expect(['', 'travel-sample', 'a.b'].map((name) => nameProblem(name, 'bucket'))).toEqual(['', '', '']);
  expect(['a b', '<b>', 'x'.repeat(101)].map((name) => nameProblem(name, 'bucket') !== '')).toEqual([true, true, true]);
  expect(['inventory', 'a-b'].map((name) => nameProblem(name, 'scope'))).toEqual(['', '']);
  expect(['_x', '%x', 'a.b', 'x'.repeat(252)].map((name) => nameProblem(name, 'scope') !== '')).toEqual([true, true, true, true]);
});
