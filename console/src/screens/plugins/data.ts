// Deployed plugins: what they are, and what they cost.

import { get, segment } from '../../lib/api';
import { type Frame, type Values, subjects } from '../../lib/live.svelte';

export interface Usage {
  calls: number;
  failures: number;
  elapsed_ns: number;
  p50_ns: number | null;
  p99_ns: number | null;
  host_calls: Record<string, number>;
}
export interface Deployment {
  name: string;
  package?: string;
  version?: string;
  world?: string;
  state: string;
  reason?: string | null;
  lag?: number;
  documents?: number;
  document_errors?: number;
  dead_letter_count?: number;
  last_errors?: { id: string; vbucket: number; seqno: number; reason: string }[];
  dead_letters?: { id: string; vbucket: number; seqno: number; reason: string }[];
  log?: { level: string; message: string }[];
  metrics?: Record<string, number>;
  writer?: Usage;
  readers?: Usage;
  memory_bytes?: number;
  state_bytes?: number;
  traps?: number;
  grants?: Capabilities;
  config?: unknown;
  owner?: string;
  /** Documents that it follows. */
  source?: { bucket?: string };
  building?: Deployment;
}
/** Grants of a plugin beyond its own state. */
export interface Capabilities {
  kv?: { read?: string[]; write?: string[] };
  'http-out'?: string[];
}
/** A call that failed, as the node has recorded it. */
export interface Capsule {
  id: string;
  reason: string;
  /** False if parts of the call were too large to be recorded. */
  is_whole: boolean;
}
export interface Package {
  name: string;
  version: string;
  digest: string;
  manifest: { world?: string; capabilities?: Capabilities; description?: string } | null;
}

export async function readDeployments(signal: AbortSignal, background: boolean): Promise<Deployment[]> {
  const found = await get<Deployment[] | Record<string, Deployment>>('deployments', { signal, background });
  return Array.isArray(found) ? found : Object.values(found);
}
export const readDeployment = (name: string, signal: AbortSignal, background: boolean): Promise<Deployment> => get<Deployment>(`deployments/${segment(name)}`, { signal, background });
export const readPackages = (signal: AbortSignal, background: boolean): Promise<Package[]> => get<Package[]>('plugins', { signal, background });

export const readCapsules = (name: string, signal: AbortSignal): Promise<Capsule[]> => get<Capsule[]>(`deployments/${segment(name)}/capsules`, { signal, background: true });

/** Capabilities in words. */
export function capabilities(of: Capabilities | undefined): string[] {
  const { read = [], write = [] } = of?.kv ?? {};
  const hosts = of?.['http-out'] ?? [];
  const all = (names: string[]): string => names.map((name) => (name === '*' ? 'all collections of its bucket' : name)).join(', ');
  return [...(read.length ? [`read ${all(read)}`] : []), ...(write.length ? [`read and write ${all(write)}`] : []), ...(hosts.length ? [`send requests to ${hosts.join(', ')}`] : []), 'keep its own state and log'];
}

/** Body of the request that deploys a package. `keyspace` is empty, a scope, or a scope and a collection. */
export function wantedOf({ name, version, manifest }: Package, form: { bucket: string; keyspace: string; since: string; config: string }): Record<string, unknown> {
  const [scope, collection] = form.keyspace.trim().split('.');
  const source = form.bucket ? { bucket: form.bucket, ...(scope ? { scope } : {}), ...(collection ? { collection } : {}), since: form.since } : {};
  return { package: name, version, ...source, config: JSON.parse(form.config) as unknown, grants: manifest?.capabilities ?? {} };
}

export const kindOfState = (state: string): string => ({ running: 'good', paused: 'warn', loading: 'warn', failed: 'bad', damaged: 'bad' })[state] ?? '';

/** Values of one deployment in the last frames. */
export const sparkOf = (frames: Frame[], word: string, name: string): (number | null)[] => frames.map(({ all }) => all[`${word}:${name}`] ?? null);

/** The running deployments, as they are measured now. */
export interface Cost {
  name: string;
  kind: string;
  lag: number;
  cpu: number;
  calls: number;
  p99: number | null;
  memory: number;
  state: number;
  failures: number;
}

/** The kind of what runs under a name that the node has made. */
export function kindOf(name: string): string {
  if (/^index .* on /.test(name)) return 'index';
  if (name.startsWith('eventing:')) return 'function';
  return name.includes('/') ? 'view' : 'plugin';
}

/** All that runs, the most expensive first. */
export function costs(values: Values | undefined): Cost[] {
  const of = (word: string, name: string): number => values?.[`${word}:${name}`] ?? 0;
  const p99 = (name: string): number | null => {
    const known = [values?.[`plugin_p99:${name}`], values?.[`plugin_p99_read:${name}`]].filter((value): value is number => value !== undefined);
    return known.length ? Math.max(...known) : null;
  };
  return subjects(values, 'plugin_lag')
    .map((name) => ({
      name,
      kind: kindOf(name),
      lag: of('plugin_lag', name),
      cpu: of('plugin_cpu', name),
      calls: of('plugin_calls', name),
      p99: p99(name),
      memory: of('plugin_memory', name),
      state: of('plugin_state', name),
      failures: of('plugin_failures', name),
    }))
    .sort((a, b) => b.cpu - a.cpu || b.memory - a.memory || a.name.localeCompare(b.name));
}
