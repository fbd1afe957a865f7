import { expect, it } from 'vitest';
import { type ClusterEvent, attributes, matching, matchingSlow } from './data';

const event = (timestamp: string, severity: string, description: string): ClusterEvent => ({ timestamp, severity, description, uuid: timestamp, event_id: 1, component: 'c', node: 'n', extra_attributes: { bucket: 'Shop' } });
const events = [event('1', 'info', 'Bucket created'), event('3', 'error', 'Disk full'), event('2', 'warn', 'Slow')];

it('finds events by text and severity, the newest first', () => {
  expect(matching(events, '', 'info').map(({ timestamp }) => timestamp)).toEqual(['3', '2', '1']);
  expect(matching(events, 'shop', 'warn').map(({ timestamp }) => timestamp)).toEqual(['3', '2']);
  expect(matching(events, 'created', 'info')).toHaveLength(1);
});

it('words attributes', () => {
  expect([attributes({ a: 1, b: { c: 2 } }), attributes(null), attributes('x')]).toEqual(['a: 1 · b: {"c":2}', '', '']);
});

it('finds slow operations by whatever of them may be seen', () => {
  const operation = { service: 'kv', operation: 'Get', bucket: 'shop', ms: 812, spent: [], ended: '' };
  const all = [{ ...operation, target: 'order:1' }, operation];
  expect([matchingSlow(all, 'ORDER'), matchingSlow(all, 'get'), matchingSlow(all, 'x')].map(({ length }) => length)).toEqual([1, 2, 0]);
});
