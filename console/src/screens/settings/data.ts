// Settings of the cluster, as the node names them.

export interface Section {
  title: string;
  text: string;
  path: string;
  /** Words of fields; those that are not named are shown by their names. */
  words: Record<string, string>;
  /** Fields that cannot be changed here. */
  fixed?: string[];
  /** Fields to show, where the rest is for experts; all without it. */
  shown?: string[];
  /** Right that changes need, if it is not the administration of the cluster. */
  permission?: 'replications';
}

export const SECTIONS: Section[] = [
  { title: 'Failover', text: 'Replicas take over from a node that does not answer.', path: 'settings/autoFailover', words: { enabled: 'Automatic failover', timeout: 'Timeout in seconds', maxCount: 'Maximum number of nodes' }, fixed: ['count', 'failoverOnDataDiskIssues', 'failoverPreserveDurabilityMajority', 'canAbortRebalance', 'allowFailoverEphemeralNoReplicas'] },
  { title: 'Rebalance', text: 'Speed of data movement between nodes.', path: 'settings/rebalance', words: { rebalanceMovesPerNode: 'Concurrent vBucket moves per node' } },
  { title: 'Rebalance retry', text: 'Failed rebalances are retried.', path: 'settings/retryRebalance', words: { enabled: 'Retry automatically', afterTimePeriod: 'Wait in seconds', maxAttempts: 'Maximum attempts' } },
  { title: 'Security', text: 'TLS, and access to this console.', path: 'settings/security', words: { tlsMinVersion: 'Minimum TLS version', honorCipherOrder: 'Prefer the server\'s cipher order', disableUIOverHttp: 'Disable the console over HTTP', disableUIOverHttps: 'Disable the console over HTTPS', disableWWWAuthenticate: 'Disable the password prompt of browsers' }, fixed: ['supportedCipherSuites', 'cipherSuites', 'responseHeaders', 'clusterEncryptionLevel', 'allowNonLocalCACertUpload'] },
  { title: 'Passwords', text: 'Rules for new passwords.', path: 'settings/passwordPolicy', words: { minLength: 'Minimum length', enforceUppercase: 'Require a capital letter', enforceLowercase: 'Require a lower-case letter', enforceDigits: 'Require a digit', enforceSpecialChars: 'Require a special character' } },
];

export type Value = string | number | boolean;

/** Fields that a form can show and send back. */
export function fieldsOf(settings: Record<string, unknown>, section: Section): [string, Value][] {
  const isPlain = (value: unknown): value is Value => ['string', 'number', 'boolean'].includes(typeof value);
  const order = Object.keys(section.words);
  const rank = (name: string): number => (order.includes(name) ? order.indexOf(name) : order.length);
  return Object.entries(settings)
    .filter((entry): entry is [string, Value] => isPlain(entry[1]) && !section.fixed?.includes(entry[0]))
    .sort(([a], [b]) => rank(a) - rank(b));
}
