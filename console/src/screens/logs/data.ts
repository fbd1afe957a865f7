// What has happened in the cluster.

export interface LogEntry {
  node: string;
  type: string;
  code: number;
  module: string;
  tstamp: number;
  text: string;
}
export interface ClusterEvent {
  timestamp: string;
  uuid: string;
  event_id: number;
  component: string;
  severity: string;
  description: string;
  node: string;
  extra_attributes: unknown;
}

export const LEVELS = ['info', 'warn', 'error', 'fatal'] as const;

/** Events that match a text and are at least of a severity, the newest first. */
export function matching(events: ClusterEvent[], text: string, least: string): ClusterEvent[] {
  const rank = (severity: string): number => Math.max(0, LEVELS.indexOf(severity as (typeof LEVELS)[number]));
  const wanted = text.toLowerCase();
  return events
    .filter((event) => rank(event.severity) >= rank(least) && `${event.description} ${event.component} ${event.node} ${JSON.stringify(event.extra_attributes)}`.toLowerCase().includes(wanted))
    .sort((a, b) => b.timestamp.localeCompare(a.timestamp));
}

/** The attributes of an event as one line. */
export function attributes(value: unknown): string {
  if (typeof value !== 'object' || value === null) return '';
  return Object.entries(value)
    .map(([name, one]) => `${name}: ${typeof one === 'object' ? JSON.stringify(one) : String(one)}`)
    .join(' · ');
}

/** An operation that took long, as the node that served it has kept it. */
export interface SlowOperation {
  service: string;
  operation: string;
  bucket: string;
  ms: number;
  /** Where the time went. */
  spent: { on: string; ms: number }[];
  ended: string;
  /** Key or statement, for users who may see it. */
  target?: string;
  user?: string;
}

export const matchingSlow = (operations: SlowOperation[], text: string): SlowOperation[] =>
  operations.filter(({ operation, bucket, target = '', user = '' }) => `${operation} ${bucket} ${target} ${user}`.toLowerCase().includes(text.toLowerCase()));
