/** Statements of SQL++. */

import assert from 'node:assert/strict'

import * as nacre from '../../src/index.js'
import { nodeTest, unique } from './node.js'

const { QueryScanConsistency, QueryProfileMode, QueryStatus } = nacre
const FRESH = { scanConsistency: QueryScanConsistency.RequestPlus }

/** A scope with a collection `shells` of ten documents. */
async function shells(
  bucket: nacre.Bucket,
  body: (scope: nacre.Scope, shells: nacre.Collection) => Promise<void>,
): Promise<void> {
  const name = unique('s')
  await bucket.collections().createScope(name)
  try {
    await bucket.collections().createCollection('shells', name)
    const scope = bucket.scope(name)
    const collection = scope.collection('shells')
    await Promise.all(Array.from({ length: 10 }, (_, n) => collection.upsert(String(n), { n, text: 'x'.repeat(100) })))
    await body(scope, collection)
  } finally {
    await bucket.collections().dropScope(name)
  }
}

nodeTest('a statement gives rows and what the server says of them', async ({ cluster }) => {
  const { rows, meta } = await cluster.query("SELECT 1 + 1 AS two, 'pearl' AS word", {
    metrics: true,
    profile: QueryProfileMode.Timings,
    clientContextId: 'mine',
  })
  assert.deepEqual(rows, [{ two: 2, word: 'pearl' }])
  assert.equal(meta.status, QueryStatus.Success)
  assert.equal(meta.clientContextId, 'mine')
  assert.deepEqual(meta.signature, { two: 'number', word: 'string' })
  assert.equal(meta.metrics!.resultCount, 1)
  assert(meta.metrics!.elapsedTime > 0)
  assert(meta.profile.phaseTimes)
  assert.deepEqual(meta.warnings, [])
})

nodeTest('rows are read one by one, as a promise, or by listeners', async ({ cluster }) => {
  const statement = 'SELECT RAW n FROM ARRAY_RANGE(0, 1000) AS n'
  const all = Array.from({ length: 1000 }, (_, n) => n)
  const read: number[] = []
  for await (const row of cluster.query<number>(statement)) read.push(row)
  assert.deepEqual(read, all)
  assert.deepEqual((await cluster.query<number>(statement)).rows, all)
  const heard: number[] = []
  const meta = await new Promise<nacre.QueryMetaData>((resolve, reject) => {
    let said: nacre.QueryMetaData
    cluster
      .query(statement)
      .on('row', (row) => heard.push(row))
      .on('meta', (meta) => (said = meta))
      .on('end', () => resolve(said))
      .on('error', reject)
  })
  assert.deepEqual(heard, all)
  assert.equal(meta.status, 'success')
  for await (const row of cluster.query<number>(statement)) if (row === 3) break
})

nodeTest('parameters have a position or a name', async ({ bucket }) => {
  await shells(bucket, async (scope) => {
    const statement = 'SELECT RAW s.n FROM shells AS s WHERE s.n >= '
    assert.deepEqual((await scope.query(`${statement}$1 ORDER BY s.n`, { parameters: [8], ...FRESH })).rows, [8, 9])
    const named = { parameters: { least: 9 }, ...FRESH }
    assert.deepEqual((await scope.query(`${statement}$least`, named)).rows, [9])
  })
})

nodeTest('a prepared statement is sent by its name', async ({ cluster, bucket }) => {
  await shells(bucket, async (scope, collection) => {
    const statement = 'SELECT RAW COUNT(*) FROM shells AS s WHERE s.n < $1'
    const count = async (limit: number): Promise<number> =>
      (await scope.query(statement, { adhoc: false, parameters: [limit], ...FRESH })).rows[0]
    for (const limit of [3, 1, 10]) assert.equal(await count(limit), limit)
    assert.equal(cluster.sender.prepared.size, 1)
    // Others may have removed it.
    const [name] = cluster.sender.prepared.values()
    await cluster.query(`DELETE FROM system:prepareds WHERE name LIKE '%${name!.split('/').at(-1)}%'`).catch(() => {})
    assert.equal(await count(4), 4)
    cluster.sender.prepared.set([...cluster.sender.prepared.keys()][0]!, 'no-such-name')
    assert.equal(await count(5), 5)
    await collection.remove('0')
    assert.equal(await count(5), 4)
  })
})

nodeTest('a statement sees the mutations that it is told of', async ({ bucket }) => {
  await shells(bucket, async (scope, collection) => {
    for (let n = 10; n < 20; n++) {
      const { token } = await collection.upsert(String(n), { n })
      const consistentWith = new nacre.MutationState(token)
      const { rows } = await scope.query('SELECT RAW s.n FROM shells AS s WHERE s.n = $1', {
        parameters: [n],
        consistentWith,
      })
      assert.deepEqual(rows, [n])
    }
    const both = { consistentWith: new nacre.MutationState(), ...FRESH }
    await assert.rejects(Promise.resolve(scope.query('SELECT 1', both)), nacre.InvalidArgumentError)
  })
})

nodeTest('statements change documents, but not those that may only read', async ({ bucket }) => {
  await shells(bucket, async (scope, collection) => {
    await collection.touch('2', 3600)
    await scope.query('UPDATE shells SET m = n + 1 WHERE n = 2', { ...FRESH, preserveExpiry: true })
    const { content, expiryTime } = await collection.get('2', { project: ['m'], withExpiry: true })
    assert.deepEqual(content, { m: 3 })
    assert(expiryTime)
    const reading = scope.query('DELETE FROM shells', { readOnly: true })
    await assert.rejects(Promise.resolve(reading), nacre.CouchbaseError)
    assert.equal((await collection.exists('2')).exists, true)
    // Nobody waits for it, and it is carried out all the same.
    scope.query('DELETE FROM shells AS s WHERE s.n = 3', FRESH)
    const end = Date.now() + 5000
    while ((await collection.exists('3')).exists) assert(Date.now() < end)
  })
})

nodeTest('mistakes have the names of the official SDK', async ({ cluster, bucket }) => {
  await assert.rejects(Promise.resolve(cluster.query('SELECT FROM WHERE')), (error) => {
    assert(error instanceof nacre.ParsingFailureError)
    assert.equal(error.context.errorCode, 3000)
    assert.equal(error.context.statement, 'SELECT FROM WHERE')
    return true
  })
  const missing = cluster.query(`SELECT * FROM ${bucket.name}.none.none`)
  await assert.rejects(Promise.resolve(missing), nacre.CouchbaseError)
  const statement =
    'SELECT COUNT(*) FROM ARRAY_RANGE(0, 20000) AS a, ARRAY_RANGE(0, 20000) AS b, ARRAY_RANGE(0, 20000) AS c'
  await assert.rejects(
    Promise.resolve(cluster.query(statement, { timeout: 500, readOnly: true })),
    nacre.UnambiguousTimeoutError,
  )
  await assert.rejects(Promise.resolve(cluster.query(statement, { timeout: 500 })), nacre.AmbiguousTimeoutError)
  await assert.rejects(
    Promise.resolve(cluster.query('SELECT 1', { signal: AbortSignal.abort() })),
    nacre.RequestCanceledError,
  )
  const duplicate = `INSERT INTO ${bucket.name} (KEY, VALUE) VALUES ("dup-${unique('k')}", 1), ("dup", 1), ("dup", 2)`
  await assert.rejects(Promise.resolve(cluster.query(duplicate)), nacre.DocumentExistsError)
  assert.throws(() => cluster.query(''), nacre.InvalidArgumentError)
  const once = cluster.query('SELECT 1')
  for await (const _ of once) continue
  await assert.rejects(once.then(), nacre.InvalidArgumentError)
  const heard = await new Promise((resolve) => cluster.query('SELECT FROM').on('error', resolve))
  assert(heard instanceof nacre.ParsingFailureError)
})
