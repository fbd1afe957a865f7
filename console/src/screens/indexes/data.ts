// Indexes of queries.

import type { Values } from '../../lib/live.svelte';

export interface Index {
  id: string;
  name: string;
  bucket: string;
  scope: string;
  collection: string;
  definition: string;
  isPrimary: boolean;
  secExprs: string[];
  where: string;
  status: string;
  progress: number;
  hosts: string[];
  partitioned: boolean;
  numPartition: number;
}

export const quoted = (name: string): string => `\`${name.replaceAll('`', '``')}\``;

/** The collection of an index, as a statement names it. */
export const quote = ({ bucket, scope, collection }: Pick<Index, 'bucket' | 'scope' | 'collection'>): string => [bucket, scope, collection].map(quoted).join('.');

export const dropStatement = (index: Pick<Index, 'bucket' | 'scope' | 'collection' | 'name'>): string => `DROP INDEX ${quoted(index.name)} ON ${quote(index)}`;

/** Indexes by collection. */
export function groups(indexes: Index[]): { name: string; indexes: Index[] }[] {
  const found = new Map<string, Index[]>();
  for (const index of indexes) {
    const name = `${index.bucket}.${index.scope}.${index.collection}`;
    found.set(name, [...(found.get(name) ?? []), index]);
  }
  return [...found].map(([name, indexes]) => ({ name, indexes })).sort((a, b) => a.name.localeCompare(b.name));
}

/** Mutations that the index has not seen yet, if it is measured. */
export function lagOf({ name, bucket, scope, collection }: Pick<Index, 'name' | 'bucket' | 'scope' | 'collection'>, values: Values | undefined): number | null {
  return values?.[`plugin_lag:index ${name} on ${bucket}.${scope}.${collection}`] ?? null;
}

/** A key without the quotes that it does not need. */
export const plain = (key: string): string => key.replace(/`([A-Za-z_]\w*)`/g, '$1');
