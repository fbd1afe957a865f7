// Functions that react to changes.

import { get, segment } from '../../lib/api';

export interface FunctionStatus {
  name: string;
  composite_status: string;
  function_scope: { bucket: string; scope: string };
  reason?: string;
}
export interface FunctionDefinition {
  appname: string;
  appcode: string;
  depcfg: { source_bucket: string; source_scope?: string; source_collection?: string; buckets?: { alias: string; bucket_name: string; access: string }[]; [member: string]: unknown };
  settings: Record<string, unknown>;
  function_scope?: { bucket: string; scope: string };
}

export interface Keyspace {
  bucket: string;
  scope: string;
  collection: string;
}

/** Effects that a function would have on documents. */
export interface Trial {
  complete?: boolean;
  documents: {
    id: string;
    /** The handler, or why none was called. */
    outcome: string;
    error?: string;
    log?: string[];
    writes?: { keyspace: string; id: string; operation: string; doc?: unknown }[];
    timers?: { callback: string; reference: string; due_ms?: number; context?: unknown }[];
    requests?: { method: string; url: string }[];
  }[];
}

/** Input of a dry run: the code as typed, and the documents of `ids`, separated by commas, or those written last. */
export function trialOf(definition: FunctionDefinition, appcode: string, ids: string): Record<string, unknown> {
  const documents = ids.split(',').map((id) => id.trim()).filter(Boolean);
  return { function: { ...definition, appcode }, ...(documents.length ? { documents } : { last: 10 }) };
}

/** A function that does nothing yet. `alias` names the source in the code, if it is to write there. */
export function newFunction(name: string, source: Keyspace, metadata: Keyspace, alias: string): Record<string, unknown> {
  const place = (kind: string, { bucket, scope, collection }: Keyspace): Record<string, string> => ({ [`${kind}_bucket`]: bucket, [`${kind}_scope`]: scope, [`${kind}_collection`]: collection });
  const { bucket, scope, collection } = source;
  const buckets = alias ? [{ alias, bucket_name: bucket, scope_name: scope, collection_name: collection, access: 'rw' }] : [];
  return { appname: name, appcode: SKELETON, depcfg: { ...place('source', source), ...place('metadata', metadata), buckets, curl: [], constants: [] }, settings: { dcp_stream_boundary: 'from_now', deployment_status: false, processing_status: false } };
}

/** The query that names the scope of a function. */
export function scopeOf(scope: { bucket: string; scope: string } | undefined): string {
  return scope && scope.bucket !== '*' ? `?bucket=${segment(scope.bucket)}&scope=${segment(scope.scope)}` : '';
}
export const readStatus = (signal: AbortSignal, background: boolean): Promise<FunctionStatus[]> =>
  get<{ apps?: FunctionStatus[] }>('_p/event/api/v1/status', { signal, background }).then((found) => found.apps ?? []);

/** Actions that a function in a state allows. */
export function actions(status: string): string[] {
  switch (status) {
    case 'undeployed':
      return ['deploy'];
    case 'deployed':
      return ['pause', 'undeploy'];
    case 'paused':
      return ['resume', 'undeploy'];
    default:
      return [];
  }
}
export const kindOf = (status: string): string => ({ deployed: 'good', paused: 'warn', undeployed: '' })[status] ?? 'warn';

export const SKELETON = `function OnUpdate(doc, meta) {
  log('changed', meta.id);
}

function OnDelete(meta) {
}
`;
