/** What the client does when a node is busy, moves, stays silent, breaks or lies. */

import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { test } from 'node:test'
import { setImmediate as turn, setTimeout as sleep } from 'node:timers/promises'

import * as nacre from '../../src/index.js'
import { type Answer, type Asked, encode, FakeNode } from './fake-node.js'

const GET = 0x00
const SET = 0x01
const HELLO = 0x1f
const SASL_AUTH = 0x21
const SELECT_BUCKET = 0x89
const OBSERVE_SEQNO = 0x91
const CONFIG = 0xb5
const COLLECTION_ID = 0xbb
const NONE = Buffer.alloc(0)
const TEMPORARY: Answer = [0x86, NONE, NONE]
const NO_BUCKET: Answer = [0x08, NONE, NONE]
const NOT_FOUND: Answer = [0x01, NONE, NONE]
const NO_ACCESS: Answer = [0x24, NONE, NONE]
const AUTH_ERROR: Answer = [0x20, NONE, NONE]
/** Not my vBucket, and no map. */
const NOT_MINE: Answer = [0x07, NONE, NONE]
const FOUND: Answer = text('v')
const SHORT = { timeout: 200 }
/** How long a test waits for what should not take long before it fails. */
const MS_MAX = 10_000
const CLOSED = { name: 'RequestCanceledError', message: /the cluster is closed/ }

function text(value: string): Answer {
  return [0, Buffer.from('02000000', 'hex'), Buffer.from(JSON.stringify(value))]
}

/** Gives these answers in turn, and then the last one again. */
function inTurn(...answers: Answer[]): () => Answer {
  return () => (answers.length > 1 ? answers.shift() : answers[0])
}

interface Setting {
  node: FakeNode
  cluster: nacre.Cluster
  bucket: nacre.Bucket
  collection: nacre.Collection
}

function withNode(name: string, body: (setting: Setting) => Promise<void>): void {
  test(name, async () => {
    await using node = await FakeNode.start()
    node.on.set(GET, () => FOUND)
    await using cluster = await nacre.connect(node.url, 'user', 'password')
    const bucket = cluster.bucket('b')
    const collection = bucket.defaultCollection()
    // Connected before the test begins, whose times are short.
    await collection.get('k')
    node.asked.length = 0
    await body({ node, cluster, bucket, collection })
  })
}

withNode('a busy node is asked again', async ({ node, collection }) => {
  node.on.set(GET, inTurn(TEMPORARY, TEMPORARY, FOUND))
  assert.equal((await collection.get('k')).content, 'v')
  assert.equal(node.count(GET), 3)
})

withNode('a node that stays busy is named in the error', async ({ node, collection }) => {
  node.on.set(GET, () => TEMPORARY)
  await assert.rejects(collection.get('k', SHORT), (error) => {
    assert(error instanceof nacre.TemporaryFailureError)
    assert.deepEqual([error.context.key, error.context.status], ['k', 0x86])
    assert.deepEqual(error.context.retryReasons, ['KV_TEMPORARY_FAILURE'])
    assert((error.context.retryAttempts ?? 0) > 1)
    assert.match(error.message, /key k.*status 0x86/)
    return true
  })
})

withNode('silence is ambiguous for writes only', async ({ node, collection }) => {
  node.on.set(GET, () => undefined).set(SET, () => undefined)
  await assert.rejects(collection.get('k', SHORT), nacre.UnambiguousTimeoutError)
  await assert.rejects(collection.upsert('k', 1, SHORT), nacre.AmbiguousTimeoutError)
})

withNode('a late answer does not reach the next request', async ({ node, collection }) => {
  const late: Asked[] = []
  node.on.set(GET, (asked) => void late.push(asked))
  await assert.rejects(collection.get('k', SHORT), nacre.TimeoutError)
  node.on.set(GET, ({ opaque }) => text(String(opaque)))
  assert.notEqual((await collection.get('k')).content, String(late[0]!.opaque))
})

withNode('the caller can abort, before and during a request', async ({ node, collection }) => {
  node.on.set(GET, () => undefined)
  const reason = new Error('changed my mind')
  await assert.rejects(collection.get('k', { signal: AbortSignal.abort(reason) }), (error) => {
    assert(error instanceof nacre.RequestCanceledError)
    assert.equal(error.cause, reason)
    return true
  })
  const controller = new AbortController()
  const get = collection.get('k', { signal: controller.signal })
  setTimeout(() => controller.abort(), 20)
  await assert.rejects(get, nacre.RequestCanceledError)
})

withNode('requests do not wait for each other', async ({ node, collection }) => {
  const keys = Array.from({ length: 100 }, (_, index) => `k${index}`)
  node.on.set(GET, ({ key }) => text(key.subarray(1).toString()))
  const found = await Promise.all(keys.map((key) => collection.get(key)))
  assert.deepEqual(found.map(({ content }) => content), keys)
  // One for the cluster, one for the bucket.
  assert.equal(node.connectionCount, 2)
})

withNode('a lost connection is replaced', async ({ node, collection }) => {
  node.drop()
  assert.equal((await collection.get('k')).content, 'v')
})

withNode('a read is repeated when its connection is lost', async ({ node, collection }) => {
  node.on.set(GET, () => {
    node.on.set(GET, () => FOUND)
    return node.drop()
  })
  assert.equal((await collection.get('k')).content, 'v')
})

withNode('a write is not repeated when its connection is lost', async ({ node, collection }) => {
  node.on.set(SET, () => node.drop())
  await assert.rejects(collection.upsert('k', 1), nacre.RequestCanceledError)
  assert.equal(node.count(SET), 1)
})

withNode('a durable write is not repeated, and its error says what became of it', async ({ node, collection }) => {
  // A bucket can ask for durability where the client does not.
  const kinds = new Map([
    [0xa0, nacre.DurabilityLevelNotAvailableError],
    [0xa1, nacre.DurabilityImpossibleError],
    [0xa3, nacre.DurabilityAmbiguousError],
  ])
  for (const [status, kind] of kinds) {
    node.asked.length = 0
    node.on.set(SET, () => [status, NONE, NONE])
    await assert.rejects(collection.upsert('k', 1), kind)
    assert.equal(node.count(SET), 1)
  }
})

/** A change of seqno 7, and what is seen of it. */
function changed(node: FakeNode, seen: (bigint | number)[]): void {
  const bytes = (...parts: (bigint | number)[]): Buffer =>
    Buffer.concat(parts.map((part) => (typeof part === 'bigint' ? bigEndian(part) : Buffer.from([part]))))
  node.on.set(SET, () => [0, bytes(1n, 7n), NONE]).set(OBSERVE_SEQNO, () => [0, NONE, bytes(...seen)])
}

function bigEndian(number: bigint): Buffer {
  const bytes = Buffer.alloc(8)
  bytes.writeBigUInt64BE(number)
  return bytes
}

withNode('a durable write waits for no more copies than it needs', async ({ node, cluster }) => {
  // As with a bucket on fewer nodes than it wants replicas on.
  node.replicas = [-1]
  changed(node, [0, 0, 0, 1n, 7n, 7n])
  const collection = cluster.bucket('replicated').defaultCollection()
  await collection.upsert('k', 1, { ...SHORT, durabilityPersistTo: 1 })
})

withNode('nothing is left of a durable write whose mutation was lost', async ({ node, cluster }) => {
  node.replicas = [-1]
  changed(node, [1, 0, 0, 2n, 5n, 5n, 1n, 6n])
  const collection = cluster.bucket('replicated').defaultCollection()
  await collection.get('k')
  const running = timerCount()
  await assert.rejects(collection.upsert('k', 1, { durabilityPersistTo: 1 }), nacre.MutationLostError)
  assert.equal(timerCount(), running)
})

function timerCount(): number {
  return process.getActiveResourcesInfo().filter((kind) => kind === 'Timeout').length
}

withNode('a moved vBucket is followed', async ({ node, collection }) => {
  await using other = await FakeNode.start()
  other.on.set(GET, () => text('moved'))
  node.rev = 2
  node.on.set(GET, () => [0x07, NONE, node.config(other.port)])
  assert.equal((await collection.get('k')).content, 'moved')
  assert.equal((await collection.get('k')).content, 'moved')
  assert.equal(node.count(GET), 1)
})

withNode('the connection to a node that has left ends with the last answer', async ({ node, collection }) => {
  await using other = await FakeNode.start()
  other.on.set(GET, () => text('moved'))
  const underWay: Asked[] = []
  node.on.set(GET, (asked) => void underWay.push(asked))
  const late = collection.get('k')
  while (!underWay.length) await turn()
  const ended = oneEnds(node)
  node.rev = 2
  node.on.set(GET, () => [0x07, NONE, node.config(other.port)])
  assert.equal((await collection.get('k')).content, 'moved')
  for (const socket of node.sockets) socket.write(encode(underWay[0]!, FOUND!))
  assert.equal((await late).content, 'v')
  await ended
})

withNode('closing ends requests to a node that has left', async ({ node, cluster, collection }) => {
  await using other = await FakeNode.start()
  other.on.set(GET, () => FOUND)
  const underWay: Asked[] = []
  node.on.set(SET, (asked) => void underWay.push(asked))
  const write = assert.rejects(collection.upsert('k', 1), nacre.RequestCanceledError)
  while (!underWay.length) await turn()
  node.rev = 2
  node.on.set(GET, () => [0x07, NONE, node.config(other.port)])
  await collection.get('k')
  await cluster.close()
  await write
})

withNode('a connection to a node that leaves while it is opened ends', async ({ node, bucket, collection }) => {
  await using other = await FakeNode.start()
  const hello: Asked[] = []
  other.on.set(HELLO, (asked) => void hello.push(asked))
  node.neighbours = [{ kv: node.port }]
  node.rev = 2
  node.on.set(GET, inTurn([0x07, NONE, node.config(other.port)], FOUND))
  const get = collection.get('k')
  while (!hello.length) await turn()
  const ended = oneEnds(other)
  node.rev = 3
  // Makes the client fetch the map.
  await assert.rejects(Promise.resolve(bucket.viewQuery('d', 'v')), nacre.ServiceNotAvailableError)
  for (const socket of other.sockets) socket.write(encode(hello[0]!, [0, NONE, NONE]))
  assert.equal((await get).content, 'v')
  await ended
})

/** Resolves when a connection to the node has ended. */
async function oneEnds(node: FakeNode): Promise<void> {
  const timeout = AbortSignal.timeout(MS_MAX)
  await Promise.race([...node.sockets].map((socket) => once(socket, 'close', { signal: timeout })))
}

withNode('a moved vBucket without a map makes the client ask for it', async ({ node, collection }) => {
  node.on.set(GET, inTurn(NOT_MINE, FOUND))
  await collection.get('k')
  assert.equal(node.count(CONFIG), 1)
})

withNode('a node that has no map to give is asked again', async ({ node, collection }) => {
  node.on.set(GET, inTurn(NOT_MINE, NOT_MINE, FOUND)).set(CONFIG, () => TEMPORARY)
  assert.equal((await collection.get('k')).content, 'v')
})

withNode('others are asked for the map when a node has left', async ({ node }) => {
  await using other = await FakeNode.start()
  other.rev = 2
  other.on.set(GET, () => text('moved'))
  await using cluster = await nacre.connect(`${node.url},127.0.0.1:${other.port}`, 'user', 'password')
  const collection = cluster.bucket('b').defaultCollection()
  await collection.get('k')
  node.on.set(GET, () => NOT_MINE).set(CONFIG, () => [0x08, NONE, NONE])
  assert.equal((await collection.get('k')).content, 'moved')
})

withNode('others are asked when a node comes back without the bucket', async ({ node }) => {
  await using other = await FakeNode.start()
  other.on.set(GET, () => text('moved'))
  const cases: [number, Answer][] = [
    [SELECT_BUCKET, NO_ACCESS],
    [SELECT_BUCKET, NOT_FOUND],
    [SASL_AUTH, AUTH_ERROR],
    [GET, NO_BUCKET],
  ]
  for (const [opcode, refusal] of cases) {
    node.on.clear()
    node.on.set(GET, () => FOUND)
    await using cluster = await nacre.connect(`${node.url},127.0.0.1:${other.port}`, 'user', 'password')
    const collection = cluster.bucket('b').defaultCollection()
    await collection.get('k')
    other.rev++
    // Without the bucket a node has the map of the cluster at most.
    node.on.set(opcode, () => refusal).set(CONFIG, () => [0, NONE, node.configWithoutBucket()])
    node.drop()
    assert.equal((await collection.get('k')).content, 'moved')
  }
})

withNode('a bucket that is nowhere is not waited for', async ({ node, cluster, collection }) => {
  node.on.set(SELECT_BUCKET, () => NO_ACCESS)
  node.drop()
  await assert.rejects(collection.get('k'), nacre.BucketNotFoundError)
  await assert.rejects(cluster.bucket('other').defaultCollection().get('k'), nacre.BucketNotFoundError)
  node.on.delete(SELECT_BUCKET)
  node.on.set(GET, () => NO_BUCKET).set(CONFIG, () => [0, NONE, node.configWithoutBucket()])
  await assert.rejects(collection.get('k'), nacre.BucketNotFoundError)
})

withNode('a bucket that may come is waited for until the time-out, which says so', async ({ node, collection }) => {
  const gone = await FakeNode.start()
  const down = `127.0.0.1:${gone.port}`
  await gone[Symbol.asyncDispose]()
  await using cluster = await nacre.connect(`${node.url},${down}`, 'user', 'password')
  const two = cluster.bucket('b').defaultCollection()
  await two.get('k')
  const cases: [nacre.Collection, number, Answer][] = [
    // The node is about to have it.
    [collection, SELECT_BUCKET, NOT_FOUND],
    // The node has none, but another that cannot be asked may.
    [two, SELECT_BUCKET, NO_ACCESS],
    // The node has none to operate on, but its map says that it has.
    [collection, GET, NO_BUCKET],
  ]
  for (const [asked, opcode, refusal] of cases) {
    node.on.set(opcode, () => refusal)
    node.drop()
    await assert.rejects(asked.get('k', SHORT), (error) => {
      assert(error instanceof nacre.UnambiguousTimeoutError, `${error}`)
      assert(error.context.retryReasons?.includes('BUCKET_NOT_AVAILABLE'))
      return true
    })
    node.on.clear()
    node.on.set(GET, () => FOUND)
    assert.equal((await asked.get('k')).content, 'v')
  }
})

withNode('a map without the bucket is not taken', async ({ node, collection }) => {
  node.rev = 2
  node.on.set(GET, inTurn([0x07, NONE, node.configWithoutBucket()], FOUND))
  assert.equal((await collection.get('k')).content, 'v')
})

withNode('an older map is ignored', async ({ node, collection }) => {
  node.rev = 0
  node.on.set(GET, inTurn([0x07, NONE, node.config(1)], FOUND))
  assert.equal((await collection.get('k')).content, 'v')
})

withNode('a collection is looked up once, and again when forgotten', async ({ node, bucket }) => {
  const collection = bucket.scope('s').collection('c')
  const id = (number: number): Answer => [0, Buffer.from([...Array(11).fill(0), number]), NONE]
  node.on.set(COLLECTION_ID, inTurn(id(8), id(9)))
  await collection.get('k')
  await collection.get('k')
  assert.equal(node.count(COLLECTION_ID), 1)
  node.on.set(GET, inTurn([0x88, NONE, NONE], FOUND))
  await collection.get('k')
  assert.equal(node.asked.at(-1)!.key.toString(), '\tk')
})

withNode('a broken stream is given up', async ({ node, collection }) => {
  node.on.set(GET, () => {
    node.on.set(GET, () => FOUND)
    for (const socket of node.sockets) socket.write('garbage, and enough of it')
    return undefined
  })
  assert.equal((await collection.get('k')).content, 'v')
})

withNode('answers that are cut off are errors', async ({ node, collection }) => {
  node.on.set(GET, () => [0, NONE, Buffer.from('1')])
  await assert.rejects(collection.get('k'), nacre.DecodingFailureError)
})

withNode('closing ends requests and forbids more', async ({ node, cluster, collection }) => {
  node.on.set(SET, () => undefined)
  const write = collection.upsert('k', 1)
  const ended = assert.rejects(write, nacre.RequestCanceledError)
  await sleep(20)
  await cluster.close()
  await ended
  await assert.rejects(collection.get('k'), nacre.RequestCanceledError)
  assert.throws(() => cluster.bucket('other'), nacre.RequestCanceledError)
})

withNode('closing ends requests over HTTP and forbids more', async ({ node }) => {
  let askedCount = 0
  const silent = createServer(() => void askedCount++)
  silent.listen(0, '127.0.0.1')
  await once(silent, 'listening')
  const { port } = silent.address() as AddressInfo
  Object.assign(node.services, { mgmt: port, capi: port })
  const cluster = await nacre.connect(node.url, 'user', 'password')
  const bucket = cluster.bucket('b')
  const requests: (() => PromiseLike<unknown>)[] = [
    () => cluster.buckets().getAllBuckets(),
    () => bucket.collections().createScope('s'),
    () => bucket.viewQuery('d', 'v'),
    () => bucket.viewIndexes().dropDesignDocument('d'),
  ]
  const waiting = requests.map((request) => assert.rejects(Promise.resolve(request()), CLOSED))
  while (askedCount < requests.length) await turn()
  await cluster.close()
  await Promise.all(waiting)
  for (const request of requests) await assert.rejects(Promise.resolve(request()), CLOSED)
  assert.equal(askedCount, requests.length)
  silent.close()
  await once(silent, 'close')
})

withNode('closing ends requests that wait for a connection', async ({ node }) => {
  await using silent = await FakeNode.start()
  silent.on.set(0x1f, () => undefined)
  node.on.set(GET, () => {
    node.rev++
    return [0x07, NONE, node.config(silent.port)]
  })
  const cluster = await nacre.connect(node.url, 'user', 'password')
  const get = assert.rejects(cluster.bucket('b').defaultCollection().get('k'), CLOSED)
  while (!silent.sockets.size) await turn()
  const [socket] = silent.sockets
  const ended = new Promise((resolve) => socket!.on('close', resolve))
  await cluster.close()
  await Promise.all([get, ended])
})

test('a server that does not know the password is not trusted', async () => {
  await using node = await FakeNode.start()
  node.password = 'another'
  await assert.rejects(nacre.connect(node.url, 'user', 'password'), nacre.AuthenticationFailureError)
})

test('nobody there ends at the time-out', async () => {
  const node = await FakeNode.start()
  const { url } = node
  await node[Symbol.asyncDispose]()
  const connecting = nacre.connect(url, 'user', 'password', { connectTimeout: 80 })
  await assert.rejects(connecting, nacre.UnambiguousTimeoutError)
})

test('the next seed is asked when the first is down', async () => {
  await using node = await FakeNode.start()
  const cluster = await nacre.connect(`couchbase://127.0.0.1:1,127.0.0.1:${node.port}`, 'user', 'password')
  await cluster.close()
})

test('connecting without a password is refused', async () => {
  const options = { username: 'user' } as nacre.ConnectOptions
  await assert.rejects(nacre.connect('couchbase://127.0.0.1', options), nacre.InvalidArgumentError)
})
