/**
 * What tests import in a browser, in place of Node's test runner and assertions, and of the client for sockets: these tests
 * write through `nacre/http` what they read through it.
 */

import * as web from '../../src/web.js'
import type { Node } from './node.js'

/** Where the node is, which whoever opens the page says. */
interface Setting extends Node {
  managementUrl: string
}

const setting: Setting = (globalThis as any).setting
const tests: [string, () => Promise<void>][] = []

/** Takes a test; all run one after the other once they are called. */
export function test(name: string, body: () => Promise<void>): void {
  tests.push([name, body])
}

/** Runs the tests; gives what failed, and how many passed. */
export async function runTests(): Promise<{ passed: number; failures: string[] }> {
  const failures: string[] = []
  for (const [name, body] of tests) {
    await body().catch((error) => failures.push(`${name}: ${error?.stack ?? error}`))
  }
  return { passed: tests.length - failures.length, failures }
}

/** A value as text, with the names of what JSON does not know. */
function textOf(value: unknown): string {
  return JSON.stringify(value, (_, part) => {
    if (part === undefined) return '<undefined>'
    if (typeof part === 'bigint') return `<${part}>`
    if (part instanceof Uint8Array) return { bytes: [...part] }
    return part
  })
}

function check(value: unknown, message?: string): void {
  if (!value) throw new Error(message ?? 'that is not true')
}

function equal(found: unknown, expected: unknown): void {
  check(Object.is(found, expected), `${textOf(found)} is not ${textOf(expected)}`)
}

async function rejects(promise: PromiseLike<unknown>, expected: any): Promise<void> {
  const [error] = await Promise.resolve(promise).then(
    () => [],
    (failure) => [failure],
  )
  check(error, 'nothing was rejected')
  if (expected instanceof RegExp) check(expected.test(String(error)), `${error} does not match ${expected}`)
  else if (expected.prototype instanceof Error) check(error instanceof expected, `${error} is no ${expected.name}`)
  else check(expected(error), `${error} is not what was expected`)
}

/** As `node:assert/strict`, as far as the tests use it. */
const assert: any = Object.assign(check, {
  equal,
  notEqual: (found: unknown, other: unknown) => check(!Object.is(found, other), `both are ${textOf(found)}`),
  deepEqual: (found: unknown, expected: unknown) => equal(textOf(found), textOf(expected)),
  rejects,
})
export default assert

/** Bytes; what the tests make of them is a `Uint8Array`. */
Object.assign(globalThis, { Buffer: { from: (bytes: number[]): Uint8Array => new Uint8Array(bytes) } })

export const nodeOfEnvironment = (): Node => setting
export const managementUrl = async (): Promise<string> => setting.managementUrl
export const unique = (prefix: string): string => `${prefix}-${crypto.randomUUID()}`

async function ask(method: string, path: string, type?: string, body?: string | Uint8Array): Promise<any> {
  const response = await fetch(setting.managementUrl + path, {
    method,
    headers: {
      authorization: `Basic ${btoa(`${setting.user}:${setting.password}`)}`,
      ...(type ? { 'content-type': type } : {}),
    },
    ...(body === undefined ? {} : { body: body as string }),
  })
  if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${await response.text()}`)
  const text = await response.text()
  return text ? JSON.parse(text) : undefined
}

/** A token of the node's user. */
export async function createToken(
  _node: Node,
  _url: string,
  scopes: string[],
): Promise<{ text: string; revoke: () => Promise<void> }> {
  const body = JSON.stringify({ name: unique('test'), scopes, ttl: 600 })
  const { id, token } = await ask('POST', '/api/v1/tokens', 'application/json', body)
  return { text: token, revoke: () => ask('DELETE', `/api/v1/tokens/${id}`) }
}

/** A collection whose bytes are stored as they are. */
function withBytes(collection: web.HttpCollection): any {
  return Object.assign(Object.create(collection), {
    async upsert(key: string, value: unknown) {
      if (!(value instanceof Uint8Array)) return collection.upsert(key, value)
      // The API takes JSON; whoever opened the page stores bytes for it.
      return ask('PUT', `/bytes/${encodeURIComponent(key)}`, 'application/octet-stream', value)
    },
    ...Object.fromEntries(
      ['get', 'exists', 'remove'].map((name) => [name, (...args: unknown[]) => (collection as any)[name](...args)]),
    ),
  })
}

/** A test with a bucket, a collection and a key of its own. */
export function nodeTest(name: string, body: (setting: any) => Promise<void>): void {
  test(name, async () => {
    const { user: username, password, bucketName } = setting
    const cluster = web.connect(setting.managementUrl, { username, password })
    const found = cluster.bucket(bucketName)
    const scopes = `/pools/default/buckets/${bucketName}/scopes`
    const bucket = {
      name: bucketName,
      collection: (collection: string) => found.collection(collection),
      collections: () => ({
        createCollection: (collection: string, scope: string) =>
          ask('POST', `${scopes}/${scope}/collections`, 'application/x-www-form-urlencoded', `name=${collection}`),
        dropCollection: (collection: string, scope: string) => ask('DELETE', `${scopes}/${scope}/collections/${collection}`),
      }),
    }
    await body({ node: setting, bucket, collection: withBytes(found.defaultCollection()), key: unique('key') })
    cluster.close()
  })
}
