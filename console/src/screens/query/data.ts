// Statements: how they are sent, what comes back, and how a plan is drawn.

import { errorOf, send, type ApiError } from '../../lib/api';
import { parse } from '../../lib/numbers';

export interface Outcome {
  statement: string;
  rows: unknown[];
  /** Rows beyond those that are shown. */
  left: number;
  metrics: { elapsedTime?: string; executionTime?: string; resultCount?: number; resultSize?: number; mutationCount?: number };
  warnings: string[];
  at: number;
}

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
export async function run(statement: string, options: QueryOptions, signal: AbortSignal): Promise<Outcome> {
  const body: Record<string, unknown> = { statement, scan_consistency: options.consistency, pretty: false };
  if (options.readonly) body.readonly = true;
  if (options.timeout) body.timeout = options.timeout;
  if (options.context) body.query_context = options.context;
  if (options.parameters.trim()) {
    const given = JSON.parse(options.parameters) as unknown;
    if (Array.isArray(given)) body.args = given;
    else if (typeof given === 'object' && given !== null) for (const [name, value] of Object.entries(given)) body[name.startsWith('$') ? name : `$${name}`] = value;
  }
  const answer = await send('_p/query/query/service', { json: body, signal });
  const text = await answer.text();
  if (!answer.ok) throw errorOf(answer.status, text);
  const found = parse(text) as { results?: unknown[]; errors?: unknown[]; status?: string; metrics?: Outcome['metrics']; warnings?: { code?: number; msg?: string }[] };
  if (found.errors?.length || (found.status && !['success', 'completed'].includes(found.status))) throw errorOf(answer.status, text) as ApiError;
  const rows = found.results ?? [];
  return {
    statement,
    rows: rows.slice(0, ROWS_MAX),
    left: Math.max(0, rows.length - ROWS_MAX),
    metrics: found.metrics ?? {},
    warnings: (found.warnings ?? []).map(({ code, msg }) => `${msg ?? ''}${code ? ` (${code})` : ''}`),
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
