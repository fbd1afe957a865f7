/** The entry for browsers against a node: statements, changes, live results. */

import assert from 'node:assert/strict'
import { test } from 'node:test'

import * as web from '../../src/web.js'
import { managementUrl, nodeOfEnvironment, nodeTest, unique } from './node.js'

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
