/** Base of tests that talk to a running node, named by the environment. */

import { randomBytes } from 'node:crypto'
import { test } from 'node:test'

import { nodesWith } from '../../src/cluster-map.js'
import { type Bucket, type Cluster, type Collection, connect } from '../../src/index.js'

const HINT = 'set NACRE_TEST_URL (couchbase://127.0.0.1:11210) to test against a node'

/** Where the node is and who asks; missing variables have the defaults of `nacre serve`. */
export interface Node {
  url: string
  user: string
  password: string
  bucketName: string
}

/** What a test has: a connection, and a key that no other test has. */
export interface Setting {
  node: Node
  cluster: Cluster
  bucket: Bucket
  collection: Collection
  key: string
}

/** The node, from the environment. */
export function nodeOfEnvironment(): Node {
  const { NACRE_TEST_URL: url, NACRE_TEST_USER, NACRE_TEST_PASSWORD, NACRE_TEST_BUCKET } = process.env
  if (!url) throw new Error(HINT)
  return {
    url,
    user: NACRE_TEST_USER ?? 'Administrator',
    password: NACRE_TEST_PASSWORD ?? 'password',
    bucketName: NACRE_TEST_BUCKET ?? 'default',
  }
}

/** A test with a connection of its own. */
export function nodeTest(name: string, body: (setting: Setting) => Promise<void>): void {
  test(name, async () => {
    const node = nodeOfEnvironment()
    await using cluster = await connect(node.url, node.user, node.password)
    const bucket = cluster.bucket(node.bucketName)
    const collection = bucket.defaultCollection()
    const key = unique('key')
    // Connected before the test begins, as some of its times are short.
    await collection.exists(key, { timeout: 10_000 })
    await body({ node, cluster, bucket, collection, key })
  })
}

/** URL of the node's management service, for the entry for browsers. */
export async function managementUrl(node: Node): Promise<string> {
  await using cluster = await connect(node.url, node.user, node.password)
  const map = await cluster.client.bootstrap({}, 10_000)
  const [address] = nodesWith(map, 'mgmt')
  return `http://${address!.host}:${address!.port}`
}

/** A token of the node's user. */
export async function createToken(
  { user, password }: Node,
  url: string,
  scopes: string[],
): Promise<{ text: string; revoke: () => Promise<void> }> {
  const headers = {
    authorization: `Basic ${Buffer.from(`${user}:${password}`).toString('base64')}`,
    'content-type': 'application/json',
  }
  const body = JSON.stringify({ name: unique('test'), scopes, ttl: 600 })
  const answer = await fetch(`${url}/api/v1/tokens`, { method: 'POST', headers, body })
  const { id, token, ...rest }: any = await answer.json()
  if (!token) throw new Error(`no token: ${JSON.stringify(rest)}`)
  return {
    text: token,
    revoke: async () => {
      const { status } = await fetch(`${url}/api/v1/tokens/${id}`, { method: 'DELETE', headers })
      if (status !== 204) throw new Error(`the token was not revoked: ${status}`)
    },
  }
}

/** A name that no other test has. */
export function unique(prefix: string): string {
  return `${prefix}-${randomBytes(6).toString('hex')}`
}
