// Other clusters, and the buckets that follow buckets here.

import { get } from '../../lib/api';
import type { Section } from '../settings/data';

export interface Reference {
  uuid: string;
  name: string;
  hostname: string;
  username: string;
  secureType: string;
  network_type?: string;
  certificate?: string;
  connectivityStatus?: string;
}
interface Task {
  type: string;
  id: string;
  source: string;
  /** `/remoteClusters/{uuid}/buckets/{bucket}`. */
  target: string;
  status: string;
  pauseRequested?: boolean;
  changesLeft?: number | null;
  errors?: string[];
  stuckDocuments?: number;
}
interface Info {
  Id: string;
  StatsMap?: Record<string, number | null>;
}

export interface Replication {
  id: string;
  source: string;
  /** The reference's name; its UUID where the reference is gone. */
  cluster: string;
  target: string;
  status: string;
  paused: boolean;
  /** Versions that the target does not have yet. */
  left: number | null;
  /** Versions that are done since the nodes started. */
  done: number | null;
  /** Versions that the target has taken. */
  written: number | null;
  filtered: number | null;
  /** Versions that lost against the one at the target: before and after they were sent. */
  lostHere: number | null;
  lostThere: number | null;
  /** Documents that the target refuses, and that are tried again. */
  stuck: number;
  errors: string[];
}
export interface Known {
  references: Reference[];
  replications: Replication[];
}

/** Puts together what three endpoints know of replications. */
export function replicationsOf(references: Reference[], tasks: Task[], infos: Info[]): Replication[] {
  return tasks
    .filter(({ type }) => type === 'xdcr')
    .map((task) => {
      const [, , uuid = '', , target = ''] = task.target.split('/');
      const stats = infos.find(({ Id }) => Id === task.id)?.StatsMap ?? {};
      const of = (name: string): number | null => stats[name] ?? null;
      return {
        id: task.id,
        source: task.source,
        cluster: references.find((one) => one.uuid === uuid)?.name ?? uuid,
        target,
        status: task.status,
        paused: task.pauseRequested === true,
        left: task.changesLeft ?? of('changes_left'),
        done: of('docs_processed'),
        written: of('docs_written'),
        filtered: of('docs_filtered'),
        lostHere: of('docs_failed_cr_source'),
        lostThere: of('docs_failed_cr_target'),
        stuck: task.stuckDocuments ?? 0,
        errors: task.errors ?? [],
      };
    })
    .sort((a, b) => a.id.localeCompare(b.id));
}

export async function readState(signal: AbortSignal, background: boolean): Promise<Known> {
  const [references, tasks, infos] = await Promise.all([
    get<Reference[]>('pools/default/remoteClusters', { signal, background }),
    get<Task[]>('pools/default/tasks', { signal, background }),
    get<Info[]>('pools/default/replicationInfos', { signal, background }),
  ]);
  return { references, replications: replicationsOf(references, tasks, infos) };
}

/** How much of what is known is done, 0 to 100. Without anything to do it is all. */
export function progressOf({ done, left }: Pick<Replication, 'done' | 'left'>): number | null {
  if (left === null || done === null) return null;
  return left === 0 ? 100 : Math.min(99.9, (done / (done + left)) * 100);
}

/** A count at a moment, in milliseconds. */
export interface Sample {
  at: number;
  done: number;
}

/** Versions a second between two samples; nothing where a node has started again, or no time has passed. */
export function rateOf(before: Sample | undefined, now: Sample): number | null {
  if (!before || now.done < before.done || now.at - before.at < 500) return null;
  return ((now.done - before.done) * 1000) / (now.at - before.at);
}

export const kindOf = ({ status, stuck, paused }: Pick<Replication, 'status' | 'stuck' | 'paused'>): string => (status === 'running' ? (paused || stuck ? 'warn' : 'good') : paused ? 'warn' : 'bad');
export const wordOf = ({ status, paused }: Pick<Replication, 'status' | 'paused'>): string => (paused && status === 'running' ? 'pausing' : status === 'notRunning' ? 'not running' : status);

const WORDS: Record<string, string> = {
  priority: 'Priority',
  compressionType: 'Compression',
  optimisticReplicationThreshold: 'Optimistic threshold in bytes',
  checkpointInterval: 'Checkpoint interval in seconds',
  failureRestartInterval: 'Retry interval in seconds',
  filterDeletion: 'Skip deletions',
  filterExpiration: 'Skip expirations',
  filterBypassExpiry: 'Remove the TTL of documents',
  filterBinary: 'Skip documents that are not JSON',
  collectionsExplicitMapping: 'Use collection rules',
};

/** Settings that other fields of the page or nothing here changes: the rest of what the node knows stays as it is. */
const FIXED = ['type', 'pauseRequested', 'filterExpression', 'filterSkipRestream', 'collectionsMigrationMode', 'collectionsMirroringMode', 'mobile', 'networkUsageLimit', 'logLevel', 'jsFunctionTimeoutMs', 'filterBypassUncommittedTxn', 'goMaxProcs', 'goGC'];

/** A form of settings: of one replication, or those that later ones begin with. */
export const settingsOf = (path: string, title: string, text: string): Section => ({ title, text, path, words: WORDS, fixed: FIXED, permission: 'replications', shown: Object.keys(WORDS) });
