/** Collections whose documents fit a schema. */

import assert from 'node:assert/strict'
import { test } from 'node:test'

import { connect, RawJsonTranscoder, type StandardSchema, ValidationError } from '../../src/index.js'
import { type Answer, FakeNode } from './fake-node.js'

const [GET, UPSERT, INSERT] = [0x00, 0x01, 0x02]
const NONE = Buffer.alloc(0)

interface Stored {
  total: number
  at: string
}
interface Order {
  total: number
  at: Date
}

/** Orders: their time is text that a date is made of. */
const orders: StandardSchema<Stored, Order> = {
  '~standard': {
    version: 1,
    vendor: 'test',
    validate(value) {
      const { total, at } = (value ?? {}) as Partial<Stored>
      if (typeof total !== 'number') return { issues: [{ message: 'is no number', path: ['total'] }, { message: 'is bad' }] }
      if (typeof at !== 'string') return { issues: [{ message: 'is no text', path: [{ key: 'at' }] }] }
      return { value: { total, at: new Date(at) } }
    },
  },
}

const found = (value: unknown): Answer => [0, Buffer.from([2, 0, 0, 0]), Buffer.from(JSON.stringify(value))]

test('documents that fit are stored as they are, and read as the schema makes them', async () => {
  await using node = await FakeNode.start()
  node.on.set(UPSERT, () => [0, NONE, NONE]).set(GET, () => found({ total: 1, at: '2026-01-02T00:00:00Z' }))
  await using cluster = await connect(node.url, 'user', 'password')
  const collection = cluster.bucket('b').defaultCollection().withSchema(orders)
  await collection.upsert('k', { total: 1, at: '2026-01-02T00:00:00Z' })
  const [stored] = node.asked.filter(({ opcode }) => opcode === UPSERT)
  assert.equal(stored!.value.toString(), '{"total":1,"at":"2026-01-02T00:00:00Z"}')
  const { content } = await collection.get('k')
  // The type is that of the schema.
  assert.equal(content.at.getUTCFullYear(), 2026)
  // A transcoder of an operation takes the place of the schema.
  const raw = await collection.get<Buffer>('k', { transcoder: new RawJsonTranscoder() })
  assert(Buffer.isBuffer(raw.content))
})

test('documents that do not fit are refused, those to be stored before anything is sent', async () => {
  await using node = await FakeNode.start()
  node.on.set(GET, () => found({ total: '1' })).set(INSERT, () => [0, NONE, NONE])
  await using cluster = await connect(node.url, 'user', 'password')
  const collection = cluster.bucket('b').defaultCollection().withSchema(orders)
  await assert.rejects(collection.get('k'), (error: ValidationError) => {
    assert(error instanceof ValidationError)
    assert.match(error.message, /total: is no number; is bad/)
    assert.equal(error.issues.length, 2)
    return true
  })
  // @ts-expect-error: the time is text.
  await assert.rejects(collection.insert('k', { total: 1 }), /at: is no text/)
  assert.equal(node.count(INSERT), 0)
  // The collection itself takes anything.
  await cluster.bucket('b').defaultCollection().insert('k', { total: 'x' })
  assert.equal(node.count(INSERT), 1)
})

test('what is no schema, or none that can be asked at once, is refused', async () => {
  await using node = await FakeNode.start()
  await using cluster = await connect(node.url, 'user', 'password')
  const collection = cluster.bucket('b').defaultCollection()
  assert.throws(() => collection.withSchema({} as any), { name: 'InvalidArgumentError' })
  const late: StandardSchema = {
    '~standard': { version: 1, vendor: 'test', validate: async () => Promise.reject(new Error('never heard')) },
  }
  await assert.rejects(collection.withSchema(late).upsert('k', 1), { name: 'FeatureNotAvailableError' })
})
