/** Whole documents: storing, reading, versions, expiry, locks. */

import assert from 'node:assert/strict'
import { setTimeout as sleep } from 'node:timers/promises'

import * as nacre from '../../src/index.js'
import { nodeTest } from './node.js'

const HOUR = 3600
const SHORT = { timeout: 900 }

nodeTest('what is stored is read', async ({ collection, key }) => {
  const document = { text: 'é', list: [1, 2.5, null, true], nested: { a: {} } }
  const { cas } = await collection.upsert(key, document)
  assert.deepEqual(await collection.get(key), { content: document, cas })
})

nodeTest('mutations say where they are', async ({ node, collection, key }) => {
  const first = (await collection.upsert(key, 1)).token!
  const second = (await collection.upsert(key, 2)).token!
  assert.equal(first.bucketName, node.bucketName)
  assert.equal(first.partitionUuid, second.partitionUuid)
  assert(second.sequenceNumber > first.sequenceNumber)
})

nodeTest('a missing document is not found', async ({ collection, key }) => {
  for (const operation of [
    collection.get(key),
    collection.replace(key, 1),
    collection.remove(key),
    collection.touch(key, HOUR),
    collection.getAndTouch(key, HOUR),
    collection.getAndLock(key, 1),
  ]) {
    await assert.rejects(operation, (error) => {
      assert(error instanceof nacre.DocumentNotFoundError)
      assert.deepEqual([error.name, error.context.key, error.context.status], ['DocumentNotFoundError', key, 1])
      return true
    })
  }
  assert.deepEqual(await collection.exists(key), { exists: false, cas: undefined })
})

nodeTest('insert refuses a document that exists', async ({ collection, key }) => {
  await collection.insert(key, 1)
  await assert.rejects(collection.insert(key, 2), nacre.DocumentExistsError)
})

nodeTest('a stale cas is refused', async ({ collection, key }) => {
  const stale = await collection.insert(key, 1)
  const fresh = await collection.replace(key, 2, { cas: stale.cas })
  await assert.rejects(collection.replace(key, 3, { cas: stale.cas }), nacre.CasMismatchError)
  await assert.rejects(collection.remove(key, { cas: stale.cas }), nacre.CasMismatchError)
  assert.deepEqual(await collection.exists(key), { exists: true, cas: fresh.cas })
  await collection.remove(key, { cas: fresh.cas })
  assert.equal((await collection.exists(key)).exists, false)
})

nodeTest('buffers are stored as bytes', async ({ collection, key }) => {
  await collection.upsert(key, Buffer.from([255, 0]))
  assert.deepEqual((await collection.get(key)).content, Buffer.from([255, 0]))
})

nodeTest('a document that is too large is refused', async ({ collection, key }) => {
  await assert.rejects(collection.upsert(key, 'x'.repeat(21 << 20)), nacre.ValueTooLargeError)
})

nodeTest('megabytes pass', async ({ collection, key }) => {
  const document = { text: 'x'.repeat(5 << 20) }
  await collection.upsert(key, document)
  assert.deepEqual((await collection.get(key)).content, document)
})

nodeTest('many requests at once pass', async ({ collection, key }) => {
  const numbers = Array.from({ length: 2000 }, (_, number) => number)
  await Promise.all(numbers.map((number) => collection.upsert(`${key}-${number}`, number)))
  const found = await Promise.all(numbers.map((number) => collection.get(`${key}-${number}`)))
  assert.deepEqual(found.map(({ content }) => content), numbers)
})

async function secondsLeft(collection: nacre.Collection, key: string): Promise<number> {
  const { expiryTime = 0 } = await collection.get(key, { withExpiry: true })
  return expiryTime && expiryTime - Math.floor(Date.now() / 1000)
}

nodeTest('expiries are stored and read', async ({ collection, key }) => {
  await collection.upsert(key, { a: 1 }, { expiry: HOUR })
  assert.deepEqual((await collection.get(key, { withExpiry: true })).content, { a: 1 })
  assert(Math.abs((await secondsLeft(collection, key)) - HOUR) < 5)
  await collection.upsert(key, 1, { expiry: 40 * 24 * HOUR })
  assert(Math.abs((await secondsLeft(collection, key)) - 40 * 24 * HOUR) < 5)
})

nodeTest('writes clear the expiry unless told to preserve it', async ({ collection, key }) => {
  await collection.upsert(key, 1, { expiry: HOUR })
  await collection.upsert(key, 2, { preserveExpiry: true })
  await collection.replace(key, 3, { preserveExpiry: true })
  assert(Math.abs((await secondsLeft(collection, key)) - HOUR) < 5)
  await collection.upsert(key, 4)
  assert.equal(await secondsLeft(collection, key), 0)
})

nodeTest('touching sets the expiry', async ({ collection, key }) => {
  await collection.upsert(key, 'v')
  await collection.touch(key, HOUR)
  assert(Math.abs((await secondsLeft(collection, key)) - HOUR) < 5)
  assert.equal((await collection.getAndTouch(key, 0)).content, 'v')
  assert.equal(await secondsLeft(collection, key), 0)
})

nodeTest('expired documents are gone', async ({ collection, key }) => {
  await collection.upsert(key, 1, { expiry: 1 })
  const end = Date.now() + 5000
  while ((await collection.exists(key)).exists) {
    assert(Date.now() < end)
    await sleep(50)
  }
})

nodeTest('a locked document can be changed with the cas of the lock only', async ({ collection, key }) => {
  await collection.upsert(key, 1)
  const locked = await collection.getAndLock(key, 15)
  assert.equal(locked.content, 1)
  await assert.rejects(collection.upsert(key, 2, SHORT), (error) => {
    assert(error instanceof nacre.DocumentLockedError)
    assert.deepEqual(error.context.retryReasons, ['KV_LOCKED'])
    return true
  })
  await assert.rejects(collection.getAndLock(key, 1, SHORT), nacre.DocumentLockedError)
  await collection.replace(key, 3, { cas: locked.cas })
  await collection.upsert(key, 4)
})

nodeTest('a waiting write goes on when the lock is given back', async ({ collection, key }) => {
  await collection.upsert(key, 1)
  const locked = await collection.getAndLock(key, 15)
  const write = collection.upsert(key, 2)
  await sleep(50)
  await collection.unlock(key, locked.cas)
  await write
})

nodeTest('unlocking needs the cas of the lock', async ({ collection, key }) => {
  const { cas } = await collection.upsert(key, 1)
  await assert.rejects(collection.unlock(key, cas), nacre.DocumentNotLockedError)
  const locked = await collection.getAndLock(key, 15)
  await assert.rejects(collection.unlock(key, locked.cas + 1n), nacre.CasMismatchError)
  await collection.unlock(key, locked.cas)
})

nodeTest('locks hold one to thirty seconds', async ({ collection, key }) => {
  for (const seconds of [0, 31, 1.5]) {
    await assert.rejects(collection.getAndLock(key, seconds), nacre.InvalidArgumentError)
  }
})

nodeTest('counters start where told and never fall below zero', async ({ collection, key }) => {
  const counter = collection.binary()
  await assert.rejects(counter.increment(key, 1), nacre.DocumentNotFoundError)
  assert.equal((await counter.increment(key, 10, { initial: 5 })).value, 5)
  assert.equal((await counter.increment(key, 10)).value, 15)
  assert.equal((await counter.decrement(key, 3)).value, 12)
  assert.equal((await counter.decrement(key, 100)).value, 0)
  const large = await counter.increment(key, (1n << 60n) + 1n)
  assert.equal(large.exactValue, (1n << 60n) + 1n)
})

nodeTest('a document that is no counter is refused', async ({ collection, key }) => {
  await collection.upsert(key, 'text')
  await assert.rejects(collection.binary().increment(key, 1), nacre.DeltaInvalidError)
  await assert.rejects(collection.binary().increment(key, -1), nacre.InvalidArgumentError)
})

nodeTest('bytes are added at both ends', async ({ collection, key }) => {
  const binary = collection.binary()
  await assert.rejects(binary.append(key, 'x'), nacre.DocumentNotFoundError)
  await collection.upsert(key, Buffer.from('b'))
  await binary.append(key, Buffer.from('c'))
  const { cas } = await binary.prepend(key, 'a')
  assert.equal((await collection.get(key)).content.toString(), 'abc')
  await assert.rejects(binary.append(key, 'd', { cas: cas - 1n }), nacre.CasMismatchError)
})

nodeTest('a mutation is waited for until it is on disk', async ({ collection, key }) => {
  const options = { durabilityPersistTo: nacre.DurabilityPersistTo.ActiveOnly }
  assert((await collection.upsert(key, 1, options)).token)
  await collection.binary().append(key, '0', options)
  await collection.remove(key, options)
})

nodeTest('what the bucket cannot give is refused before writing', async ({ collection, key }) => {
  for (const options of [
    { durabilityPersistTo: nacre.DurabilityPersistTo.Four },
    { durabilityReplicateTo: nacre.DurabilityReplicateTo.Three },
  ]) {
    await assert.rejects(collection.upsert(key, 1, options), nacre.DurabilityImpossibleError)
  }
  assert.equal((await collection.exists(key)).exists, false)
})
