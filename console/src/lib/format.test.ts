import { expect, it } from 'vitest';
import { bytes, count, duration, milliseconds, percent, plural, rate } from './format';

it('words numbers for people', () => {
  expect([0, 1234, 99_999, 1_234_567, null, NaN].map(count)).toEqual(['0', '1,234', '99,999', '1.2M', '–', '–']);
  expect([0, 0.25, 9.96, 12.4, undefined].map(rate)).toEqual(['0', '0.3', '10', '12', '–']);
  expect([0, 1023, 1024, 1536, 256 * 1024 ** 2, 5e15].map(bytes)).toEqual(['0 B', '1023 B', '1.0 KiB', '1.5 KiB', '256 MiB', '4.4 PiB']);
  expect([0.05, 5, 1500, 90_000].map(milliseconds)).toEqual(['50 µs', '5.0 ms', '2 s', '1 min 30 s']);
  expect([0, 59, 61, 90_061].map(duration)).toEqual(['0 s', '59 s', '1 min 1 s', '1 d 1 h']);
  expect([3.14, 55.5].map(percent)).toEqual(['3.1 %', '56 %']);
  expect([plural(1, 'bucket'), plural(2, 'bucket'), plural(0, 'index', 'indexes')]).toEqual(['1 bucket', '2 buckets', '0 indexes']);
});
