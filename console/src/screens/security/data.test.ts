import { expect, it } from 'vitest';
import { daysLeft, roleText, tokenOf } from './data';

it('words roles as forms take them', () => {
  expect([
    { role: 'admin' },
    { role: 'data_reader', bucket_name: 'b' },
    { role: 'data_reader', bucket_name: 'b', scope_name: '*', collection_name: '*' },
    { role: 'data_reader', bucket_name: 'b', scope_name: 's', collection_name: 'c' },
    { role: 'bucket_admin', bucket_name: '*' },
  ].map(roleText)).toEqual(['admin', 'data_reader[b]', 'data_reader[b]', 'data_reader[b:s:c]', 'bucket_admin[*]']);
});

it('counts days', () => {
  expect([daysLeft('1970-01-11T00:00:00Z', 0), daysLeft('1970-01-01T00:00:00Z', 1), daysLeft(undefined, 0), daysLeft('soon', 0)]).toEqual([10, -1, null, null]);
});

it('asks for a token with the roles of a text', () => {
  expect(tokenOf({ name: 'a', scopes: ' data_reader[b:c,d] , admin,', days: 0.5 })).toEqual({ name: 'a', ttl: 43_200, scopes: ['data_reader[b:c,d]', 'admin'] });
  expect(tokenOf({ name: 'a', scopes: ' ', days: 30 })).toEqual({ name: 'a', ttl: 2_592_000 });
});
