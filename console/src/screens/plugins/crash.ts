// A recorded crash, read: the call, what it saw of its state, what it was answered, and how it ended.

import { segment, textOf } from '../../lib/api';
import { parse, print } from '../../lib/numbers';

type Json = Record<string, unknown>;

/** A recording as the node keeps it. Bytes are base64. */
export interface Recording {
  plugin: string;
  plugin_version: string;
  keyspace: string;
  limits: { memory_bytes: number; deadline_ms: number };
  /** One member: the kind of the call, with its arguments. */
  call: Record<string, Json>;
  state: [string, string][];
  answers: Record<string, Json>[];
  reason: string;
  is_whole: boolean;
}
/** A step of a call, in the order in which it happened. */
export interface Step {
  title: string;
  detail: string;
  kind: '' | 'bad';
}
/** A change that a plugin was given. */
export interface PackedEvent {
  id: string;
  vbucket: number;
  seqno: string;
  kind: string;
  value: string;
}

export const readRecording = async (deployment: string, id: string, signal: AbortSignal): Promise<Recording> =>
  parse(await textOf(`deployments/${segment(deployment)}/capsules/${segment(id)}`, { signal })) as Recording;

const bytesOf = (base64: unknown): Uint8Array => Uint8Array.from(atob(typeof base64 === 'string' ? base64 : ''), (character) => character.charCodeAt(0));

/** Characters of a value that are shown. */
const SHOWN_CHARS = 2000;

/** Bytes as text, or in hexadecimal if they are none. */
export function textOfBytes(bytes: Uint8Array): string {
  const cut = (text: string): string => (text.length > SHOWN_CHARS ? `${text.slice(0, SHOWN_CHARS)}…` : text);
  try {
    const text = new TextDecoder('utf-8', { fatal: true }).decode(bytes);
    // Keys of a state have bytes that part them.
    if (!/[\u0000-\u0008\u000e-\u001f]/.test(text)) return cut(text);
  } catch {
    // Shown in hexadecimal.
  }
  return cut([...bytes.subarray(0, SHOWN_CHARS / 2)].map((byte) => byte.toString(16).padStart(2, '0')).join(' '));
}

const HEADER_BYTES = 32;
const EVENT_BYTES = 64;
const KINDS: Record<number, string> = { 1: 'stored', 2: 'deleted', 3: 'expired' };

/** Reads a packed batch; throws on one that is damaged. The layout is in plugins/wit/event-buffer.example. */
export function unpack(buffer: Uint8Array): PackedEvent[] {
  const view = new DataView(buffer.buffer, buffer.byteOffset, buffer.byteLength);
  if (textOfBytes(buffer.subarray(0, 4)) !== 'NEB1') throw new Error('not a batch of events');
  const [count, arena] = [view.getUint32(4, true), view.getUint32(16, true)];
  if (HEADER_BYTES + count * EVENT_BYTES > buffer.length) throw new Error('a batch that was cut off');
  return Array.from({ length: count }, (_, index) => {
    const at = HEADER_BYTES + index * EVENT_BYTES;
    const part = (offset: number, length: number): Uint8Array => buffer.subarray(arena + offset, arena + offset + length);
    const [value, attributes] = [view.getUint32(at + 44, true), view.getUint32(at + 48, true)];
    return {
      id: textOfBytes(part(view.getUint32(at + 36, true), view.getUint16(at + 54, true))),
      vbucket: view.getUint16(at + 52, true),
      seqno: view.getBigUint64(at, true).toString(),
      kind: KINDS[view.getUint8(at + 56)] ?? 'aborted',
      value: textOfBytes(part(view.getUint32(at + 40, true) + attributes, value - attributes)),
    };
  });
}

function stepsOfCall(name: string, call: Json): Step[] {
  const step = (title: string, detail = ''): Step => ({ title, detail, kind: '' });
  switch (name) {
    case 'on-batch':
    case 'project':
      try {
        return unpack(bytesOf(call.buffer)).map((event) => step(`${event.id} was ${event.kind}`, `vBucket ${event.vbucket}, seqno ${event.seqno}\n${event.value}`));
      } catch {
        return [step('The node delivered changes', 'They were too large to be recorded.')];
      }
    case 'on-timer': {
      const timers = (call.timers ?? []) as { name: string; payload: string }[];
      return timers.map((timer) => step(`The timer ${timer.name} was due`, textOfBytes(bytesOf(timer.payload))));
    }
    case 'handle': {
      const request = (call.request ?? {}) as { method?: string; path?: string; query?: string; body?: string };
      return [step(`Request ${request.method ?? ''} ${request.path ?? ''}${request.query ? `?${request.query}` : ''}`, textOfBytes(bytesOf(request.body)))];
    }
    case 'function':
      return [step(`Call of the function ${String(call.name)}`, String(call.arguments ?? ''))];
    case 'rollback':
      return [step(`Rollback of vBucket ${String(call.vb)} to seqno ${String(call.seqno)}`)];
    case 'resolve': {
      const version = (value: unknown): string => {
        const { body, is_deleted, cas } = (value ?? {}) as { body?: string; is_deleted?: boolean; cas?: unknown };
        return `CAS ${String(cas)}\n${is_deleted ? 'deleted' : textOfBytes(bytesOf(body))}`;
      };
      return [step(`Conflict about ${textOfBytes(bytesOf(call.key))}: the version here`, version(call.local)), step('The version that arrived', version(call.remote))];
    }
    default:
      return [step(name, print(call))];
  }
}

function stepOfAnswer(name: string, answer: Json): Step {
  const step = (title: string, detail = ''): Step => ({ title, detail, kind: '' });
  switch (name) {
    case 'found':
      return step('Read a document', `CAS ${String(answer.cas)}\n${textOfBytes(bytesOf(answer.body))}`);
    case 'stored':
      return step('Wrote a document', `CAS ${String(answer.cas)}`);
    case 'counted':
      return step(`Counted to ${String(answer.value)}`);
    case 'kv-error':
    case 'http-error':
      return { title: `${name === 'kv-error' ? 'The document' : 'The request'}: ${String(answer.kind)}`, detail: String(answer.message ?? ''), kind: 'bad' };
    case 'response':
      return step(`Response with status ${String(answer.status)}`, textOfBytes(bytesOf(answer.body)));
    default:
      return step(name, print(answer));
  }
}

/** The call step by step, as far as the recording has it. */
export function steps(recording: Recording): Step[] {
  const calls = Object.entries(recording.call).flatMap(([name, call]) => stepsOfCall(name, call));
  const state = recording.state.map(([key, value]): Step => ({ title: `Saw in its state: ${textOfBytes(bytesOf(key))}`, detail: textOfBytes(bytesOf(value)), kind: '' }));
  const answers = recording.answers.flatMap((answer) => Object.entries(answer).map(([name, found]) => stepOfAnswer(name, found)));
  return [...calls, ...state, ...answers, { title: 'The call ended', detail: recording.reason, kind: 'bad' }];
}

/** A stack of functions that a profile has seen, as a rectangle. */
export interface Frame {
  name: string;
  depth: number;
  /** In percent of the whole. */
  left: number;
  width: number;
  count: number;
}

/** Lays out a profile: lines of functions from the outermost to the innermost, with how often they were seen. */
export function flame(profile: string): { frames: Frame[]; total: number; depth: number } {
  interface Node {
    name: string;
    count: number;
    below: Map<string, Node>;
  }
  const root: Node = { name: '', count: 0, below: new Map() };
  for (const line of profile.split('\n')) {
    const found = /^(.*) (\d+)$/.exec(line);
    if (!found) continue;
    const count = Number(found[2]);
    let node = root;
    node.count += count;
    for (const name of (found[1] ?? '').split(';')) {
      let next = node.below.get(name);
      if (!next) node.below.set(name, (next = { name, count: 0, below: new Map() }));
      next.count += count;
      node = next;
    }
  }
  const frames: Frame[] = [];
  let depth = 0;
  function place(node: Node, level: number, from: number): void {
    let left = from;
    for (const one of [...node.below.values()].sort((a, b) => b.count - a.count)) {
      const width = (one.count / root.count) * 100;
      // Thinner ones cannot be seen.
      if (width >= 0.2) {
        frames.push({ name: one.name, depth: level, left, width, count: one.count });
        depth = Math.max(depth, level + 1);
        place(one, level + 1, left);
      }
      left += width;
    }
  }
  if (root.count > 0) place(root, 0, 0);
  return { frames, total: root.count, depth };
}
