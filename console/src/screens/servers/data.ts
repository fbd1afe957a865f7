// Nodes of the cluster, and the map of a bucket.

import { get, segment } from '../../lib/api';

/** Names of services, by what nodes call them. */
export const SERVICES: Record<string, string> = { kv: 'data', n1ql: 'query', fts: 'search', cbas: 'analytics' };

export interface NodeInfo {
  hostname: string;
  otpNode: string;
  status: string;
  clusterMembership: string;
  services: string[];
  version: string;
  uptime?: string;
  thisNode?: boolean;
  ports?: { direct?: number };
  serverGroup?: string;
  systemStats?: { cpu_utilization_rate?: number; mem_total?: number; mem_free?: number };
  interestingStats?: { curr_items?: number; curr_items_tot?: number; mem_used?: number };
}

export interface Pool {
  name?: string;
  clusterName?: string;
  nodes: NodeInfo[];
  balanced: boolean;
  rebalanceStatus: string;
}

export interface Task {
  type: string;
  status: string;
  progress?: number;
  perNode?: Record<string, { progress: number }>;
  errorMessage?: string;
}

export interface VbucketMap {
  serverList: string[];
  /** For each vBucket the numbers of nodes in the list of servers, the active one first; -1 for none. */
  vBucketMap: number[][];
}

export const readPool = (signal: AbortSignal, background: boolean): Promise<Pool> => get<Pool>('pools/default', { signal, background });
export const readTasks = (signal: AbortSignal, background: boolean): Promise<Task[]> => get<Task[]>('pools/default/tasks', { signal, background });

export async function readMap(bucket: string, signal: AbortSignal, background: boolean): Promise<VbucketMap> {
  const found = await get<{ vBucketServerMap: VbucketMap }>(`pools/default/buckets/${segment(bucket)}`, { signal, background });
  return found.vBucketServerMap;
}

/** Columns and rows of a grid with so many cells, as square as the number allows. */
export function gridOf(cells: number): { columns: number; rows: number } {
  let columns = Math.max(1, Math.ceil(Math.sqrt(cells)));
  while (cells % columns !== 0 && columns < cells) columns += 1;
  return { columns, rows: Math.ceil(cells / columns) };
}

/** How many vBuckets each server serves and copies. */
export function share({ serverList, vBucketMap }: VbucketMap): { server: string; active: number; replica: number }[] {
  const rows = serverList.map((server) => ({ server, active: 0, replica: 0 }));
  for (const chain of vBucketMap)
    chain.forEach((server, turn) => {
      const row = rows[server];
      if (row) row[turn === 0 ? 'active' : 'replica'] += 1;
    });
  return rows;
}

/** Says where a vBucket is. */
export function describe({ serverList, vBucketMap }: VbucketMap, vbid: number): string {
  const [active = -1, ...replicas] = vBucketMap[vbid] ?? [];
  const name = (server: number): string => serverList[server] ?? 'no node';
  const copies = replicas.filter((server) => server >= 0).map(name);
  return `vBucket ${vbid}: active on ${name(active)}${copies.length ? `, replica on ${copies.join(', ')}` : ', no replica'}`;
}
