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
  { title: 'Failover', text: 'A node that does not answer is replaced by its replicas.', path: 'settings/autoFailover', words: { enabled: 'Fail over by itself', timeout: 'After seconds', maxCount: 'Nodes in a row, at most' }, fixed: ['count', 'failoverOnDataDiskIssues', 'failoverPreserveDurabilityMajority', 'canAbortRebalance', 'allowFailoverEphemeralNoReplicas'] },
  { title: 'Rebalance', text: 'How fast data moves between nodes.', path: 'settings/rebalance', words: { rebalanceMovesPerNode: 'vBuckets that a node moves at once' } },
  { title: 'Rebalance again', text: 'A rebalance that has failed is tried again.', path: 'settings/retryRebalance', words: { enabled: 'Try again', afterTimePeriod: 'After seconds', maxAttempts: 'Times, at most' } },
  { title: 'Security', text: 'TLS of clients, and how this console is served.', path: 'settings/security', words: { tlsMinVersion: 'Oldest version of TLS', honorCipherOrder: 'The server chooses the cipher', disableUIOverHttp: 'No console without TLS', disableUIOverHttps: 'No console over TLS', disableWWWAuthenticate: 'Browsers do not ask for a password themselves' }, fixed: ['supportedCipherSuites', 'cipherSuites', 'responseHeaders', 'clusterEncryptionLevel', 'allowNonLocalCACertUpload'] },
  { title: 'Passwords', text: 'What a new password must have.', path: 'settings/passwordPolicy', words: { minLength: 'Characters, at least', enforceUppercase: 'A capital letter', enforceLowercase: 'A small letter', enforceDigits: 'A digit', enforceSpecialChars: 'A special character' } },
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
