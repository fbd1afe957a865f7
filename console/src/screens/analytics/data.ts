// What analytics copies, and how far it is.

import { get } from '../../lib/api';

interface Link {
  name: string;
  scope: string;
  status: string;
  reason?: string;
  state: { progress: number; scopes: { name: string; collections: { name: string }[] }[]; itemsProcessed?: number; seqnoAdvances?: number }[];
}
/** A collection of analytics, which follows one of a bucket. */
export interface Copy {
  name: string;
  status: string;
  reason: string;
  /** 0 to 100. */
  progress: number;
  processed: number | null;
  /** Changes that are not copied yet. */
  remaining: number;
}

export const copies = (links: Link[]): Copy[] =>
  links.flatMap(({ status, reason = '', state }) =>
    state.flatMap(({ progress, scopes, itemsProcessed, seqnoAdvances }) =>
      scopes.flatMap((scope) => scope.collections.map(({ name }) => ({ name: `${scope.name}.${name}`, status, reason, progress: progress * 100, processed: itemsProcessed ?? null, remaining: seqnoAdvances ?? 0 }))),
    ),
  );

export const readCopies = (signal: AbortSignal, background: boolean): Promise<Copy[]> =>
  get<{ links: Link[] }>('_p/cbas/analytics/status/ingestion', { signal, background }).then(({ links }) => copies(links));

export const kindOfStatus = (status: string): string => ({ healthy: 'good', stopped: 'warn', suspended: 'warn', unhealthy: 'bad' })[status] ?? '';
