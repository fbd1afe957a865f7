/** Reads of copies. */

import assert from 'node:assert/strict'
import { test } from 'node:test'

import * as nacre from '../../src/index.js'
import { LookupInSpec } from '../../src/index.js'
import { type Answer, FakeNode } from './fake-node.js'

const GET = 0x00
const GET_REPLICA = 0x83
const MULTI_LOOKUP = 0xd0
const NONE = Buffer.alloc(0)

const found = (value: string): Answer => [0, Buffer.from('02000000', 'hex'), Buffer.from(JSON.stringify(value))]

async function withReplica(
  replicas: number[],
  body: (node: FakeNode, collection: nacre.Collection) => Promise<void>,
): Promise<void> {
  await using node = await FakeNode.start()
  node.replicas = replicas
  node.on.set(GET, () => found('active')).set(GET_REPLICA, () => found('replica'))
  await using cluster = await nacre.connect(node.url, {
    username: 'user',
    password: 'password',
    preferredServerGroup: 'east',
  })
  const collection = cluster.bucket('b').defaultCollection()
  await collection.get('k')
  await body(node, collection)
}

test('all copies are read, and a copy that is nowhere is left out', () =>
  withReplica([0, -1], async (_, collection) => {
    const copies = await collection.getAllReplicas('k')
    const seen = copies.map(({ content, isReplica }) => [content, isReplica]).sort()
    assert.deepEqual(seen, [
      ['active', false],
      ['replica', true],
    ])
  }))

test('any copy is enough, and nobody waits for the others', () =>
  withReplica([0], async (node, collection) => {
    node.on.set(GET, () => undefined)
    assert.deepEqual(await collection.getAnyReplica('k'), { content: 'replica', cas: 1n, isReplica: true })
    node.on.set(GET, () => found('active')).set(GET_REPLICA, () => [0x01, NONE, NONE])
    assert.equal((await collection.getAnyReplica('k')).content, 'active')
    node.on.set(GET, () => [0x01, NONE, NONE])
    await assert.rejects(collection.getAnyReplica('k'), nacre.DocumentUnretrievableError)
  }))

test('replicas are asked for parts with a flag that only they answer', () =>
  withReplica([0], async (node, collection) => {
    const flags: number[] = []
    node.on.set(MULTI_LOOKUP, ({ extras }) => {
      flags.push(extras[0] ?? 0)
      return [0, NONE, Buffer.from('0000000000013' + '7', 'hex')]
    })
    const copies = await collection.lookupInAllReplicas('k', [LookupInSpec.get('a')])
    assert.deepEqual(
      copies.map(({ content }) => content[0]!.value),
      [7, 7],
    )
    assert.deepEqual(flags.sort(), [0, 0x20])
  }))

test('a group without a copy has none', () =>
  withReplica([0], async (_, collection) => {
    const readPreference = nacre.ReadPreference.SelectedServerGroup
    await assert.rejects(collection.getAnyReplica('k', { readPreference }), nacre.DocumentUnretrievableError)
  }))

test('reads of copies end with their signal and their time-out', () =>
  withReplica([0], async (node, collection) => {
    node.on.set(GET, () => undefined).set(GET_REPLICA, () => undefined)
    await assert.rejects(collection.getAnyReplica('k', { timeout: 50 }), nacre.DocumentUnretrievableError)
    const signal = AbortSignal.timeout(20)
    await assert.rejects(collection.getAnyReplica('k', { signal }), nacre.RequestCanceledError)
  }))

test('a transaction reads the copy that answers first', () =>
  withReplica([0], async (node, collection) => {
    const flags: number[] = []
    const part = (status: number, text: string): Buffer => {
      const head = Buffer.alloc(6)
      head.writeUInt16BE(status)
      head.writeUInt32BE(text.length, 2)
      return Buffer.concat([head, Buffer.from(text)])
    }
    const document = JSON.stringify({ CAS: '0x1', exptime: 0, revid: '1', flags: 0x02000000 })
    const parts = Buffer.concat([part(0xc0, ''), part(0, document), part(0, '{"n":1}')])
    // The active copy is silent, and the server group has none.
    node.on.set(MULTI_LOOKUP, ({ extras }) => {
      flags.push(extras[0] ?? 0)
      return extras[0] === 0x24 ? [0xcc, NONE, parts] : undefined
    })
    const read = await collection.cluster.transactions().run(async (attempt) => {
      const { content } = await attempt.getReplicaFromPreferredServerGroup(collection, 'k')
      const spec = new nacre.TransactionGetMultiReplicasFromPreferredServerGroupSpec(collection, 'k')
      const several = await attempt.getMultiReplicasFromPreferredServerGroup([spec])
      assert.deepEqual([content, several.contentAt(0)], [{ n: 1 }, { n: 1 }])
      assert.deepEqual(flags.sort((a, b) => a - b), [0x04, 0x04, 0x24, 0x24])
      node.on.set(MULTI_LOOKUP, () => [0x01, NONE, NONE])
      await assert.rejects(
        attempt.getReplicaFromPreferredServerGroup(collection, 'k'),
        (error: Error) =>
          error instanceof nacre.DocumentUnretrievableError && error.cause instanceof nacre.DocumentNotFoundError,
      )
      assert.equal((await attempt.getMultiReplicasFromPreferredServerGroup([spec])).exists(0), false)
    })
    assert(read.unstagingComplete)
  }))
