/** Durability levels, copies, scans, projections, raw values. */

import assert from 'node:assert/strict'

import * as nacre from '../../src/index.js'
import { LookupInMacro, LookupInSpec, MutateInMacro, MutateInSpec } from '../../src/index.js'
import { nodeTest, unique } from './node.js'

const { DurabilityLevel } = nacre

nodeTest('every durability level is granted to every change', async ({ collection, key }) => {
  for (const durabilityLevel of [1, 2, 3] as nacre.DurabilityLevel[]) {
    const options = { durabilityLevel }
    assert((await collection.upsert(key, { n: 1 }, { ...options, preserveExpiry: true })).token)
    await collection.replace(key, { n: 2 }, options)
    await collection.mutateIn(key, [MutateInSpec.increment('n', 1)], options)
    assert.deepEqual((await collection.get(key)).content, { n: 3 })
    await collection.remove(key, options)
    await collection.insert(key, Buffer.from('b'), options)
    await collection.binary().append(key, 'c', options)
    await collection.binary().prepend(key, 'a', options)
    assert.equal((await collection.get(key)).content.toString(), 'abc')
    await collection.remove(key)
    await collection.binary().increment(key, 1, { initial: 1, ...options })
    await collection.binary().decrement(key, 1, options)
    await collection.remove(key)
  }
})

nodeTest('levels that mean nothing are refused', async ({ collection, key }) => {
  const level = (durabilityLevel: number, more: object = {}) =>
    collection.upsert(key, 1, { durabilityLevel: durabilityLevel as nacre.DurabilityLevel, ...more })
  await assert.rejects(level(4), nacre.InvalidDurabilityLevel)
  await assert.rejects(level(1, { durabilityPersistTo: 1 }), nacre.InvalidArgumentError)
  assert.equal((await collection.exists(key)).exists, false)
})

nodeTest('a bucket in memory grants no level of disks', async ({ cluster, key }) => {
  const name = unique('bucket')
  await cluster.buckets().createBucket({ name, bucketType: nacre.BucketType.Ephemeral, numReplicas: 0 })
  try {
    const collection = cluster.bucket(name).defaultCollection()
    await collection.upsert(key, 1, { durabilityLevel: DurabilityLevel.Majority })
    const persisted = collection.upsert(key, 1, { durabilityLevel: DurabilityLevel.PersistToMajority })
    await assert.rejects(persisted, nacre.DurabilityLevelNotAvailableError)
  } finally {
    await cluster.buckets().dropBucket(name)
  }
})

nodeTest('an expiry may be a time', async ({ collection, key }) => {
  const at = new Date(Date.now() + 3_600_000)
  await collection.upsert(key, 1, { expiry: at })
  const { expiryTime } = await collection.get(key, { withExpiry: true })
  assert.equal(expiryTime, Math.floor(at.getTime() / 1000))
  await assert.rejects(collection.upsert(key, 1, { expiry: new Date(5) }), nacre.InvalidArgumentError)
  await assert.rejects(collection.touch(key, new Date(Number.NaN)), nacre.InvalidArgumentError)
})

nodeTest('a cas may be text', async ({ collection, key }) => {
  const { cas } = await collection.upsert(key, 1)
  await collection.replace(key, 2, { cas: String(cas) })
  await assert.rejects(collection.replace(key, 2, { cas: 'x' }), nacre.InvalidArgumentError)
})

nodeTest('the active copy is one of all copies', async ({ collection, key }) => {
  const { cas } = await collection.upsert(key, { a: [1, 2] })
  assert.deepEqual(await collection.getAnyReplica(key), { content: { a: [1, 2] }, cas, isReplica: false })
  assert.deepEqual(await collection.getAllReplicas(key), [{ content: { a: [1, 2] }, cas, isReplica: false }])
  const specs = [LookupInSpec.get('a[1]'), LookupInSpec.exists('b')]
  const entries = [
    { error: undefined, value: 2 },
    { error: undefined, value: false },
  ]
  assert.deepEqual(await collection.lookupInAnyReplica(key, specs), { content: entries, cas, isReplica: false })
  const copies: nacre.LookupInReplicaResult[] = []
  for await (const copy of collection.lookupInAllReplicas(key, specs)) copies.push(copy)
  assert.deepEqual(copies, [{ content: entries, cas, isReplica: false }])
})

nodeTest('a document without copies cannot be retrieved', async ({ collection, key }) => {
  const specs = [LookupInSpec.get('a')]
  for (const reading of [
    () => collection.getAnyReplica(key),
    () => collection.getAllReplicas(key),
    () => collection.lookupInAnyReplica(key, specs),
    () => collection.lookupInAllReplicas(key, specs),
  ]) {
    await assert.rejects(Promise.resolve(reading()), (error) => {
      assert(error instanceof nacre.DocumentUnretrievableError)
      assert(error.cause instanceof nacre.DocumentNotFoundError)
      return true
    })
  }
})

nodeTest('a projection reads parts of a document', async ({ collection, key }) => {
  const document = { a: { b: 1, c: 2 }, list: [{ x: 1 }, { x: 2 }], 'd.e': 3, s: 'text' }
  await collection.upsert(key, document, { expiry: 3600 })
  const project = ['a.b', 'list[1].x', '`d.e`', 'none', 's.none']
  const { content, expiryTime } = await collection.get(key, { project, withExpiry: true })
  assert.deepEqual(JSON.parse(JSON.stringify(content)), { a: { b: 1 }, list: [null, { x: 2 }], 'd.e': 3 })
  assert(expiryTime! > Date.now() / 1000)
  const many = Array.from({ length: 20 }, (_, index) => `none${index}`)
  const wide = await collection.get(key, { project: [...many, 'a.c', 'list[-1]'], withExpiry: true })
  assert.deepEqual(wide.content, { a: { c: 2 }, list: [{ x: 2 }] })
  assert.equal(wide.expiryTime, expiryTime)
  await assert.rejects(collection.get(key, { project: ['a['] }), nacre.PathInvalidError)
  assert.deepEqual((await collection.get(key, { project: ['a.c'] })).content, { a: { c: 2 } })
})

nodeTest('macros are read and filled in', async ({ collection, key }) => {
  await collection.upsert(key, { a: 1 }, { expiry: 3600 })
  const { cas, token } = await collection.mutateIn(
    key,
    [
      MutateInSpec.upsert('m.cas', MutateInMacro.Cas, { createPath: true }),
      MutateInSpec.upsert('m.seqno', MutateInMacro.SeqNo),
      MutateInSpec.upsert('m.crc', MutateInMacro.ValueCrc32c),
      MutateInSpec.upsert('a', 2),
    ],
    { preserveExpiry: true },
  )
  const { content } = await collection.lookupIn(key, [
    LookupInSpec.get('m', { xattr: true }),
    LookupInSpec.get(LookupInMacro.Cas),
    LookupInSpec.get(LookupInMacro.SeqNo),
    LookupInSpec.get(LookupInMacro.IsDeleted),
    LookupInSpec.get(LookupInMacro.ValueSizeBytes),
    LookupInSpec.get(LookupInMacro.Expiry),
    LookupInSpec.exists(LookupInMacro.RevId),
    LookupInSpec.get(LookupInMacro.LastModified),
    LookupInSpec.get(LookupInMacro.Document),
  ])
  const [attributes, casText, seqnoText, ...rest] = content.map(({ value }) => value)
  assert.equal(BigInt(casText), cas)
  const swapped = Buffer.from(attributes.cas.slice(2), 'hex').reverse().toString('hex')
  assert.equal(BigInt(`0x${swapped}`), cas)
  assert.equal(BigInt(seqnoText), token!.sequenceNumber)
  assert.equal(attributes.seqno, seqnoText)
  assert.deepEqual(rest.slice(0, 2), [false, 7])
  assert(rest[2] > Date.now() / 1000)
  assert.equal(rest[3], true)
  assert.equal(rest[5].deleted, false)
})

nodeTest('attributes of a deleted document are read on request', async ({ collection, key }) => {
  await collection.upsert(key, 1)
  await collection.mutateIn(key, [MutateInSpec.upsert('_kept', 1, { xattr: true })])
  await collection.remove(key)
  const specs = [LookupInSpec.get('_kept', { xattr: true })]
  await assert.rejects(collection.lookupIn(key, specs), nacre.DocumentNotFoundError)
  const { content } = await collection.lookupIn(key, specs, { accessDeleted: true })
  assert.equal(content[0]!.value, 1)
})

nodeTest('raw transcoders keep bytes, text and JSON as they are', async ({ collection, key }) => {
  const bytes = new nacre.RawBinaryTranscoder()
  const text = new nacre.RawStringTranscoder()
  const json = new nacre.RawJsonTranscoder()
  await collection.upsert(key, Buffer.from([1, 255]), { transcoder: bytes })
  assert.deepEqual((await collection.get(key, { transcoder: bytes })).content, Buffer.from([1, 255]))
  await assert.rejects(collection.get(key, { transcoder: text }), nacre.DecodingFailureError)
  await collection.upsert(key, 'é{', { transcoder: text })
  assert.equal((await collection.get(key, { transcoder: text })).content, 'é{')
  assert.equal((await collection.get(key)).content, 'é{')
  await collection.upsert(key, '{"a": 1}', { transcoder: json })
  assert.deepEqual((await collection.get(key)).content, { a: 1 })
  assert.equal((await collection.get(key, { transcoder: json })).content.toString(), '{"a": 1}')
  await assert.rejects(collection.upsert(key, 1, { transcoder: text }), nacre.InvalidArgumentError)
  await assert.rejects(collection.upsert(key, 'x', { transcoder: bytes }), nacre.InvalidArgumentError)
})

nodeTest('a cluster has a transcoder for operations that name none', async ({ node, key }) => {
  const { user: username, password } = node
  const transcoder = new nacre.RawStringTranscoder()
  await using cluster = await nacre.connect(node.url, { username, password, transcoder })
  const collection = cluster.bucket(node.bucketName).defaultCollection()
  await collection.upsert(key, 'plain')
  assert.equal((await collection.get(key)).content, 'plain')
})

nodeTest('scans find ranges, prefixes and samples', async ({ bucket }) => {
  const name = unique('scanned')
  await bucket.collections().createCollection(name, '_default')
  const collection = bucket.collection(name)
  const ids = Array.from({ length: 60 }, (_, index) => `k${String(index).padStart(2, '0')}`)
  const results = await Promise.all(ids.map((id, index) => collection.upsert(id, { index }, { expiry: 3600 })))
  const consistentWith = new nacre.MutationState(...results.map(({ token }) => token))
  const idsOf = async (scanType: nacre.RangeScan | nacre.PrefixScan | nacre.SamplingScan): Promise<string[]> =>
    (await collection.scan(scanType, { idsOnly: true, consistentWith, concurrency: 16 })).map(({ id }) => id).sort()

  assert.deepEqual(await idsOf(new nacre.RangeScan()), ids)
  const between = new nacre.RangeScan(new nacre.ScanTerm('k10'), new nacre.ScanTerm('k20', true))
  assert.deepEqual(await idsOf(between), ids.slice(10, 20))
  assert.deepEqual(await idsOf(new nacre.PrefixScan('k3')), ids.slice(30, 40))
  assert.deepEqual(await idsOf(new nacre.PrefixScan('x')), [])
  const sample = await idsOf(new nacre.SamplingScan(7, 42))
  assert.equal(new Set(sample).size, 7)

  const found = new Map<string, nacre.ScanResult>()
  const whole = collection.scan(new nacre.RangeScan(), { concurrency: 32, batchItemLimit: 1, consistentWith })
  for await (const result of whole) found.set(result.id, result)
  assert.equal(found.size, ids.length)
  assert.deepEqual(found.get('k07')!.content, { index: 7 })
  assert.equal(found.get('k07')!.cas, results[7]!.cas)
  assert(found.get('k07')!.expiryTime! > Date.now() / 1000)
  for await (const _ of collection.scan(new nacre.PrefixScan('k'))) break

  const events: string[] = []
  await new Promise((resolve, reject) => {
    const scan = collection.scan(new nacre.PrefixScan('k0'), { idsOnly: true, consistentWith, concurrency: 32 })
    scan
      .on('result', ({ id }) => events.push(id))
      .on('end', resolve)
      .on('error', reject)
  })
  assert.deepEqual(events.sort(), ids.slice(0, 10))
  for (const refused of [{ scan: 1 } as any, new nacre.SamplingScan(0), new nacre.PrefixScan(1 as any)]) {
    await assert.rejects(Promise.resolve(collection.scan(refused)), nacre.InvalidArgumentError)
  }
})

nodeTest('a scan of a missing collection says so', async ({ bucket }) => {
  const scan = bucket.collection(unique('none')).scan(new nacre.RangeScan(), { timeout: 500 })
  await assert.rejects(Promise.resolve(scan), nacre.CollectionNotFoundError)
})
