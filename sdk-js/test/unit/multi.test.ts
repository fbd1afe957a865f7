/** Operations on several documents at once. */

import assert from 'node:assert/strict'
import { test } from 'node:test'

import { type Collection, connect } from '../../src/index.js'
import { type Answer, type Asked, FakeNode } from './fake-node.js'

const [GET, UPSERT, INSERT, REPLACE, DELETE, TOUCH, META] = [0x00, 0x01, 0x02, 0x03, 0x04, 0x1c, 0xa0]
const NONE = Buffer.alloc(0)
const FOUND: Answer = [0, Buffer.from([2, 0, 0, 0]), Buffer.from('{"a":1}')]
const MISSING: Answer = [1, NONE, NONE]
const STORED: Answer = [0, NONE, NONE]

async function withCollection(body: (collection: Collection, node: FakeNode) => Promise<void>): Promise<void> {
  await using node = await FakeNode.start()
  await using cluster = await connect(node.url, 'user', 'password')
  await body(cluster.bucket('b').defaultCollection(), node)
}

/** A key as the server has it: behind the number of the collection. */
const keyOf = ({ key }: Asked): string => key.subarray(1).toString()

test('each document has an outcome of its own, in the order of the keys', () =>
  withCollection(async (collection, node) => {
    node.on.set(GET, (asked) => (keyOf(asked) === 'none' ? MISSING : FOUND))
    const { results, errors, allOk } = await collection.getMulti(['b', 'none', 'a', 'b'])
    assert.deepEqual([...results.keys()], ['b', 'a'])
    assert.deepEqual(results.get('a')!.content, { a: 1 })
    assert.deepEqual(
      [...errors].map(([key, error]) => [key, error.name]),
      [['none', 'DocumentNotFoundError']],
    )
    assert.equal(allOk, false)
    assert.equal(node.count(GET), 3)
    assert.equal((await collection.getMulti([])).allOk, true)
  }))

test('all operations are there, and documents are given as objects or maps', () =>
  withCollection(async (collection, node) => {
    for (const opcode of [UPSERT, INSERT, REPLACE, DELETE]) node.on.set(opcode, () => STORED)
    node.on.set(TOUCH, () => [0, Buffer.alloc(4), NONE]).set(META, () => [0, Buffer.alloc(21), NONE])
    const documents = { a: 1, b: [2] }
    const outcomes = [
      await collection.insertMulti(documents),
      await collection.upsertMulti(new Map(Object.entries(documents)), { expiry: 10 }),
      await collection.replaceMulti(documents),
      await collection.touchMulti(['a', 'b'], 10),
      await collection.existsMulti(['a', 'b']),
      await collection.removeMulti(['a', 'b']),
    ]
    for (const { results, allOk } of outcomes) {
      assert.deepEqual([...results.keys()], ['a', 'b'])
      assert(allOk)
    }
    for (const opcode of [UPSERT, INSERT, REPLACE, DELETE, TOUCH, META]) assert.equal(node.count(opcode), 2)
  }))

test('many requests are under way at a time, but not all of very many', () =>
  withCollection(async (collection, node) => {
    let most = 0
    const held: Asked[] = []
    node.on.set(GET, (asked) => {
      held.push(asked)
      most = Math.max(most, held.length)
      // Answers come once nothing more arrives.
      if (held.length === 1) setImmediate(() => held.splice(0).forEach((one) => node.answer(one, FOUND!)))
      return undefined
    })
    const keys = Array.from({ length: 3000 }, (_, index) => `k${index}`)
    const { errors, results } = await collection.getMulti(keys, { timeout: 60_000 })
    assert.deepEqual([...errors.values()].slice(0, 1), [])
    assert.deepEqual([...results.keys()], keys)
    assert(most > 1 && most <= 1024, `${most}`)
  }))

test('what is no list of keys, and no documents, is refused before anything is sent', () =>
  withCollection(async (collection, node) => {
    const refusal = { name: 'InvalidArgumentError' }
    for (const keys of ['text', 5, undefined] as any[]) await assert.rejects(collection.getMulti(keys), refusal)
    for (const documents of ['text', undefined, null, [1]] as any[]) {
      await assert.rejects(collection.upsertMulti(documents), refusal)
    }
    await assert.rejects(collection.getMulti(['a'], { bogus: 1 } as any), refusal)
    const { errors } = await collection.getMulti(['', 'x'.repeat(300), 5 as any])
    assert.deepEqual(
      [...errors.values()].map(({ name }) => name),
      Array(3).fill('InvalidArgumentError'),
    )
    assert.equal(node.count(GET), 0)
  }))
