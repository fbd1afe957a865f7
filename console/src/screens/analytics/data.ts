// What analytics copies, and how far it is.

import { ApiError, get } from '../../lib/api';

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

/** A node without the service answers as one whose service starts later would, with other words. */
const isWithoutService = (error: unknown): boolean => error instanceof ApiError && error.status === 503 && JSON.stringify(error.body).includes('does not have the service');

export const readCopies = (signal: AbortSignal, background: boolean): Promise<Copy[]> =>
  get<{ links: Link[] }>('_p/cbas/analytics/status/ingestion', { signal, background }).then(
    ({ links }) => copies(links),
    (error: unknown) => {
      throw isWithoutService(error) ? new ApiError(404, 'This service is not enabled') : error;
    },
  );

export const kindOfStatus = (status: string): string => ({ healthy: 'good', stopped: 'warn', suspended: 'warn', unhealthy: 'bad' })[status] ?? '';
