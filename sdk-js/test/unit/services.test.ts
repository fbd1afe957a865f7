/** Which nodes are asked over HTTP, and what happens when one is down, breaks or has left. */

import assert from 'node:assert/strict'
import { mock, test } from 'node:test'
import { setImmediate as turn } from 'node:timers/promises'

import * as nacre from '../../src/index.js'
import { type Answer, FakeNode, FakeService } from './fake-node.js'

const GET = 0x00
const CONFIG = 0xb5
const NONE = Buffer.alloc(0)
const TEMPORARY: Answer = [0x86, NONE, NONE]
const SHORT = { timeout: 400 }
/** How old a map is that is fetched again. */
const MAP_AGE_MS_MAX = 2500

type Request = (bucket: nacre.Bucket, options?: { timeout?: number }) => PromiseLike<unknown>

const query: Request = (bucket, options) => bucket.viewQuery('d', 'v', options)
const queryKeys: Request = (bucket) => bucket.viewQuery('d', 'v', { keys: [1] })
const listScopes: Request = (bucket) => bucket.collections().getAllScopes()
const createScope: Request = (bucket, options) => bucket.collections().createScope('s', options)
const dropDesignDocument: Request = (bucket) => bucket.viewIndexes().dropDesignDocument('d')

/** A cluster of a node that holds documents, and two that have the other services. */
interface Setting {
  node: FakeNode
  one: FakeService
  two: FakeService
  /** A port where nobody is. */
  down: number
  /** Another map, in which the services are there. */
  serveAt: (...ports: number[]) => void
  /** A bucket of a client that connects where the services are there. */
  connectTo: (...ports: number[]) => Promise<nacre.Bucket>
}

function withServices(name: string, body: (setting: Setting) => Promise<void>): void {
  test(name, async () => {
    await using node = await FakeNode.start()
    await using one = await FakeService.start()
    await using two = await FakeService.start()
    const gone = await FakeService.start()
    const down = gone.port
    await gone[Symbol.asyncDispose]()
    const clusters: nacre.Cluster[] = []
    const serveAt = (...ports: number[]): void => {
      node.rev++
      node.neighbours = ports.map((port) => ({ mgmt: port, capi: port }))
    }
    const connectTo = async (...ports: number[]): Promise<nacre.Bucket> => {
      serveAt(...ports)
      const cluster = await nacre.connect(node.url, 'user', 'password')
      clusters.push(cluster)
      for (const service of [one, two]) service.asked.length = 0
      return cluster.bucket('b')
    }
    try {
      await body({ node, one, two, down, serveAt, connectTo })
    } finally {
      for (const cluster of clusters) await cluster.close()
    }
  })
}

/** Has the bucket fetch its map. */
async function fetchMap(node: FakeNode, bucket: nacre.Bucket): Promise<void> {
  node.on.set(GET, () => [0, Buffer.alloc(4), Buffer.from('1')])
  await bucket.defaultCollection().get('k')
}

withServices('the nodes of a service take turns', async ({ one, two, connectTo }) => {
  for (const request of [query, createScope]) {
    const bucket = await connectTo(one.port, two.port)
    for (let count = 0; count < 4; count++) await request(bucket)
    assert.deepEqual([one.asked.length, two.asked.length], [2, 2])
  }
})

withServices('a node that is down is passed over', async ({ down, two, connectTo }) => {
  for (const request of [query, queryKeys, createScope, dropDesignDocument]) {
    const bucket = await connectTo(down, two.port)
    await request(bucket)
    await request(bucket)
    assert.equal(two.asked.length, 2)
  }
})

withServices('the map is fetched again when a node is down', async ({ node, one, two, down, serveAt, connectTo }) => {
  for (const request of [query, createScope]) {
    const bucket = await connectTo(down)
    await fetchMap(node, bucket)
    serveAt(one.port, two.port)
    await request(bucket)
    await request(bucket)
    assert.deepEqual([one.asked.length, two.asked.length], [1, 1])
  }
})

withServices('the map is fetched again when no node has the service', async ({ one, serveAt, connectTo }) => {
  const bucket = await connectTo()
  await assert.rejects(Promise.resolve(query(bucket)), nacre.ServiceNotAvailableError)
  serveAt(one.port)
  await query(bucket)
})

withServices('all nodes of the cluster are asked for the map', async ({ node, one, down, serveAt }) => {
  const seed = await FakeNode.start()
  seed.neighbours = [{ kv: node.port }, { mgmt: down }]
  await using cluster = await nacre.connect(seed.url, 'user', 'password')
  await seed[Symbol.asyncDispose]()
  serveAt(one.port)
  await cluster.buckets().dropBucket('b')
  assert.deepEqual(one.asked, ['DELETE /pools/default/buckets/b'])
})

withServices('others are asked when a node does not give its map', async ({ node, one, down, serveAt }) => {
  await using silent = await FakeNode.start()
  silent.neighbours = [{ kv: node.port }, { mgmt: down }]
  await using cluster = await nacre.connect(silent.url, 'user', 'password')
  silent.on.set(CONFIG, () => undefined)
  serveAt(one.port)
  mock.timers.enable({ apis: ['setTimeout'] })
  try {
    const dropped = cluster.buckets().dropBucket('b', { timeout: 1e9 })
    while (!one.asked.length) {
      mock.timers.tick(5)
      await turn()
    }
    await dropped
  } finally {
    mock.timers.reset()
  }
})

withServices('others are asked when a node that has left gives its own map', async ({ node, one, down, serveAt }) => {
  await using left = await FakeNode.start()
  left.neighbours = [{ kv: node.port }, { mgmt: down }]
  await using cluster = await nacre.connect(left.url, 'user', 'password')
  Object.assign(left, { rev: 0, neighbours: [] })
  serveAt(one.port)
  await cluster.buckets().dropBucket('b')
})

withServices('a node that has left is not asked for long', async ({ node, one, two, serveAt, connectTo }) => {
  for (const request of [query, createScope]) {
    const bucket = await connectTo(one.port)
    await fetchMap(node, bucket)
    serveAt(two.port)
    const later = performance.now() + MAP_AGE_MS_MAX
    const clock = mock.method(performance, 'now', () => later)
    try {
      await request(bucket)
    } finally {
      clock.mock.restore()
    }
    assert.deepEqual(one.asked, [])
  }
})

withServices('what reads is repeated when its connection breaks', async ({ one, two, connectTo }) => {
  one.onRequest = (response) => response.destroy()
  for (const request of [query, queryKeys, listScopes]) {
    const bucket = await connectTo(one.port, two.port)
    await request(bucket)
    await request(bucket)
    assert.equal(two.asked.length, 2)
  }
})

withServices('what changes is not repeated when its connection breaks', async ({ one, two, connectTo }) => {
  one.onRequest = two.onRequest = (response) => response.destroy()
  const bucket = await connectTo(one.port, two.port)
  for (const request of [createScope, dropDesignDocument]) {
    await assert.rejects(Promise.resolve(request(bucket)), nacre.RequestCanceledError)
  }
  assert.equal(one.asked.length + two.asked.length, 2)
})

withServices('an answer that is no HTTP is an error', async ({ one, two, connectTo }) => {
  one.onRequest = two.onRequest = (response) => response.socket!.end('garbage\r\n\r\n')
  const bucket = await connectTo(one.port, two.port)
  await assert.rejects(Promise.resolve(query(bucket, SHORT)), nacre.DecodingFailureError)
})

withServices('nodes that stay down are named at the time-out', async ({ down, connectTo }) => {
  const bucket = await connectTo(down)
  for (const request of [query, createScope]) {
    await assert.rejects(Promise.resolve(request(bucket, SHORT)), (error) => {
      // Nothing was sent, so nothing changed.
      assert(error instanceof nacre.UnambiguousTimeoutError, `${error}`)
      assert.deepEqual(error.context.retryReasons, ['NODE_NOT_AVAILABLE'])
      assert.equal(error.context.endpoint, `127.0.0.1:${down}`)
      return true
    })
  }
})

withServices('fetching the map and the request share one time-out', async ({ node, one, two, connectTo }) => {
  const bucket = await connectTo(one.port, two.port)
  one.onRequest = two.onRequest = () => {}
  const begun = performance.now()
  const late = begun + SHORT.timeout / 2
  node.on.set(CONFIG, () => (performance.now() > late ? [0, NONE, node.config()] : TEMPORARY))
  await assert.rejects(Promise.resolve(query(bucket, SHORT)), nacre.UnambiguousTimeoutError)
  assert.equal(one.asked.length + two.asked.length, 1)
  assert(performance.now() - begun < SHORT.timeout * 1.4)
})
