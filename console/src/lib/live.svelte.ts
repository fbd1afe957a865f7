// What the nodes measure, as it comes.

import { get, url } from './api';
import workerUrl from '../worker/stream.ts?worker&url';

/** Values by name, of one node or of all. */
export type Values = Record<string, number>;

interface Event {
  t: number;
  keys?: string[];
  nodes: Record<string, (number | null)[]>;
  missing: string[];
}

/** All that was measured in one second. */
export interface Frame {
  t: number;
  nodes: Record<string, Values>;
  /** Over all nodes: sums, and of times the largest. */
  all: Values;
  missing: string[];
}

/** Seconds that are kept. */
const KEPT = 600;
const isMaximum = (name: string): boolean => name.startsWith('plugin_p99');

export function decode(keys: string[], event: Pick<Event, 't' | 'nodes' | 'missing'>): Frame {
  const frame: Frame = { t: event.t, nodes: {}, all: {}, missing: event.missing };
  for (const [node, row] of Object.entries(event.nodes)) {
    const values: Values = {};
    row.forEach((value, index) => {
      const name = keys[index];
      if (value === null || name === undefined) return;
      values[name] = value;
      const before = frame.all[name];
      frame.all[name] = before === undefined ? value : isMaximum(name) ? Math.max(before, value) : before + value;
    });
    frame.nodes[node] = values;
  }
  return frame;
}

interface TrustedTypes {
  createPolicy(name: string, rules: { createScriptURL(text: string): string }): { createScriptURL(text: string): string };
}

class Live {
  frame = $state.raw<Frame | null>(null);
  /** When the last frame came, by the clock of the browser. */
  private at = 0;
  state = $state<'off' | 'connecting' | 'live' | 'stale'>('off');
  age = $state(0);
  paused = $state(false);
  /** Revision of the agreed state: screens read again what they show when it changes. */
  revision = $state(0);
  /** Logins after the first: what a screen could not read it reads then. */
  logins = $state(0);
  frames: Frame[] = [];
  private keys: string[] = [];
  private watch: () => void = () => {};
  private unwatch: () => void = () => {};

  start(): void {
    if (this.state !== 'off') return;
    this.state = 'connecting';
    this.connect();
    document.addEventListener('visibilitychange', () => (document.hidden ? this.unwatch() : this.watch()));
    addEventListener('pagehide', () => this.unwatch());
    setInterval(() => {
      if (this.at === 0 || document.hidden) return;
      this.age = Math.round((Date.now() - this.at) / 1000);
      if (this.age > 3 && this.state === 'live') this.state = 'stale';
    }, 1000);
    void this.fill();
  }

  stop(): void {
    this.unwatch();
  }

  private connect(): void {
    const address = url('_nacre/stream');
    if (typeof SharedWorker === 'undefined') {
      let source: EventSource | null = null;
      this.watch = () => {
        source ??= new EventSource(address);
        for (const kind of ['snapshot', 'delta', 'revision']) source.addEventListener(kind, (event) => this.take(kind, (event as MessageEvent<string>).data));
      };
      this.unwatch = () => {
        source?.close();
        source = null;
      };
    } else {
      const trusted = (globalThis as { trustedTypes?: TrustedTypes }).trustedTypes;
      const policy = trusted?.createPolicy('nacre', { createScriptURL: (text) => (text === workerUrl ? text : '') });
      const worker = new SharedWorker((policy?.createScriptURL(workerUrl) ?? workerUrl) as string, { name: 'nacre-stream' });
      worker.port.onmessage = (event: MessageEvent<{ kind: string; data: string }>) => this.take(event.data.kind, event.data.data);
      this.watch = () => worker.port.postMessage({ kind: 'watch', address });
      this.unwatch = () => worker.port.postMessage({ kind: 'hide' });
    }
    this.watch();
  }

  /** Begins again after a login. */
  resume(): void {
    this.logins += 1;
    this.watch();
  }

  private take(kind: string, data: string): void {
    if (kind === 'error') {
      if (this.state === 'live') this.state = 'stale';
      return;
    }
    if (kind === 'open') return;
    const event = JSON.parse(data) as Event & { rev: number };
    if (kind === 'revision') {
      this.revision = event.rev;
      return;
    }
    if (event.keys) this.keys = event.keys;
    if (this.keys.length === 0) return;
    const frame = decode(this.keys, event);
    this.at = Date.now();
    this.age = 0;
    this.state = 'live';
    const last = this.frames[this.frames.length - 1];
    if (last && last.t >= frame.t) return;
    this.frames.push(frame);
    if (this.frames.length > KEPT) this.frames.splice(0, this.frames.length - KEPT);
    if (!this.paused) this.frame = frame;
  }

  /** Reads what was measured before the console was opened. */
  private async fill(): Promise<void> {
    try {
      const before = await series(600, [...DASHBOARD_SERIES, 'plugin_calls', 'plugin_cpu']);
      const first = this.frames[0]?.t ?? Infinity;
      const frames = framesOf(before).filter((frame) => frame.t < first && Object.keys(frame.all).length > 0);
      this.frames = [...frames, ...this.frames].slice(-KEPT);
    } catch {
      // The charts begin empty.
    }
  }
}

/** Words of the series that charts show. */
export const DASHBOARD_SERIES = ['reads', 'writes', 'deletes', 'items', 'memory', 'disk_queue', 'queries', 'query_seconds', 'plugin_lag', 'cpu', 'rss', 'mutations'];

interface History {
  nodes: Record<string, { step: number; start: number; series: Record<string, (number | null)[]> }>;
  missing: string[];
}

/** Reads what was measured in the last `range` seconds. */
export function series(range: number, names: string[]): Promise<History> {
  return get<History>(`_nacre/series?range=${range}&names=${names.join(',')}`, { background: true });
}

/** Turns a history into frames, by time. */
export function framesOf(history: History): Frame[] {
  const frames = new Map<number, Frame>();
  for (const [node, { step, start, series }] of Object.entries(history.nodes)) {
    for (const [name, values] of Object.entries(series)) {
      values.forEach((value, index) => {
        const t = (start + index * step) * 1000;
        let frame = frames.get(t);
        if (!frame) frames.set(t, (frame = { t, nodes: {}, all: {}, missing: [] }));
        if (value === null) return;
        (frame.nodes[node] ??= {})[name] = value;
        const before = frame.all[name];
        frame.all[name] = before === undefined ? value : isMaximum(name) ? Math.max(before, value) : before + value;
      });
    }
  }
  return [...frames.values()].sort((a, b) => a.t - b.t);
}

/** Adds up the values of a word over all its subjects, or of one: `reads` is the sum of `reads:a` and `reads:b`. */
export function total(values: Values | undefined, word: string, subject = ''): number | null {
  if (!values) return null;
  if (subject) return values[`${word}:${subject}`] ?? null;
  let sum: number | null = values[word] ?? null;
  for (const [name, value] of Object.entries(values)) if (name.startsWith(`${word}:`)) sum = (sum ?? 0) + value;
  return sum;
}

/** Subjects of a word: `reads:a` and `reads:b` have a and b. */
export function subjects(values: Values | undefined, word: string): string[] {
  return Object.keys(values ?? {}).filter((name) => name.startsWith(`${word}:`)).map((name) => name.slice(word.length + 1)).sort();
}

export const live = new Live();
