/** Callbacks in place of promises. */

import assert from 'node:assert/strict'
import { test } from 'node:test'

import { type Cluster, connect } from '../../src/index.js'
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
