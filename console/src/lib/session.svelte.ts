// Who uses the console, and what they may do.

import { ApiError, get, textOf, whenUnauthorized } from './api';
import { live } from './live.svelte';

interface Role {
  role: string;
}
interface User {
  id: string;
  name?: string;
  domain?: string;
  roles?: Role[];
}

/**
 * Actions of screens: the permission, in Couchbase's words, and the privilege that gives it. A user may have privileges of the last
 * kind for a scope or a collection alone, so that only the node knows whether they suffice.
 */
const NEEDS = {
  stats: ['cluster.stats!read', 'ReadStats', false],
  administer: ['cluster.settings!write', 'AdministerCluster', false],
  users: ['cluster.admin.security!write', 'AdministerUsers', false],
  buckets: ['cluster.buckets!create', 'AdministerBucket', false],
  plugins: ['cluster.plugins!write', 'AdministerPlugins', false],
  replications: ['cluster.xdcr.settings!write', 'AdministerReplications', false],
  bucket: ['cluster.bucket[.].settings!write', 'AdministerBucket', true],
  collections: ['cluster.bucket[.].collections!write', 'AdministerCollections', true],
  documents: ['cluster.bucket[.].data.docs!upsert', 'WriteData', true],
  indexes: ['cluster.bucket[.].n1ql.index!create', 'AdministerIndexes', true],
  views: ['cluster.bucket[.].views!write', 'AdministerViews', true],
  functions: ['cluster.bucket[.].eventing.functions!manage', 'ManageFunctions', true],
  search: ['cluster.bucket[.].fts!write', 'AdministerSearch', true],
} as const satisfies Record<string, readonly [string, string, boolean]>;

/** Something that not every user may do. */
export type Need = keyof typeof NEEDS;

class Session {
  state = $state<'starting' | 'unclaimed' | 'out' | 'in' | 'expired'>('starting');
  user = $state.raw<User | null>(null);
  version = $state('');
  private may = $state.raw<Record<string, boolean>>({});

  constructor() {
    whenUnauthorized(() => {
      if (this.state === 'in') this.state = 'expired';
    });
  }

  async start(): Promise<void> {
    try {
      const pools = await get<{ claimed?: boolean; pools?: unknown[]; componentsVersion?: { nacre?: string } }>('pools');
      if (pools.claimed === false) {
        this.state = 'unclaimed';
        return;
      }
      if (!pools.pools?.length) {
        this.state = 'out';
        return;
      }
      this.version = pools.componentsVersion?.nacre ?? '';
      await this.enter();
    } catch (error) {
      if (error instanceof ApiError && error.status === 401) this.state = 'out';
      else throw error;
    }
  }

  private async enter(): Promise<void> {
    this.user = await get<User>('whoami');
    await this.check();
    this.state = 'in';
    if (!this.lacks('stats')) live.start();
  }

  private async check(): Promise<void> {
    this.may = await get<Record<string, boolean>>('pools/default/checkPermissions', {
      method: 'POST',
      body: Object.values(NEEDS).map(([permission]) => permission).join(','),
      headers: { 'content-type': 'text/plain' },
    });
  }

  /** Says which privilege the user lacks; nothing if none. */
  lacks(need: Need): string {
    const [permission, privilege, isScoped] = NEEDS[need];
    const may = this.may[permission] === true || (isScoped && (this.user?.roles?.length ?? 0) > 0);
    return may ? '' : `Missing privilege: ${privilege}`;
  }

  async login(user: string, password: string): Promise<void> {
    await textOf('uilogin', { form: { user, password } });
    if (this.user !== null && this.user.id !== user) {
      // What another user had on the screen goes.
      location.reload();
      return;
    }
    await this.start();
  }

  async logout(everywhere = false): Promise<void> {
    await textOf('uilogout', { method: 'POST', form: everywhere ? { everywhere: true } : {} });
    live.stop();
    location.hash = '';
    location.reload();
  }
}

export const session = new Session();
