// What the charts of the dashboard show.

import type { Line } from '../../lib/Chart.svelte';
import { type Frame, subjects, total } from '../../lib/live.svelte';

export const RANGES = [
  { id: '1m', title: '1 min', seconds: 60 },
  { id: '10m', title: '10 min', seconds: 600 },
  { id: '1h', title: '1 hour', seconds: 3600 },
  { id: '1d', title: '1 day', seconds: 86_400 },
  { id: '1w', title: '1 week', seconds: 604_800 },
] as const;

/** The port of key-value clients that connection strings leave out. */
export const KV_PORT = 11_210;

/** How to reach the cluster from outside, for people who begin: titles and lines to copy. */
export function connections(server: string, user: string, port: number): [string, string][] {
  const address = `couchbase://${new URL(server).hostname}${port === KV_PORT ? '' : `:${port}`}`;
  return [
    ['Connection string', address],
    ['Shell', `nacre sh --server ${server} --user ${user}`],
    ['curl', `curl -u ${user} ${server}/pools/default`],
    ['JavaScript', `const cluster = await couchbase.connect('${address}', { username: '${user}', password: '…' })`],
    ['Python', `cluster = Cluster('${address}', ClusterOptions(PasswordAuthenticator('${user}', '…')))`],
  ];
}

export const COLOURS = ['var(--c1)', 'var(--c2)', 'var(--c3)', 'var(--c4)', 'var(--c5)', 'var(--c6)', 'var(--c7)', 'var(--c8)'];

/** The frames of the last `seconds`. */
export function recent(frames: Frame[], seconds: number, now: number): Frame[] {
  return frames.filter((frame) => frame.t > now - seconds * 1000);
}

/** A line that adds a word up over buckets, or shows one. */
export function line(frames: Frame[], label: string, word: string, color: string, subject = ''): Line {
  return { label, color, values: frames.map((frame) => total(frame.all, word, subject)) };
}

/** A line for each subject of a word: those with the largest last values, and the rest as one. */
export function lines(frames: Frame[], word: string, most = 6): Line[] {
  const last = frames[frames.length - 1]?.all;
  const named = subjects(last, word).sort((a, b) => (last?.[`${word}:${b}`] ?? 0) - (last?.[`${word}:${a}`] ?? 0));
  const shown = named.slice(0, most).map((name, index) => line(frames, name, word, COLOURS[index % COLOURS.length] ?? '', name));
  const rest = named.slice(most);
  if (rest.length > 0) {
    const values = frames.map((frame) => rest.reduce<number | null>((sum, name) => {
      const value = frame.all[`${word}:${name}`];
      return value === undefined ? sum : (sum ?? 0) + value;
    }, null));
    shown.push({ label: `${rest.length} others`, color: 'var(--muted)', values });
  }
  return shown;
}

/** A line of a word for each node. */
export function byNode(frames: Frame[], word: string): Line[] {
  const nodes = [...new Set(frames.flatMap((frame) => Object.keys(frame.nodes)))].sort();
  return nodes.map((node, index) => ({
    label: node,
    color: COLOURS[index % COLOURS.length] ?? '',
    values: frames.map((frame) => frame.nodes[node]?.[word] ?? null),
  }));
}

/** Milliseconds that a query took, in the mean. */
export function queryTime(frames: Frame[]): Line {
  const values = frames.map(({ all }) => {
    const [seconds, queries] = [all.query_seconds, all.queries];
    return seconds === undefined || !queries ? null : (seconds / queries) * 1000;
  });
  return { label: 'mean', color: 'var(--c3)', values };
}
