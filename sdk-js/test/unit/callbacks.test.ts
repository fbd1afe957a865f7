/** Callbacks in place of promises, and spans of operations. */

import assert from 'node:assert/strict'
import { test } from 'node:test'

import { type Cluster, connect, type RequestSpan } from '../../src/index.js'
import { FakeNode } from './fake-node.js'

const NONE = Buffer.alloc(0)
const FOUND: [number, Buffer, Buffer] = [0, Buffer.from([2, 0, 0, 0]), Buffer.from('{"a":1}')]
const MISSING: [number, Buffer, Buffer] = [1, NONE, NONE]

async function withNode(body: (cluster: any, node: FakeNode) => Promise<void>, options = {}): Promise<void> {
  await using node = await FakeNode.start()
  await using cluster: Cluster = await connect(node.url, { username: 'user', password: 'password', ...options })
  node.on.set(0x00, () => FOUND)
  await body(cluster, node)
}

test('a callback behind the arguments or the options has the result', () =>
  withNode(async (cluster) => {
    const collection = cluster.bucket('b').defaultCollection()
    for (const args of [['k'], ['k', { timeout: 1000 }]]) {
      const [error, result]: any[] = await new Promise((resolve) => {
        collection.get(...args, (...given: unknown[]) => resolve(given))
      })
      assert.equal(error, null)
      assert.deepEqual(result.content, { a: 1 })
    }
  }))

test('a callback has the error, and nothing is left unhandled', () =>
  withNode(async (cluster, node) => {
    node.on.set(0x00, () => MISSING)
    const [error, result]: any[] = await new Promise((resolve) => {
      cluster.bucket('b').defaultCollection().get('k', (...given: unknown[]) => resolve(given))
    })
    assert.equal(error.name, 'DocumentNotFoundError')
    assert.equal(result, null)
  }))

class Span implements RequestSpan {
  readonly attributes: Record<string, unknown> = {}
  status: { code: number } | undefined
  ends = 0

  constructor(
    readonly name: string,
    readonly parent: RequestSpan | undefined,
  ) {}

  setAttribute(key: string, value: unknown): void {
    this.attributes[key] = value
  }

  setStatus(status: { code: number }): void {
    this.status = status
  }

  end(): void {
    this.ends += 1
  }
}

test('every operation has a span, which ends once and says what failed', async () => {
  const spans: Span[] = []
  const tracer = {
    requestSpan: (name: string, parent?: RequestSpan) => {
      spans.push(new Span(name, parent))
      return spans.at(-1)!
    },
  }
  await withNode(
    async (cluster, node) => {
      const parent = new Span('mine', undefined)
      const collection = cluster.bucket('b').defaultCollection()
      await collection.get('k', { parentSpan: parent })
      node.on.set(0x00, () => MISSING)
      await assert.rejects(collection.get('k'))
      const [first, second] = spans.filter(({ name }) => name === 'Get')
      assert.equal(first!.parent, parent)
      assert.equal(first!.attributes['db.namespace'], 'b')
      assert.equal(first!.attributes['db.system.name'], 'couchbase')
      assert.equal(first!.status, undefined)
      assert.equal(second!.attributes['error.type'], 'DocumentNotFoundError')
      assert.equal(second!.status!.code, 2)
      assert(spans.every(({ ends }) => ends === 1))
    },
    { tracer },
  )
})
