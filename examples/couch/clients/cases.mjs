// Runs the cases of conformance/cases/couch against a server.
//
// A file is one database, whose cases run in order. In a request, `${name.path}` is a part of the answer to an earlier step.
// Values that a server chooses are normalized in every compared answer: revisions become `N-<id>`, and sequence numbers `<seq>`.
// Reasons of errors are for people, and not compared; nor are members that only one of the servers has (`DROPPED`). If the other
// server answers differently, the step has its answer as `oracle`, and the reason as `differs`. Changes of one request are in any
// order: `sorted`.

import { readdir, readFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';

export const FOLDER = fileURLToPath(new URL('../../../conformance/cases/couch/', import.meta.url));

const DROPPED = new Set([
  'reason', 'pending', 'bookmark', 'warning', 'total_rows', 'offset', 'possible_ancestors',
]);
const SEQS = new Set(['seq', 'last_seq']);

export async function files() {
  const names = (await readdir(FOLDER)).filter((name) => name.endsWith('.json')).sort();
  return Promise.all(names.map(async (name) => {
    const file = JSON.parse(await readFile(FOLDER + name, 'utf8'));
    return { name: name.slice(0, -5), ...file };
  }));
}

/** Returns an answer in the form for comparison. */
export function normal(value, key) {
  if (SEQS.has(key)) return '<seq>';
  if (typeof value === 'string') return value.replace(/^(\d+-)?([0-9a-f]{32}|[0-9a-f-]{36})$/, '$1<id>');
  if (Array.isArray(value)) return value.map((element) => normal(element));
  if (value && typeof value === 'object') {
    const members = Object.entries(value).filter(([name]) => !DROPPED.has(name));
    const sorted = members.sort(([a], [b]) => (a < b ? -1 : 1));
    return Object.fromEntries(sorted.map(([name, inner]) => [name, normal(inner, name)]));
  }
  return value;
}

function filled(text, answers) {
  return text.replace(/\$\{([^}]+)\}/g, (_, path) => {
    const [name, ...steps] = path.split('.');
    const value = steps.reduce((inner, step) => inner?.[step], answers[name]);
    if (value === undefined) throw new Error(`there is no ${path}`);
    return typeof value === 'string' ? value : JSON.stringify(value);
  });
}

/** Runs a step; returns the answer in the form for comparison. */
export async function play(step, url, answers, authorization, patienceMs = 10_000) {
  const [method, path] = step.request.split(/ (.*)/s);
  const headers = { ...(authorization ? { authorization } : {}) };
  let body;
  if (step.body !== undefined) {
    body = filled(JSON.stringify(step.body), answers);
    headers['content-type'] = 'application/json';
  } else if (step.text !== undefined) {
    body = step.text;
  }
  for (const [name, value] of Object.entries(step.headers ?? {})) headers[name] = filled(value, answers);
  const signal = AbortSignal.timeout(patienceMs);
  let response;
  try {
    response = await fetch(url + filled(path, answers), { method, body, headers, signal });
  } catch (error) {
    if (error.name !== 'TimeoutError') throw error;
    return { status: 'no answer' };
  }
  const text = await response.text();
  const answer = { status: response.status };
  let json;
  try {
    json = JSON.parse(text);
  } catch {
    json = undefined;
  }
  if (step.sorted) json?.results?.sort((a, b) => (a.id < b.id ? -1 : 1));
  if (json !== undefined) answer.json = normal(json);
  else if (text) answer.text = text;
  for (const name of step.compared ?? []) {
    answer.headers = { ...answer.headers, [name]: normal(response.headers.get(name)?.replaceAll('"', '') ?? null) };
  }
  if (step.as) answers[step.as] = json;
  return answer;
}
