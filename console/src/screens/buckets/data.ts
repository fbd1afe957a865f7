// Buckets, and what is in them.

import { get, segment } from '../../lib/api';

export interface Bucket {
  name: string;
  uuid: string;
  bucketType: string;
  numVBuckets?: number;
  replicaNumber?: number;
  storageBackend?: string;
  evictionPolicy?: string;
  conflictResolutionType?: string;
  durabilityMinLevel?: string;
  maxTTL?: number;
  compressionMode?: string;
  /** Days that deletions are kept, where the bucket has a setting of its own. */
  purgeInterval?: number;
  quota: { ram: number; rawRAM: number };
  basicStats: { itemCount: number; memUsed: number; quotaPercentUsed: number; diskUsed: number };
  controllers: { flush?: string };
}

export interface Manifest {
  uid: string;
  scopes: { name: string; uid: string; collections: { name: string; uid: string; maxTTL?: number; history?: boolean }[] }[];
}

export const readBuckets = (signal: AbortSignal, background: boolean): Promise<Bucket[]> => get<Bucket[]>('pools/default/buckets?skipMap=true', { signal, background });
export const readManifest = (bucket: string, signal: AbortSignal, background: boolean): Promise<Manifest> => get<Manifest>(`pools/default/buckets/${segment(bucket)}/scopes`, { signal, background });

/** Refuses names before they are sent; an empty text when a name is good. */
export function nameProblem(name: string, what: 'bucket' | 'scope'): string {
  if (name === '') return '';
  if (what === 'bucket') {
    if (name.length > 100) return 'At most 100 characters.';
    return /^[A-Za-z0-9._%-]+$/.test(name) ? '' : 'Letters, digits and . _ - % only.';
  }
  if (name.length > 251) return 'At most 251 characters.';
  if (/^[_%]/.test(name)) return 'It cannot begin with _ or %.';
  return /^[A-Za-z0-9_%-]+$/.test(name) ? '' : 'Letters, digits and _ - % only.';
}

/** Modes of compression. */
export const COMPRESSIONS = ['off', 'passive', 'active'] as const;
/** Levels of durability that each write has at least, and their words. */
export const DURABILITIES = [['none', 'none'], ['majority', 'majority'], ['majorityAndPersistActive', 'majority, and on the disk of the active node'], ['persistToMajority', 'on the disks of a majority']] as const;

/** Settings that can be changed while a bucket serves. */
export interface BucketSettings {
  ramQuota: number;
  replicaNumber: number;
  maxTTL: number;
  compressionMode: string;
  durabilityMinLevel: string;
  flushEnabled: boolean;
}

export const settingsOf = (bucket: Bucket): BucketSettings => ({
  ramQuota: Math.round(bucket.quota.rawRAM / 1_048_576),
  replicaNumber: bucket.replicaNumber ?? 0,
  maxTTL: bucket.maxTTL ?? 0,
  compressionMode: bucket.compressionMode ?? 'passive',
  durabilityMinLevel: bucket.durabilityMinLevel ?? 'none',
  flushEnabled: bucket.controllers.flush !== undefined,
});

/** The fields of the form that differ: the rest may have been changed by somebody else since. */
export function changesOf(before: BucketSettings, after: BucketSettings): Record<string, string | number> {
  const names = Object.keys(before) as (keyof BucketSettings)[];
  return Object.fromEntries(names.filter((name) => before[name] !== after[name]).map((name) => [name, name === 'flushEnabled' ? Number(after[name]) : (after[name] as string | number)]));
}
