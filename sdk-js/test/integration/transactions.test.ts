/** Changes of several documents that take effect together. */

import assert from 'node:assert/strict'

import * as nacre from '../../src/index.js'
import { LookupInSpec } from '../../src/index.js'
import { see } from '../../src/transaction-records.js'
import { nodeTest, unique } from './node.js'

const XATTR = { xattr: true }

/** That nothing is left of a transaction in a document. */
async function assertClean(collection: nacre.Collection, ...keys: string[]): Promise<void> {
  for (const key of keys) assert.equal((await see(collection, key, { timeout: 5000 }))?.links, undefined, key)
}

nodeTest('changes of several documents take effect together', async ({ cluster, collection, key }) => {
  const [a, b, c, d] = ['a', 'b', 'c', 'd'].map((suffix) => `${key}-${suffix}`) as [string, string, string, string]
  await collection.upsert(a, { n: 1 }, { expiry: 3600 })
  await collection.upsert(b, { n: 2 })
  const result = await cluster.transactions().run(async (attempt) => {
    const first = await attempt.get<{ n: number }>(collection, a)
    await attempt.replace(first, { n: first.content.n + 10 })
    await attempt.remove(await attempt.get(collection, b))
    await attempt.insert(collection, c, { n: 3 })
    await attempt.replace(await attempt.insert(collection, d, { n: 4 }), { n: 5 })
    // The attempt sees its own changes, nobody else does.
    assert.deepEqual((await attempt.get(collection, a)).content, { n: 11 })
    assert.deepEqual((await attempt.get(collection, d)).content, { n: 5 })
    await assert.rejects(attempt.get(collection, b), nacre.DocumentNotFoundError)
    assert.deepEqual((await collection.get(a)).content, { n: 1 })
    assert.deepEqual((await collection.get(b)).content, { n: 2 })
    assert.equal((await collection.exists(c)).exists, false)
  })
  assert.equal(result.unstagingComplete, true)
  assert.match(result.transactionId, /^[0-9a-f-]{36}$/)
  const read = await collection.get(a, { withExpiry: true })
  assert.deepEqual(read.content, { n: 11 })
  assert(read.expiryTime)
  assert.equal((await collection.exists(b)).exists, false)
  assert.deepEqual((await collection.get(c)).content, { n: 3 })
  assert.deepEqual((await collection.get(d)).content, { n: 5 })
  await assertClean(collection, a, b, c, d)
})

nodeTest('what is staged is what the official SDKs stage', async ({ cluster, bucket, collection, key }) => {
  const { cas } = await collection.upsert(key, { n: 1 })
  let record = ''
  let attemptId = ''
  await cluster.transactions().run(async (attempt) => {
    await attempt.replace(await attempt.get(collection, key), { n: 2 })
    const { content } = await collection.lookupIn(key, [
      LookupInSpec.get('txn', XATTR),
      LookupInSpec.get('$document.value_crc32c', XATTR),
    ])
    const links = content[0]!.value
    record = links.atr.id
    attemptId = links.id.atmpt
    assert.match(record, /^_txn:atr-\d+-#[0-9a-f]+$/)
    assert.deepEqual(links.atr, { id: record, bkt: bucket.name, scp: '_default', coll: '_default' })
    assert.deepEqual(links.op, { type: 'replace', stgd: { n: 2 }, crc32: content[1]!.value })
    assert.equal(BigInt(links.restore.CAS), cas)
    const entries = await collection.lookupIn(record, [LookupInSpec.get(`attempts.${attemptId}`, XATTR)])
    const entry = entries.content[0]!.value
    assert.deepEqual([entry.tid, entry.st, entry.d], [links.id.txn, 'PENDING', 'm'])
    assert.match(entry.tst, /^0x[0-9a-f]{16}$/)
    assert(entry.exp > 0 && entry.exp <= 15_000)
  })
  const { content } = await collection.lookupIn(record, [LookupInSpec.exists(`attempts.${attemptId}`, XATTR)])
  assert.equal(content[0]!.value, false)
})

nodeTest('what the function throws takes everything back', async ({ cluster, collection, key }) => {
  const [a, b] = [`${key}-a`, `${key}-b`]
  await collection.upsert(a, { n: 1 })
  const reason = new Error('changed my mind')
  const running = cluster.transactions().run(async (attempt) => {
    await attempt.replace(await attempt.get(collection, a), { n: 2 })
    await attempt.insert(collection, b, 1)
    throw reason
  })
  await assert.rejects(running, (error) => {
    assert(error instanceof nacre.TransactionFailedError)
    assert.equal(error.cause, reason)
    return true
  })
  assert.deepEqual((await collection.get(a)).content, { n: 1 })
  assert.equal((await collection.exists(b)).exists, false)
  await assertClean(collection, a, b)
  // A tombstone of a transaction that was rolled back is in nobody's way.
  await cluster.transactions().run((attempt) => attempt.insert(collection, b, { again: true }))
  assert.deepEqual((await collection.get(b)).content, { again: true })
})

nodeTest('mistakes may be handled within the function', async ({ cluster, collection, key }) => {
  await collection.upsert(key, 1)
  await cluster.transactions().run(async (attempt) => {
    await assert.rejects(attempt.get(collection, `${key}-none`), nacre.DocumentNotFoundError)
    await assert.rejects(attempt.insert(collection, key, 2), nacre.DocumentExistsError)
    const inserted = await attempt.insert(collection, `${key}-new`, 2)
    await assert.rejects(attempt.insert(collection, `${key}-new`, 2), nacre.DocumentExistsError)
    await attempt.remove(inserted)
    await attempt.insert(collection, `${key}-new`, 3)
    await assert.rejects(attempt.replace({ ...inserted }, 4), nacre.InvalidArgumentError)
  })
  assert.equal((await collection.get(`${key}-new`)).content, 3)
  await assertClean(collection, key, `${key}-new`)
  await cluster.transactions().run(async () => {})
  await assert.rejects(cluster.transactions().run(7 as any), nacre.InvalidArgumentError)
  await assert.rejects(
    cluster.transactions().run((attempt) => attempt.insert(collection, 'b', Buffer.from('x'))),
    (error: any) =>
      error instanceof nacre.TransactionFailedError && error.cause instanceof nacre.FeatureNotAvailableError,
  )
})

nodeTest('transactions that come between each other lose nothing', async ({ cluster, collection, key }) => {
  const keys = Array.from({ length: 4 }, (_, index) => `${key}-${index}`)
  for (const each of keys) await collection.upsert(each, { balance: 100 })
  let runs = 0
  const transfer = async (from: string, to: string): Promise<void> => {
    await cluster.transactions().run(
      async (attempt) => {
        runs++
        const [source, target] = [await attempt.get<any>(collection, from), await attempt.get<any>(collection, to)]
        await attempt.replace(source, { balance: source.content.balance - 1 })
        await attempt.replace(target, { balance: target.content.balance + 1 })
      },
      { timeout: 30_000 },
    )
  }
  await Promise.all(Array.from({ length: 12 }, (_, index) => transfer(keys[index % 4]!, keys[(index * 3 + 1) % 4]!)))
  const balances = await Promise.all(keys.map(async (each) => (await collection.get(each)).content.balance))
  assert.equal(
    balances.reduce((sum, balance) => sum + balance),
    400,
  )
  assert(runs >= 12)
  await assertClean(collection, ...keys)
})

nodeTest('a write from outside makes the attempt again', async ({ cluster, collection, key }) => {
  await collection.upsert(key, { n: 1 })
  let attempts = 0
  await cluster.transactions().run(async (attempt) => {
    const document = await attempt.get<{ n: number }>(collection, key)
    if (attempts++ === 0) await collection.upsert(key, { n: 10 })
    await attempt.replace(document, { n: document.content.n + 1 })
  })
  assert.equal(attempts, 2)
  assert.deepEqual((await collection.get(key)).content, { n: 11 })
})

nodeTest('a transaction whose time is over is taken back', async ({ cluster, collection, key }) => {
  await collection.upsert(key, 1)
  const running = cluster.transactions().run(
    async (attempt) => {
      await attempt.replace(await attempt.get(collection, key), 2)
      await new Promise((resolve) => setTimeout(resolve, 350))
      await attempt.get(collection, key)
    },
    { timeout: 300 },
  )
  await assert.rejects(running, nacre.TransactionExpiredError)
  assert.equal((await collection.get(key)).content, 1)
  await assertClean(collection, key)
})

nodeTest('statements and documents are parts of one transaction', async ({ cluster, bucket }) => {
  const name = unique('s')
  await bucket.collections().createScope(name)
  await bucket.collections().createCollection('c', name)
  const scope = bucket.scope(name)
  const collection = scope.collection('c')
  await collection.upsert('a', { n: 1 })
  await collection.upsert('b', { n: 2 })
  await cluster.transactions().run(async (attempt) => {
    const a = await attempt.get<{ n: number }>(collection, 'a')
    await attempt.replace(a, { n: 10 })
    const { rows } = await attempt.query<number>('SELECT RAW n FROM c ORDER BY n', { scope })
    assert.deepEqual(rows, [2, 10])
    await attempt.query('UPDATE c SET m = n WHERE n = $1', { scope, parameters: [2] })
    const b = await attempt.get<any>(collection, 'b')
    assert.deepEqual(b.content, { n: 2, m: 2 })
    await attempt.replace(b, { n: 3 })
    await attempt.remove(await attempt.insert(collection, 'gone', 1))
    await attempt.insert(collection, 'c', { n: 4 })
    await assert.rejects(attempt.get(collection, 'none'), nacre.DocumentNotFoundError)
    await assert.rejects(attempt.insert(collection, 'a', 1), nacre.DocumentExistsError)
    await assert.rejects(attempt.query('SELECT FROM', { scope }), nacre.ParsingFailureError)
    assert.deepEqual((await collection.get('a')).content, { n: 1 })
  })
  assert.deepEqual((await collection.get('a')).content, { n: 10 })
  assert.deepEqual((await collection.get('b')).content, { n: 3 })
  assert.deepEqual((await collection.get('c')).content, { n: 4 })
  assert.equal((await collection.exists('gone')).exists, false)

  const reason = new Error('no')
  const failing = cluster.transactions().run(async (attempt) => {
    await attempt.query('DELETE FROM c', { scope })
    throw reason
  })
  await assert.rejects(failing, (error: any) => error.cause === reason)
  assert.deepEqual((await collection.get('a')).content, { n: 10 })
  await bucket.collections().dropScope(name)
})

nodeTest('records may be kept elsewhere', async ({ node, bucket, key }) => {
  const name = unique('records')
  await bucket.collections().createCollection(name, '_default')
  const transactions = {
    metadataCollection: { bucket: bucket.name, collection: name },
    durabilityLevel: nacre.DurabilityLevel.None,
    timeout: 5000,
  }
  await using cluster = await nacre.connect(node.url, { username: node.user, password: node.password, transactions })
  const collection = cluster.bucket(bucket.name).defaultCollection()
  await cluster.transactions().run((attempt) => attempt.insert(collection, key, 1))
  assert.equal((await collection.get(key)).content, 1)
  const records: string[] = []
  const scan = cluster
    .bucket(bucket.name)
    .collection(name)
    .scan(new nacre.PrefixScan('_txn:'), { idsOnly: true, concurrency: 64 })
  for await (const { id } of scan) records.push(id)
  assert.equal(records.length, 1)
})

nodeTest('several documents are read together', async ({ cluster, collection, key }) => {
  const ids = ['a', 'b', 'c', 'd'].map((suffix) => `${key}-${suffix}`)
  const specs = ids.map((id) => new nacre.TransactionGetMultiSpec(collection, id))
  for (const id of ids.slice(0, 3)) await collection.upsert(id, 0)
  await cluster.transactions().run(async (attempt) => {
    await attempt.replace(await attempt.get(collection, ids[0]!), 1)
    await attempt.remove(await attempt.get(collection, ids[1]!))
    const read = await attempt.getMulti(specs)
    assert.deepEqual(
      read.content.map(({ value }) => value),
      [1, undefined, 0, undefined],
    )
    assert.deepEqual(
      ids.map((_, index) => read.exists(index)),
      [true, false, true, false],
    )
    assert.throws(() => read.contentAt(1), nacre.DocumentNotFoundError)
    assert.throws(() => read.contentAt(9), nacre.DocumentNotFoundError)
    await assert.rejects(attempt.getMulti([]), nacre.InvalidArgumentError)
    await attempt.query('SELECT 1')
    assert.deepEqual(
      (await attempt.getMulti(specs)).content.map(({ value }) => value),
      [1, undefined, 0, undefined],
    )
  })

  // Somebody sets all of them to the same number, again and again.
  for (const id of ids) await collection.upsert(id, 0)
  let isDone = false
  const writing = (async () => {
    for (let n = 1; !isDone; n++) {
      await cluster.transactions().run(async (attempt) => {
        for (const id of ids) await attempt.replace(await attempt.get(collection, id), n)
      })
    }
  })()
  const mode = nacre.TransactionGetMultiMode.PrioritiseReadSkewDetection
  for (let round = 0; round < 30; round++) {
    await cluster.transactions().run(async (attempt) => {
      const { content } = await attempt.getMulti(specs, { mode })
      const numbers = content.map(({ value }) => value)
      // One that began and ended between two reads is not seen by them.
      const apart = Math.max(...numbers) - Math.min(...numbers)
      assert(apart <= 1, `${numbers}`)
    })
  }
  isDone = true
  await writing
})

nodeTest('documents are read from copies in the server group', async ({ node, bucket, key }) => {
  const options = { username: node.user, password: node.password }
  for (const preferredServerGroup of ['Group 1', 'nowhere']) {
    await using cluster = await nacre.connect(node.url, { ...options, preferredServerGroup })
    const collection = cluster.bucket(bucket.name).defaultCollection()
    await collection.upsert(key, { n: 1 })
    await cluster.transactions().run(async (attempt) => {
      const none = attempt.getReplicaFromPreferredServerGroup(collection, `${key}-none`)
      await assert.rejects(none, nacre.DocumentUnretrievableError)
      const found = await attempt.getReplicaFromPreferredServerGroup(collection, key)
      assert.deepEqual(found.content, { n: 1 })
      await attempt.replace(found, { n: 2 })
      // The change of the transaction itself is seen.
      const { content } = await attempt.getReplicaFromPreferredServerGroup(collection, key)
      assert.deepEqual(content, { n: 2 })
      const specs = [key, `${key}-none`].map((id) => new nacre.TransactionGetMultiSpec(collection, id))
      const several = await attempt.getMultiReplicasFromPreferredServerGroup(specs)
      assert.deepEqual([several.contentAt(0), several.exists(1)], [{ n: 2 }, false])
    })
    assert.deepEqual((await collection.get(key)).content, { n: 2 })
    const late = cluster.transactions().run(async (attempt) => {
      await attempt.query('SELECT 1')
      await attempt.getReplicaFromPreferredServerGroup(collection, key)
    })
    await assert.rejects(late, (error: Error) => error.cause instanceof nacre.FeatureNotAvailableError)
  }
})
