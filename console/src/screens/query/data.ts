// Statements: how they are sent, what comes back, and how a plan is drawn.

import { errorOf, get, segment, send, type ApiError } from '../../lib/api';
import { readBucketNames } from '../../lib/load.svelte';
import { ExactNumber, cell, parse } from '../../lib/numbers';
import { readManifest } from '../buckets/data';
import { quote, quoted } from '../indexes/data';

export interface Outcome {
  statement: string;
  rows: unknown[];
  /** Rows beyond those that are shown. */
  left: number;
  metrics: { elapsedTime?: string; executionTime?: string; resultCount?: number; resultSize?: number; mutationCount?: number };
  warnings: string[];
  /** Times of the phases and the plan of the statement, where the service measures them. */
  profile?: Profile;
  at: number;
}
export interface Profile {
  phaseTimes?: Record<string, string>;
  phaseCounts?: Record<string, number>;
  executionTimings?: unknown;
}

/** A service that runs statements. */
export interface QueryService {
  id: 'query' | 'analytics';
  title: string;
  /** Where statements go. */
  path: string;
  /** Where its requests are listed, below `active_requests` and `completed_requests`. */
  requests: string;
  /** Measures phases. */
  hasProfile: boolean;
  /** Statement that a new user sees. */
  example: string;
  /** Message of an editor without collections. */
  nothing: string;
}
export const QUERY: QueryService = { id: 'query', title: 'Query', path: '_p/query/query/service', requests: '_p/query/admin', hasProfile: true, example: 'SELECT 1 + 1 AS two', nothing: 'There is no bucket yet.' };
export const ANALYTICS: QueryService = { id: 'analytics', title: 'Analytics', path: '_p/cbas/analytics/service', requests: '_p/cbas/analytics/admin', hasProfile: false, example: 'SELECT VALUE d FROM Metadata.`Dataset` AS d', nothing: 'No collection is followed yet: CREATE ANALYTICS COLLECTION.' };

/** Rows that are kept of an answer. */
export const ROWS_MAX = 10_000;

export interface QueryOptions {
  consistency: 'not_bounded' | 'request_plus';
  readonly: boolean;
  timeout: string;
  context: string;
  parameters: string;
}

/** Sends a statement. The node is told to stop when `signal` ends the request. */
export async function run(statement: string, options: QueryOptions, signal: AbortSignal, service = QUERY): Promise<Outcome> {
  const body: Record<string, unknown> = { statement, scan_consistency: options.consistency, pretty: false };
  if (service.hasProfile) body.profile = 'timings';
  if (options.readonly) body.readonly = true;
  if (options.timeout) body.timeout = options.timeout;
  if (options.context) body.query_context = options.context;
  if (options.parameters.trim()) {
    const given = JSON.parse(options.parameters) as unknown;
    if (Array.isArray(given)) body.args = given;
    else if (typeof given === 'object' && given !== null) for (const [name, value] of Object.entries(given)) body[name.startsWith('$') ? name : `$${name}`] = value;
  }
  const answer = await send(service.path, { json: body, signal });
  const text = await answer.text();
  if (!answer.ok) throw errorOf(answer.status, text);
  const found = parse(text) as { results?: unknown[]; errors?: unknown[]; status?: string; metrics?: Outcome['metrics']; warnings?: { code?: number; msg?: string }[]; profile?: Profile };
  if (found.errors?.length || (found.status && !['success', 'completed'].includes(found.status))) throw errorOf(answer.status, text) as ApiError;
  const rows = found.results ?? [];
  return {
    statement,
    rows: rows.slice(0, ROWS_MAX),
    left: Math.max(0, rows.length - ROWS_MAX),
    metrics: found.metrics ?? {},
    warnings: (found.warnings ?? []).map(({ code, msg }) => `${msg ?? ''}${code ? ` (${code})` : ''}`),
    profile: found.profile,
    at: Date.now(),
  };
}

/** Columns of rows: the members of the objects, in the order in which they come first; one nameless column for other values. */
export function columns(rows: unknown[]): string[] {
  const names = new Set<string>();
  for (const row of rows.slice(0, 500)) {
    if (typeof row === 'object' && row !== null && !Array.isArray(row)) for (const name of Object.keys(row)) names.add(name);
    else names.add('');
  }
  return [...names];
}

export function valueAt(row: unknown, column: string): unknown {
  if (typeof row !== 'object' || row === null || Array.isArray(row)) return column === '' ? row : undefined;
  return column === '' ? undefined : (row as Record<string, unknown>)[column];
}

/** A box of a plan. */
export interface PlanNode {
  id: number;
  operator: string;
  /** Its subject: a keyspace, an index, a condition. */
  details: string[];
  kind: 'cheap' | 'scan' | 'costly';
  children: PlanNode[];
  rowsIn?: number;
  rowsOut?: number;
  time?: string;
  x: number;
  y: number;
}

const SHOWN = ['index', 'keyspace', 'as', 'condition', 'by', 'expr', 'on_clause', 'limit', 'offset'];
const COSTLY = /^(PrimaryScan|SequentialScan|KeyspaceScan|NestedLoop|.*NestedLoop.*)/;
type Operator = Record<string, unknown>;
const isOperator = (value: unknown): value is Operator => typeof value === 'object' && value !== null && '#operator' in value;

function details(operator: Operator): string[] {
  const lines: string[] = [];
  for (const name of SHOWN) {
    const value = operator[name];
    if (typeof value === 'string' || typeof value === 'number') lines.push(`${name === 'expr' ? '' : `${name.replace('_', ' ')} `}${value}`);
  }
  if (Array.isArray(operator.spans)) lines.push(`${operator.spans.length} span${operator.spans.length === 1 ? '' : 's'}`);
  if (Array.isArray(operator.sort_terms)) lines.push(operator.sort_terms.map((term: Operator) => `${String(term.expr ?? '')}${term.desc ? ' desc' : ''}`).join(', '));
  if (Array.isArray(operator.group_keys) && operator.group_keys.length) lines.push(`by ${operator.group_keys.join(', ')}`);
  return lines;
}

/**
 * Makes a tree of a plan: what produces rows is a child of what takes them. A sequence is a chain, its last operator on top; other
 * operators have what they name as `~child`, `~children`, `first`, `second`, `scan` and `scans` below them.
 */
export function planTree(plan: unknown): PlanNode | null {
  let next = 0;
  function build(value: unknown, below: PlanNode[]): PlanNode[] {
    if (!isOperator(value)) return below;
    const operator = String(value['#operator']);
    const children = Array.isArray(value['~children']) ? value['~children'] : [];
    if (operator === 'Sequence') return children.reduce<PlanNode[]>((chain, child) => build(child, chain), below);
    if ((operator === 'Parallel' || operator === 'Authorize') && isOperator(value['~child'])) return build(value['~child'], below);
    const sources = [...children, value.first, value.second, value.scan, ...(Array.isArray(value.scans) ? value.scans : []), value['~child']].filter(isOperator);
    const stats = typeof value['#stats'] === 'object' && value['#stats'] !== null ? (value['#stats'] as Operator) : {};
    const number = (name: string): number | undefined => (typeof stats[name] === 'number' ? (stats[name] as number) : undefined);
    return [
      {
        id: (next += 1),
        operator,
        details: details(value),
        kind: COSTLY.test(operator) ? 'costly' : /Scan|Fetch/.test(operator) ? 'scan' : 'cheap',
        children: [...below, ...sources.flatMap((source) => build(source, []))],
        rowsIn: number('#itemsIn'),
        rowsOut: number('#itemsOut'),
        time: typeof stats.execTime === 'string' ? stats.execTime : undefined,
        x: 0,
        y: 0,
      },
    ];
  }
  return build(plan, [])[0] ?? null;
}

/** Size of a box, and of the space around it. */
export const BOX = { width: 190, height: 74, gapX: 44, gapY: 18 };

/** Gives each box a place: what produces rows is to the left of what takes them. Returns the size of the whole. */
export function layout(root: PlanNode): { width: number; height: number; nodes: PlanNode[] } {
  const nodes: PlanNode[] = [];
  const depthOf = (node: PlanNode): number => 1 + Math.max(0, ...node.children.map(depthOf));
  const depth = depthOf(root);
  let row = 0;
  function place(node: PlanNode, level: number): number {
    nodes.push(node);
    node.x = (depth - 1 - level) * (BOX.width + BOX.gapX);
    const rows = node.children.map((child) => place(child, level + 1));
    const own = rows.length === 0 ? row++ : ((rows[0] ?? 0) + (rows[rows.length - 1] ?? 0)) / 2;
    node.y = own * (BOX.height + BOX.gapY);
    return own;
  }
  place(root, 0);
  return { width: depth * (BOX.width + BOX.gapX) - BOX.gapX, height: Math.max(1, row) * (BOX.height + BOX.gapY) - BOX.gapY, nodes };
}

/** Writes rows as comma-separated values. */
export function csv(rows: unknown[], cell: (value: unknown) => string): string {
  const names = columns(rows);
  const quoted = (text: string): string => {
    // A spreadsheet would take such a text for a formula.
    const safe = /^[=+\-@\t\r]/.test(text) && Number.isNaN(Number(text)) ? `'${text}` : text;
    return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  };
  return [names.map((name) => quoted(name || 'value')).join(','), ...rows.map((row) => names.map((name) => quoted(cell(valueAt(row, name)))).join(','))].join('\r\n');
}

/** Milliseconds of a duration as services print it: `1m2.5s`, `3.2ms`, `480µs`; null for other texts. */
export function durationMs(text: string | undefined): number | null {
  const parts = [...(text ?? '').matchAll(/(\d+(?:\.\d+)?)(h|ms|m|s|µs|us|ns)/g)];
  if (parts.length === 0 || parts.map(([part]) => part).join('') !== text) return null;
  const size: Record<string, number> = { h: 3_600_000, m: 60_000, s: 1000, ms: 1, µs: 0.001, us: 0.001, ns: 0.000_001 };
  return parts.reduce((sum, [, number, unit = '']) => sum + Number(number) * (size[unit] ?? 0), 0);
}

/** The phases of a request with their time and its share, in their order. */
export function phases(profile: Profile | undefined): { name: string; ms: number; share: number }[] {
  const known = Object.entries(profile?.phaseTimes ?? {}).flatMap(([name, text]) => {
    const ms = durationMs(text);
    return ms === null ? [] : [{ name, ms }];
  });
  const all = known.reduce((sum, { ms }) => sum + ms, 0);
  return known.map((phase) => ({ ...phase, share: all ? (phase.ms / all) * 100 : 0 }));
}

/** A bar of a chart of rows. */
export interface RowBar {
  label: string;
  value: number;
  /** The value as it was written. */
  text: string;
  /** Length in percent of the longest bar. */
  share: number;
}
/** Bars that are drawn at most. */
export const BARS_MAX = 60;

/** A number as charts need it; none for other values. */
const numberOf = (value: unknown): number | null => (typeof value === 'number' ? value : value instanceof ExactNumber ? Number(value.source) : null);

/** Columns whose values are numbers, wherever they have one. */
export function numericColumns(rows: unknown[]): string[] {
  const seen = rows.slice(0, 500);
  return columns(rows).filter((name) => {
    const values = seen.map((row) => valueAt(row, name)).filter((value) => value !== undefined && value !== null);
    return values.length > 0 && values.every((value) => numberOf(value) !== null);
  });
}

/** Bars of the first rows that have a number in the column `value`. */
export function bars(rows: unknown[], label: string, value: string): RowBar[] {
  const found = rows.flatMap((row, index) => {
    const number = numberOf(valueAt(row, value));
    return number === null ? [] : [{ label: label === '#' ? String(index + 1) : cell(valueAt(row, label)), value: number, text: cell(valueAt(row, value)) }];
  });
  const shown = found.slice(0, BARS_MAX);
  const longest = Math.max(0, ...shown.map((bar) => Math.abs(bar.value)));
  return shown.map((bar) => ({ ...bar, share: longest ? (Math.abs(bar.value) / longest) * 100 : 0 }));
}

/** A request that runs, or that took long. */
export interface ServiceRequest {
  requestId?: string;
  clientContextID?: string | null;
  statement?: string;
  preparedName?: string;
  state: string;
  users?: string;
  elapsedTime?: string | number;
  startedMs?: number;
  resultCount?: number;
  errorCount?: number;
}

/** Requests of the node that serves the page. */
export const readRequests = (service: QueryService, which: 'active_requests' | 'completed_requests', signal: AbortSignal, background: boolean): Promise<ServiceRequest[]> =>
  get<ServiceRequest[]>(`${service.requests}/${which}`, { signal, background });

/** Path that stops a request; nothing if it cannot be named. */
export function stopPath(service: QueryService, { requestId, clientContextID }: ServiceRequest): string {
  if (service.id === 'query') return requestId ? `${service.requests}/active_requests/${segment(requestId)}` : '';
  return clientContextID ? `${service.requests}/active_requests?client_context_id=${segment(clientContextID)}` : '';
}

/** Time that a request has taken. */
export function elapsedMs({ elapsedTime }: ServiceRequest): number | null {
  return typeof elapsedTime === 'number' ? elapsedTime * 1000 : durationMs(elapsedTime);
}

/** Collections that statements can name, by bucket or by scope of analytics. */
export interface KeyspaceGroup {
  name: string;
  collections: { scope: string; name: string; path: string }[];
}

export async function readKeyspaces(service: QueryService, signal: AbortSignal): Promise<KeyspaceGroup[]> {
  if (service.id === 'analytics') {
    const options: QueryOptions = { consistency: 'not_bounded', readonly: true, timeout: '', context: '', parameters: '' };
    const found = await run('SELECT d.DataverseName AS scope, d.DatasetName AS name FROM Metadata.`Dataset` AS d', options, signal, service);
    return followed(found.rows as { scope: string; name: string }[]);
  }
  const buckets = await readBucketNames(signal);
  return Promise.all(
    buckets.map(async (bucket) => ({
      name: bucket,
      collections: (await readManifest(bucket, signal, true)).scopes
        .filter((scope) => scope.name !== '_system')
        .flatMap((scope) => scope.collections.map(({ name }) => ({ scope: scope.name, name, path: quote({ bucket, scope: scope.name, collection: name }) }))),
    })),
  );
}

/** Collections of analytics by their scope, whose name may have two parts. */
export function followed(rows: { scope: string; name: string }[]): KeyspaceGroup[] {
  const groups = new Map<string, KeyspaceGroup>();
  for (const { scope, name } of rows) {
    if (scope === 'Metadata') continue;
    const group = groups.get(scope) ?? { name: scope, collections: [] };
    groups.set(scope, group);
    group.collections.push({ scope: '', name, path: [...scope.split('/'), name].map(quoted).join('.') });
  }
  return [...groups.values()];
}
