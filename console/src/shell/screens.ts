// The screens of the console. Each is loaded when it is shown first.

import type { Component } from 'svelte';

export interface Screen {
  id: string;
  title: string;
  group: 'Overview' | 'Data' | 'Compute' | 'Cluster';
  /** Pressed after `g`. */
  key: string;
  load: () => Promise<{ default: Component }>;
}

export const SCREENS: Screen[] = [
  { id: 'dashboard', title: 'Dashboard', group: 'Overview', key: 'd', load: () => import('../screens/dashboard/View.svelte') },
  { id: 'servers', title: 'Servers', group: 'Overview', key: 's', load: () => import('../screens/servers/View.svelte') },
  { id: 'flows', title: 'DCP flow', group: 'Overview', key: 'f', load: () => import('../screens/flows/View.svelte') },
  { id: 'buckets', title: 'Buckets', group: 'Data', key: 'b', load: () => import('../screens/buckets/View.svelte') },
  { id: 'documents', title: 'Documents', group: 'Data', key: 'o', load: () => import('../screens/documents/View.svelte') },
  { id: 'query', title: 'Query', group: 'Data', key: 'q', load: () => import('../screens/query/View.svelte') },
  { id: 'analytics', title: 'Analytics', group: 'Data', key: 'a', load: () => import('../screens/analytics/View.svelte') },
  { id: 'indexes', title: 'Indexes', group: 'Data', key: 'i', load: () => import('../screens/indexes/View.svelte') },
  { id: 'search', title: 'Search', group: 'Data', key: 'h', load: () => import('../screens/search/View.svelte') },
  { id: 'views', title: 'Views', group: 'Compute', key: 'v', load: () => import('../screens/views/View.svelte') },
  { id: 'eventing', title: 'Functions', group: 'Compute', key: 'e', load: () => import('../screens/eventing/View.svelte') },
  { id: 'plugins', title: 'Plugins', group: 'Compute', key: 'p', load: () => import('../screens/plugins/View.svelte') },
  { id: 'replication', title: 'Replication', group: 'Cluster', key: 'r', load: () => import('../screens/replication/View.svelte') },
  { id: 'backup', title: 'Backup', group: 'Cluster', key: 'k', load: () => import('../screens/backup/View.svelte') },
  { id: 'security', title: 'Security', group: 'Cluster', key: 'u', load: () => import('../screens/security/View.svelte') },
  { id: 'logs', title: 'Logs', group: 'Cluster', key: 'l', load: () => import('../screens/logs/View.svelte') },
  { id: 'settings', title: 'Settings', group: 'Cluster', key: 't', load: () => import('../screens/settings/View.svelte') },
];

export const GROUPS = ['Overview', 'Data', 'Compute', 'Cluster'] as const;
