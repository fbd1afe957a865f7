// Requests to the node, and what its errors mean.

/** An answer that is no success, in words. */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    /** One line. */
    readonly title: string,
    /** Problems by field of a form. */
    readonly fields: Record<string, string> = {},
    /** Privileges that the user lacks. */
    readonly permissions: string[] = [],
    /** Where in the source text the problem is, from 1. */
    readonly at: { line: number; column: number } | null = null,
    /** The body, if it was JSON. */
    readonly body: unknown = null,
  ) {
    super(title);
  }
  get forbidden(): boolean {
    return this.status === 403;
  }
  get retryable(): boolean {
    return this.status === 0 || this.status === 503 || this.status === 504;
  }
}

/** The words of whatever was thrown. */
export const messageOf = (error: unknown): string => (error instanceof Error ? error.message : String(error));

type Json = Record<string, unknown>;
const isObject = (value: unknown): value is Json => typeof value === 'object' && value !== null && !Array.isArray(value);
const text = (value: unknown): string => (typeof value === 'string' ? value : JSON.stringify(value));

function place(message: string): { line: number; column: number } | null {
  const found = /line (\d+)[,\s]+column:? ?(\d+)/i.exec(message);
  return found ? { line: Number(found[1]), column: Number(found[2]) } : null;
}

/**
 * Reads an answer that is no success. The node words errors as Couchbase does, each port in another way:
 * `{errors: {field: reason}}`, `{error, reason}`, `{errors: [{code, msg}]}`, `{name, code, description, runtime_info}`,
 * `{message, permissions}`, `{title, status, code, detail}` (RFC 9457), a list of texts, and plain text.
 */
export function errorOf(status: number, body: string): ApiError {
  const fallback = body.trim().slice(0, 500) || `the node has answered with status ${status}`;
  let json: unknown;
  try {
    json = JSON.parse(body);
  } catch {
    return new ApiError(status, fallback, {}, [], place(fallback));
  }
  if (typeof json === 'string') return new ApiError(status, json, {}, [], place(json), json);
  if (Array.isArray(json)) return new ApiError(status, json.map(text).join('; ') || fallback, {}, [], null, json);
  if (!isObject(json)) return new ApiError(status, fallback, {}, [], null, json);
  const message = json.message ?? json.detail;
  if (Array.isArray(json.permissions) && typeof message === 'string') {
    const missing = json.permissions.map(text);
    return new ApiError(status, `${message}: ${missing.join(', ')}`, {}, missing, null, json);
  }
  if (typeof json.detail === 'string') return new ApiError(status, json.detail, {}, [], place(json.detail), json);
  if (Array.isArray(json.errors)) {
    const messages = json.errors.map((error) => (isObject(error) ? `${text(error.msg ?? error.message ?? error)}${error.code ? ` (${text(error.code)})` : ''}` : text(error)));
    const title = messages.join('; ') || fallback;
    return new ApiError(status, title, {}, [], place(title), json);
  }
  if (isObject(json.errors)) {
    return ofFields(status, Object.fromEntries(Object.entries(json.errors).map(([field, reason]) => [field, text(reason)])), fallback, json);
  }
  if (typeof json.reason === 'string') return new ApiError(status, json.reason, {}, [], place(json.reason), json);
  if (typeof json.description === 'string') {
    const info = isObject(json.runtime_info) ? json.runtime_info.info : json.runtime_info;
    const title = [json.description, info].filter((part) => part !== undefined && part !== null && part !== '').map(text).join(': ');
    return new ApiError(status, title, {}, [], place(title), json);
  }
  // Search says `{status: "fail", error, request}`; its error may be an object.
  if (json.error !== undefined) return new ApiError(status, text(json.error), {}, [], place(text(json.error)), json);
  if (typeof json.message === 'string') return new ApiError(status, json.message, {}, [], place(json.message), json);
  const members = Object.entries(json);
  // References to other clusters: `{field: reason}`.
  if (members.length && members.every((member): member is [string, string] => typeof member[1] === 'string')) return ofFields(status, Object.fromEntries(members), fallback, json);
  return new ApiError(status, fallback, {}, [], null, json);
}

function ofFields(status: number, fields: Record<string, string>, fallback: string, json: unknown): ApiError {
  const title = Object.entries(fields).map(([field, reason]) => (field === '_' ? reason : `${field}: ${reason}`)).join('; ');
  return new ApiError(status, title || fallback, fields, [], place(title), json);
}

export interface Options {
  method?: string;
  form?: Record<string, string | number | boolean | undefined>;
  json?: unknown;
  body?: BodyInit;
  headers?: Record<string, string>;
  /** No person has caused it: the session is not renewed. */
  background?: boolean;
  signal?: AbortSignal;
}

/** Called when the node no longer knows the session. */
let onUnauthorized: () => void = () => {};
export function whenUnauthorized(call: () => void): void {
  onUnauthorized = call;
}

/** The address of a path of the node, below whatever prefix the console is served. */
export function url(path: string): string {
  return new URL(`../${path.replace(/^\//, '')}`, document.baseURI).href;
}

/** Sends a request; gives the answer, whatever its status. */
export async function send(path: string, options: Options = {}): Promise<Response> {
  const headers: Record<string, string> = { 'ns-server-ui': 'yes', accept: 'application/json', ...options.headers };
  let body = options.body;
  if (options.background) headers['nacre-background'] = 'yes';
  if (options.form) {
    const fields = Object.entries(options.form).filter(([, value]) => value !== undefined);
    body = new URLSearchParams(fields.map(([name, value]) => [name, String(value)]));
  } else if (options.json !== undefined) {
    headers['content-type'] = 'application/json';
    body = JSON.stringify(options.json);
  }
  const method = options.method ?? (body === undefined ? 'GET' : 'POST');
  try {
    const answer = await fetch(url(path), { method, headers, body, signal: options.signal, cache: 'no-store', credentials: 'same-origin' });
    if (answer.status === 401) onUnauthorized();
    return answer;
  } catch (error) {
    if (error instanceof DOMException && error.name === 'AbortError') throw error;
    throw new ApiError(0, 'the node cannot be reached');
  }
}

/** Sends a request; gives the body as text. */
export async function textOf(path: string, options: Options = {}): Promise<string> {
  const answer = await send(path, options);
  const body = await answer.text();
  if (!answer.ok) throw errorOf(answer.status, body);
  return body;
}

/** Sends a request; gives the body as JSON, `null` when it is empty. */
export async function get<T>(path: string, options: Options = {}): Promise<T> {
  const body = await textOf(path, options);
  if (body === '') return null as T;
  try {
    return JSON.parse(body) as T;
  } catch {
    throw new ApiError(200, `the node has answered with something else than JSON: ${body.slice(0, 100)}`);
  }
}

/** A segment of a path. */
export const segment = encodeURIComponent;
