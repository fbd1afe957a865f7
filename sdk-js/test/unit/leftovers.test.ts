/** That nothing is left of clusters that were closed, whatever their servers did. */

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { setImmediate as turn } from 'node:timers/promises'

import * as nacre from '../../src/index.js'
import { type Answer, type Asked, FakeNode } from './fake-node.js'

const [GET, UPSERT] = [0x00, 0x01]
const OUTSTANDING = 100_000
const LARGE_BYTES = 20 * 1024 * 1024

const found = (value: string): Answer => [0, Buffer.from('02000000', 'hex'), Buffer.from(JSON.stringify(value))]
const stored = (): Answer => [0, Buffer.alloc(0), Buffer.alloc(0)]

/** What keeps the process alive. */
function held(): string[] {
  return process.getActiveResourcesInfo().filter((kind) => /TCP|Timeout/.test(kind))
}

/** Runs with a node and checks that what keeps the process alive is afterwards what it was before. */
async function leavesNothing(body: (node: FakeNode) => Promise<void>): Promise<void> {
  await using node = await FakeNode.start()
  const before = held()
  await body(node)
  const end = Date.now() + 10_000
  // The node learns that its connections have ended a moment later.
  while (held().length > before.length && Date.now() < end) await turn()
  assert(held().length <= before.length, held().join(' '))
}

/** Name of the error of a promise, or `done`. */
const outcome = (promise: Promise<unknown>): Promise<string> =>
  promise.then(
    () => 'done',
    (error) => error.name,
  )

test('nothing is left of a cluster that was closed', () =>
  leavesNothing(async (node) => {
    node.on.set(GET, () => found('v')).set(UPSERT, () => undefined)
    for (let round = 0; round < 5; round++) {
      await using cluster = await nacre.connect(node.url, 'user', 'password')
      const collection = cluster.bucket('b').defaultCollection()
      await collection.get('k')
      const writes = Array.from({ length: 50 }, (_, index) => outcome(collection.upsert(`k${index}`, 1)))
      await cluster.close()
      assert.deepEqual([...new Set(await Promise.all(writes))], ['RequestCanceledError'])
    }
  }))

/** Faults of broken servers; each function answers a get on one of their sockets. */
const BROKEN: Record<string, (node: FakeNode, asked: Asked) => Answer> = {
  garbage: (node) => {
    for (const socket of node.sockets) socket.write('garbage, and more of it than a header has')
    return undefined
  },
  silence: () => undefined,
  'half a frame': (node) => {
    for (const socket of node.sockets) socket.write(Buffer.concat([Buffer.from([0x81, GET]), Buffer.alloc(9)]))
    return undefined
  },
  'half a frame, and the end': (node) => {
    for (const socket of node.sockets) socket.end(Buffer.concat([Buffer.from([0x81, GET]), Buffer.alloc(9)]))
    return undefined
  },
  'a length beyond any limit': (node) => {
    const header = Buffer.alloc(24)
    header.set([0x81, GET])
    header.writeUInt32BE(0xfffffff0, 8)
    for (const socket of node.sockets) socket.write(header)
    return undefined
  },
  'an end': (node) => node.drop(),
  'flags that are missing': () => [0, Buffer.alloc(0), Buffer.from('1')],
  'a value that is no JSON': () => [0, Buffer.from('02000000', 'hex'), Buffer.from('{')],
  'a status that nobody knows': () => [0x7777, Buffer.alloc(0), Buffer.alloc(0)],
}

for (const [name, answer] of Object.entries(BROKEN)) {
  test(`nothing is left of a server that answers with ${name}`, () =>
    leavesNothing(async (node) => {
      node.on.set(GET, (asked) => answer(node, asked)).set(UPSERT, (asked) => answer(node, asked))
      await using cluster = await nacre.connect(node.url, 'user', 'password')
      const collection = cluster.bucket('b').defaultCollection()
      const asked = Array.from({ length: 10 }, (_, index) => outcome(collection.get(`k${index}`, { timeout: 300 })))
      for (const name of new Set(await Promise.all(asked))) assert.match(name, /^[A-Z]\w+Error$/)
    }))
}

test(`${OUTSTANDING} requests at a time have their answers, those that are aborted an error`, () =>
  leavesNothing(async (node) => {
    node.on.set(GET, () => found('v'))
    await using cluster = await nacre.connect(node.url, 'user', 'password')
    const collection = cluster.bucket('b').defaultCollection()
    await collection.get('first')
    const controller = new AbortController()
    const asked = Array.from({ length: OUTSTANDING }, (_, index) => {
      const signal = index % 2 ? { signal: controller.signal } : {}
      return outcome(collection.get(`k${index % 100}`, { timeout: 600_000, ...signal }))
    })
    controller.abort()
    const counts: Record<string, number> = {}
    for (const name of await Promise.all(asked)) counts[name] = (counts[name] ?? 0) + 1
    assert.deepEqual(counts, { done: OUTSTANDING / 2, RequestCanceledError: OUTSTANDING / 2 })
  }))

test('a document of 20 MiB goes there and back', () =>
  leavesNothing(async (node) => {
    let kept: Buffer = Buffer.alloc(0)
    node.on
      .set(UPSERT, ({ value }) => {
        kept = value
        return stored()
      })
      .set(GET, () => [0, Buffer.from('04000004', 'hex'), kept])
    await using cluster = await nacre.connect(node.url, 'user', 'password')
    const collection = cluster.bucket('b').defaultCollection()
    const text = 'x'.repeat(LARGE_BYTES)
    await collection.upsert('k', text, { timeout: 60_000 })
    assert.equal(kept.length, LARGE_BYTES)
    assert.equal((await collection.get('k', { timeout: 60_000 })).content, text)
  }))

test('a request may be aborted at any turn of the event loop', () =>
  leavesNothing(async (node) => {
    node.on.set(GET, () => found('v')).set(UPSERT, stored)
    let isDone = false
    for (let turns = 0; !isDone; turns++) {
      await using cluster = await nacre.connect(node.url, 'user', 'password')
      const collection = cluster.bucket('b').defaultCollection()
      const controller = new AbortController()
      const { signal } = controller
      // The first request of a bucket connects, logs in and fetches the map.
      const work = (async () => {
        await collection.upsert('k', 1, { signal, timeout: 20_000 })
        await collection.get('k', { signal, timeout: 20_000 })
      })()
      const ended = outcome(work)
      for (let passed = 0; passed < turns; passed++) await turn()
      controller.abort()
      const name = await ended
      isDone = name === 'done'
      if (!isDone) assert.equal(name, 'RequestCanceledError')
      assert(turns < 10_000)
    }
  }))
