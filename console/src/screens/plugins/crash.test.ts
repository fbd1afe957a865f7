import { expect, it, vi } from 'vitest';
/** The worked example of the layout, which the node and the kits of plugins test against, too. */
import example from '../../../../plugins/wit/event-buffer.example?raw';

vi.stubGlobal('document', { baseURI: 'http://127.0.0.1:8091/ui/index.html' });
const { flame, steps, textOfBytes, unpack } = await import('./crash');

const packed = Uint8Array.from(
  example.split('\n').filter((line) => /^ *\d/.test(line)).flatMap((line) => line.slice(5, 46).trim().split(/\s+/).map((byte) => parseInt(byte, 16))),
);
const base64 = (bytes: Uint8Array): string => btoa(String.fromCharCode(...bytes));

it('reads the changes of a batch as the node packs them', () => {
  expect(unpack(packed)).toEqual([
    { id: 'k1', vbucket: 526, seqno: '7', kind: 'stored', value: '{"a":1}' },
    { id: 'k2', vbucket: 775, seqno: '8', kind: 'deleted', value: '' },
  ]);
  for (let length = 0; length < 160; length += 1) expect(() => unpack(packed.subarray(0, length)), `${length}`).toThrow();
});

it('shows bytes that are no text in hexadecimal', () => {
  expect([Uint8Array.of(0xff, 0), Uint8Array.of(1, 65), Uint8Array.of(195, 164)].map(textOfBytes)).toEqual(['ff 00', '01 41', 'ä']);
});

it('tells a crash in the order in which it happened', () => {
  const recording = { plugin: 'p', plugin_version: '1', keyspace: 'a', limits: { memory_bytes: 1, deadline_ms: 2 }, state: [[base64(Uint8Array.of(97)), base64(Uint8Array.of(49))] as [string, string]], reason: 'unreachable', is_whole: true };
  const answers: Record<string, Record<string, unknown>>[] = [{ found: { body: base64(Uint8Array.of(123, 125)), cas: 5 } }, { 'http-error': { kind: 'timeout', message: 'late' } }, { other: { x: 1 } }];
  const told = steps({ ...recording, call: { 'on-batch': { buffer: base64(packed) } }, answers });
  expect(told.map(({ title, kind }) => [title, kind])).toEqual([['k1 was stored', ''], ['k2 was deleted', ''], ['Saw in its state: a', ''], ['Read a document', ''], ['The request: timeout', 'bad'], ['other', ''], ['The call ended', 'bad']]);
  expect(told.at(-1)?.detail).toBe('unreachable');
  const of = (call: Record<string, Record<string, unknown>>): string | undefined => steps({ ...recording, state: [], call, answers: [] })[0]?.title;
  expect([of({ 'on-batch': { buffer: '' } }), of({ function: { name: 'slug', arguments: '[]' } }), of({ handle: { request: { method: 'GET', path: '/a', query: 'b=1', body: '' } } }), of({ rollback: { vb: 3, seqno: 4 } }), of({ unknown: {} })]).toEqual(['The node delivered changes', 'Call of the function slug', 'Request GET /a?b=1', 'Rollback of vBucket 3 to seqno 4', 'unknown']);
});

it('lays a profile out by time', () => {
  const { frames, total, depth } = flame('a;b 3\na;c 1\nd 4\nnot a line\nx;y 0\n');
  expect([total, depth]).toEqual([8, 2]);
  expect(frames.map(({ name, depth: level, left, width }) => [name, level, left, width])).toEqual([['a', 0, 0, 50], ['b', 1, 0, 37.5], ['c', 1, 37.5, 12.5], ['d', 0, 50, 50]]);
  expect(flame('').frames).toEqual([]);
});
