// Documents of a collection: pages, one, and writes that name the version they replace.

import { ApiError, get, segment, send, errorOf } from '../../lib/api';

export interface Keyspace {
  bucket: string;
  scope: string;
  collection: string;
}
export interface Row {
  id: string;
  cas: string;
  expiration: number;
  flags: number;
  bytes: number;
  isJson: boolean;
  head: string;
}
export interface Page {
  rows: Row[];
  next: string | null;
  count: number;
  sorted: boolean;
}
export interface Document {
  meta: { id: string; cas: string; expiration: number; flags: number };
  json?: string;
  base64?: string;
}

/** The version that stands for none: the document must not be there yet. */
export const NEW = '0';
/** Size above which a document is only to be downloaded, in bytes. */
export const SHOWN_BYTES_MAX = 5 << 20;

const path = ({ bucket, scope, collection }: Keyspace): string => `pools/default/buckets/${segment(bucket)}/scopes/${segment(scope)}/collections/${segment(collection)}/docs`;

export function readPage(keyspace: Keyspace, prefix: string, after: string | null, signal: AbortSignal): Promise<Page> {
  const query = new URLSearchParams({ limit: '50' });
  if (prefix) query.set('prefix', prefix);
  if (after !== null) query.set('after', after);
  return get<Page>(`${path(keyspace)}?${query.toString()}`, { signal });
}

export const readDocument = (keyspace: Keyspace, id: string, signal?: AbortSignal): Promise<Document> => get<Document>(`${path(keyspace)}/${segment(id)}`, { signal });

/** Another version is there by now; none when the document is gone. */
export class Conflict extends Error {
  constructor(readonly now: Document | null) {
    super('the document has changed');
  }
}

/** Stores a document over the version `cas`; gives the new version. */
export async function store(keyspace: Keyspace, id: string, value: string, cas: string, expiry?: number): Promise<string> {
  const answer = await send(`${path(keyspace)}/${segment(id)}`, { form: { value, cas, expiry } });
  const body = await answer.text();
  if (answer.status === 409) throw new Conflict((JSON.parse(body) as { now: Document | null }).now);
  if (answer.status === 404 && cas !== NEW) throw new Conflict(null);
  if (!answer.ok) throw errorOf(answer.status, body);
  return (JSON.parse(body) as { cas: string }).cas;
}

export async function remove(keyspace: Keyspace, id: string, cas: string): Promise<void> {
  const answer = await send(`${path(keyspace)}/${segment(id)}?cas=${cas}`, { method: 'DELETE' });
  const body = await answer.text();
  if (answer.status === 409) throw new Conflict((JSON.parse(body) as { now: Document | null }).now);
  if (!answer.ok) throw errorOf(answer.status, body);
}

export const isMissing = (error: unknown): boolean => error instanceof ApiError && error.status === 404;

/** Returns the difference between two texts, line by line: the longest common sequence of lines stays. */
export function difference(before: string, after: string): { kind: 'same' | 'out' | 'in'; text: string }[] {
  const [a, b] = [before.split('\n'), after.split('\n')];
  // A table for large texts would take gigabytes: they are shown one after the other.
  if (a.length * b.length > 4_000_000) return [...a.map((text) => ({ kind: 'out' as const, text })), ...b.map((text) => ({ kind: 'in' as const, text }))];
  const width = b.length + 1;
  const longest = new Uint32Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i -= 1)
    for (let j = b.length - 1; j >= 0; j -= 1)
      longest[i * width + j] = a[i] === b[j] ? (longest[(i + 1) * width + j + 1] ?? 0) + 1 : Math.max(longest[(i + 1) * width + j] ?? 0, longest[i * width + j + 1] ?? 0);
  const lines: { kind: 'same' | 'out' | 'in'; text: string }[] = [];
  let [i, j] = [0, 0];
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      lines.push({ kind: 'same', text: a[i] ?? '' });
      i += 1;
      j += 1;
    } else if (j >= b.length || (i < a.length && (longest[(i + 1) * width + j] ?? 0) >= (longest[i * width + j + 1] ?? 0))) {
      lines.push({ kind: 'out', text: a[i] ?? '' });
      i += 1;
    } else {
      lines.push({ kind: 'in', text: b[j] ?? '' });
      j += 1;
    }
  }
  return lines;
}
