/** That nothing is left of a cluster that was closed. */

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { setImmediate as turn } from 'node:timers/promises'

import * as nacre from '../../src/index.js'
import { type Answer, FakeNode } from './fake-node.js'

const GET = 0x00

const found = (value: string): Answer => [0, Buffer.from('02000000', 'hex'), Buffer.from(JSON.stringify(value))]

/** What keeps the process alive. */
function held(): string[] {
  return process.getActiveResourcesInfo().filter((kind) => /TCP|Timeout/.test(kind))
}

test('nothing is left of a cluster that was closed', async () => {
  await using node = await FakeNode.start()
  const before = held()
  node.on.set(GET, () => found('v')).set(0x01, () => undefined)
  for (let round = 0; round < 5; round++) {
    await using cluster = await nacre.connect(node.url, 'user', 'password')
    const collection = cluster.bucket('b').defaultCollection()
    await collection.get('k')
    const writes = Array.from({ length: 50 }, (_, index) =>
      collection.upsert(`k${index}`, 1).catch((error) => error.name),
    )
    await cluster.close()
    assert.deepEqual([...new Set(await Promise.all(writes))], ['RequestCanceledError'])
  }
  const end = Date.now() + 5000
  // The node learns that its connections have ended a moment later.
  while (held().length > before.length && Date.now() < end) await turn()
  assert.deepEqual(held(), before)
})
