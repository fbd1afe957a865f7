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
