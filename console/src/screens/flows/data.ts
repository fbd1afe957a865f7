// Where changes go: from buckets to what follows their history.

import { get } from '../../lib/api';
import { type Values, subjects, total } from '../../lib/live.svelte';
import { type FunctionDefinition } from '../eventing/data';
import { type Deployment, kindOf, readDeployments } from '../plugins/data';

export interface FlowNode {
  id: string;
  title: string;
  note: string;
  column: 0 | 1;
  y: number;
  height: number;
}
export interface Flow {
  from: string;
  to: string;
  /** Changes a second. */
  rate: number;
  /** Changes that are still to come. */
  remaining: number;
}

const ROW = 64;

/** Names of deployments and functions as they are measured, with the bucket that each follows. */
export type Sources = Record<string, string>;

/** The bucket whose changes a deployment follows: the one of its definition, the one that its name names, else the only one there is. */
function bucketOf(name: string, buckets: string[], sources: Sources): string | undefined {
  const defined = sources[name];
  if (defined !== undefined && buckets.includes(defined)) return defined;
  const place = /^index .* on (.*)$/.exec(name)?.[1] ?? name;
  return buckets.find((bucket) => place.startsWith(`${bucket}.`) || place.startsWith(`${bucket}/`)) ?? (buckets.length === 1 ? buckets[0] : undefined);
}

/** Draws what is measured as two columns: buckets, and what follows them. */
export function flows(values: Values | undefined, sources: Sources = {}): { nodes: FlowNode[]; flows: Flow[]; height: number } {
  const buckets = subjects(values, 'items');
  const nodes: FlowNode[] = [];
  const found: Flow[] = [];
  const consumers: { id: string; title: string; note: string }[] = [];
  for (const bucket of buckets) {
    const rate = total(values, 'mutations', bucket) ?? 0;
    const queue = total(values, 'disk_queue', bucket);
    if (queue === null) continue;
    const id = `disk/${bucket}`;
    consumers.push({ id, title: 'Disk', note: bucket });
    found.push({ from: bucket, to: id, rate, remaining: queue });
  }
  for (const name of subjects(values, 'plugin_lag')) {
    const bucket = bucketOf(name, buckets, sources);
    const id = `plugin/${name}`;
    consumers.push({ id, title: name, note: kindOf(name) });
    if (bucket) found.push({ from: bucket, to: id, rate: total(values, 'plugin_documents', name) ?? 0, remaining: total(values, 'plugin_lag', name) ?? 0 });
  }
  const height = Math.max(1, buckets.length, consumers.length) * ROW;
  buckets.forEach((bucket, index) => nodes.push({ id: bucket, title: bucket, note: 'vBucket history', column: 0, y: ((index + 0.5) * height) / buckets.length - 22, height: 44 }));
  consumers.forEach((consumer, index) => nodes.push({ ...consumer, column: 1, y: ((index + 0.5) * height) / consumers.length - 22, height: 44 }));
  return { nodes, flows: found, height };
}

/** Width of an edge: it grows with the logarithm, so that slow and fast streams are both seen. */
export const widthOf = (rate: number): number => 2 + Math.min(8, 0.7 * Math.log2(1 + Math.max(0, rate)));

/** Seconds until a consumer has caught up, at the rate of now; none when it stands still. */
export function secondsLeft({ rate, remaining }: Flow): number | null {
  if (remaining === 0) return 0;
  return rate > 0 ? remaining / rate : null;
}
export function stateOf(flow: Flow): 'good' | 'warn' | 'bad' {
  const left = secondsLeft(flow);
  if (left === null) return 'bad';
  return left < 1 ? 'good' : left < 10 ? 'warn' : 'bad';
}

/** The bucket that each function and each deployment follows. What the user may not see is left out. */
export function sourcesOf(functions: FunctionDefinition[], deployments: Deployment[]): Sources {
  const found: Sources = {};
  for (const { appname, depcfg, function_scope } of functions) {
    const at = function_scope && function_scope.bucket !== '*' ? `${function_scope.bucket}/${function_scope.scope}/` : '';
    found[`eventing:${at}${appname}`] = depcfg.source_bucket;
  }
  for (const { name, source } of deployments) if (source?.bucket) found[name] = source.bucket;
  return found;
}
export async function readSources(signal: AbortSignal): Promise<Sources> {
  const options = { signal, background: true };
  const [functions, deployments] = await Promise.all([get<FunctionDefinition[] | null>('_p/event/api/v1/functions', options).catch(() => null), readDeployments(signal, true).catch(() => [])]);
  return sourcesOf(functions ?? [], deployments);
}
