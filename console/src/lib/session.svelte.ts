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

/** Permissions that screens ask about, in Couchbase's words. */
export const PERMISSIONS = {
  stats: 'cluster.stats!read',
  cluster: 'cluster.pools!read',
  administer: 'cluster.settings!write',
  users: 'cluster.admin.security!read',
  buckets: 'cluster.buckets!create',
  replications: 'cluster.xdcr.settings!write',
} as const;

class Session {
  state = $state<'starting' | 'unclaimed' | 'out' | 'in' | 'expired'>('starting');
  user = $state.raw<User | null>(null);
  version = $state('');
  may = $state.raw<Record<string, boolean>>({});

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
    if (this.may[PERMISSIONS.stats]) live.start();
  }

  private async check(): Promise<void> {
    this.may = await get<Record<string, boolean>>('pools/default/checkPermissions', {
      method: 'POST',
      body: Object.values(PERMISSIONS).join(','),
      headers: { 'content-type': 'text/plain' },
    });
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
