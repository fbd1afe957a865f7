/** The entry for browsers against a node: documents, statements, changes, live results. */

import assert from 'node:assert/strict'
import { test } from 'node:test'

import * as web from '../../src/web.js'
import { createToken, managementUrl, nodeOfEnvironment, nodeTest, unique } from './node.js'

async function connected(): Promise<web.HttpCluster> {
  const node = nodeOfEnvironment()
  return web.connect(await managementUrl(node), { username: node.user, password: node.password })
}

test('statements have their rows, and errors their names', async () => {
  const cluster = await connected()
  const { rows, meta } = await cluster.query('SELECT RAW $a', { parameters: { a: { b: 'ü' } }, metrics: true })
  assert.deepEqual(rows, [{ b: 'ü' }])
  assert.equal(meta.metrics!.resultCount, 1)
  const read = []
  for await (const row of cluster.query('SELECT RAW n FROM ARRAY_RANGE(0, 1000) AS n')) read.push(row)
  assert.equal(read.length, 1000)
  await assert.rejects(cluster.query('SELEKT'), web.ParsingFailureError)
  cluster.close()
  await assert.rejects(cluster.query('SELECT 1'), web.RequestCanceledError)
})

nodeTest('documents are read and changed, each by its version', async ({ bucket, collection, key }) => {
  const cluster = await connected()
  const documents = cluster.bucket(bucket.name).defaultCollection()
  assert.deepEqual(await documents.exists(key), { exists: false, cas: undefined })
  await assert.rejects(documents.get(key), web.DocumentNotFoundError)
  await assert.rejects(documents.replace(key, {}), web.DocumentNotFoundError)
  await assert.rejects(documents.replace(key, {}, { cas: 5n }), web.DocumentNotFoundError)
  await assert.rejects(documents.remove(key), web.DocumentNotFoundError)
  await assert.rejects(documents.remove(key, { cas: 5n }), web.DocumentNotFoundError)

  const first = await documents.insert(key, { n: 1, text: 'ü' })
  assert.equal(first.cas, (await collection.get(key)).cas)
  await assert.rejects(documents.insert(key, {}), web.DocumentExistsError)
  assert.deepEqual(await documents.get(key), { content: { n: 1, text: 'ü' }, cas: first.cas })
  assert.deepEqual(await documents.exists(key), { exists: true, cas: first.cas })

  const second = await documents.replace(key, { n: 2 }, { cas: first.cas })
  await assert.rejects(documents.replace(key, { n: 3 }, { cas: first.cas }), web.CasMismatchError)
  await assert.rejects(documents.remove(key, { cas: first.cas }), web.CasMismatchError)
  assert.deepEqual((await collection.get(key)).content, { n: 2 })
  assert.notEqual(second.cas, first.cas)
  await documents.remove(key, { cas: second.cas })
  assert.equal((await collection.exists(key)).exists, false)
  cluster.close()
})

nodeTest('documents over HTTP have expiries', async ({ bucket, collection, key }) => {
  const cluster = await connected()
  const documents = cluster.bucket(bucket.name).defaultCollection()
  await documents.upsert(key, { n: 1 }, { expiry: 1000 })
  const { expiryTime } = await documents.get(key, { withExpiry: true })
  assert(Math.abs(expiryTime! - Date.now() / 1000 - 1000) < 60)
  await documents.upsert(key, { n: 2 }, { preserveExpiry: true })
  assert.equal((await collection.get(key, { withExpiry: true })).expiryTime, expiryTime)
  await documents.replace(key, { n: 3 }, { expiry: new Date(Date.now() + 5_000_000) })
  assert((await documents.get(key, { withExpiry: true })).expiryTime! > expiryTime!)
  await documents.upsert(key, { n: 4 })
  assert.equal((await documents.get(key, { withExpiry: true })).expiryTime, 0)
  cluster.close()
})

nodeTest('keys and values of all kinds go over HTTP, and no others', async ({ bucket, collection, key }) => {
  const cluster = await connected()
  const documents = cluster.bucket(bucket.name).defaultCollection()
  for (const name of [`${key}/a b`, `${key}?x=%2F#`, `${key}ü`]) {
    await documents.upsert(name, name)
    assert.equal((await collection.get(name)).content, name)
    assert.equal((await documents.get(name)).content, name)
  }
  await collection.upsert(key, Buffer.from([0, 1, 255]))
  assert.deepEqual(new Uint8Array((await documents.get(key)).content), new Uint8Array([0, 1, 255]))
  for (const name of ['', 'x'.repeat(251), 1 as any]) await assert.rejects(documents.get(name), web.InvalidArgumentError)
  for (const value of [undefined, () => {}, 1n]) await assert.rejects(documents.upsert(key, value), web.EncodingFailureError)
  for (const expiry of [-1, 0.5, new Date(0)]) {
    await assert.rejects(documents.upsert(key, 1, { expiry }), web.InvalidArgumentError)
  }
  await assert.rejects(documents.upsert(key, 'x'.repeat(21 * 1024 * 1024)), web.ValueTooLargeError)
  const nowhere = cluster.bucket(bucket.name).collection('nowhere')
  await assert.rejects(nowhere.upsert(key, 1), web.CollectionNotFoundError)
  await assert.rejects(nowhere.get(key), /there is no such collection/)
  cluster.close()
})

test('a token may do what its scopes say, and nothing after it is revoked', async () => {
  const node = nodeOfEnvironment()
  const url = await managementUrl(node)
  const token = await createToken(node, url, [`data_reader[${node.bucketName}]`])
  const cluster = web.connect(url, { token: token.text })
  const documents = cluster.bucket(node.bucketName).defaultCollection()
  const key = unique('token')
  assert.equal((await documents.exists(key)).exists, false)
  await assert.rejects(documents.upsert(key, 1), (error: web.CouchbaseError) => {
    assert(error instanceof web.AuthenticationFailureError)
    assert.equal(error.context.status, 403)
    return true
  })
  await token.revoke()
  await assert.rejects(documents.exists(key), web.AuthenticationFailureError)
  cluster.close()
})

test('a wrong password is refused', async () => {
  const cluster = web.connect(await managementUrl(nodeOfEnvironment()), { username: 'nobody', password: 'wrong' })
  await assert.rejects(cluster.query('SELECT 1'), web.AuthenticationFailureError)
})

nodeTest('changes and live results follow what other clients write', async ({ bucket }) => {
  const cluster = await connected()
  const name = unique('web')
  await bucket.collections().createCollection(name, '_default')
  const documents = bucket.collection(name)
  await documents.upsert('first', { n: 1 })
  const feed = cluster.bucket(bucket.name).collection(name).changes<{ n: number }>()
  const found = []
  for await (const { id, content, deleted } of feed) {
    found.push([id, content?.n, deleted])
    if (found.length === 1) await documents.upsert('second', { n: 2 })
    if (found.length === 2) await documents.remove('first')
    if (found.length === 3) break
  }
  assert.deepEqual(found, [
    ['first', 1, false],
    ['second', 2, false],
    ['first', undefined, true],
  ])
  const statement = `SELECT RAW SUM(d.n) FROM \`${bucket.name}\`._default.\`${name}\` AS d`
  const sums = []
  for await (const { rows } of cluster.live<number>(statement)) {
    sums.push(rows[0])
    if (rows[0] === 5) break
    await documents.upsert('third', { n: 3 })
  }
  assert.equal(sums.at(-1), 5)
  cluster.close()
  await bucket.collections().dropCollection(name, '_default')
})
