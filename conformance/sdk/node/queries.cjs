// Queries and their indexes with the official Node SDK.
//
//     NODE_PATH=…/node_modules node queries.cjs couchbase://127.0.0.1 Administrator password default
//
// Prints a line for each step; the exit code is 1 if any failed.
'use strict'

const assert = require('node:assert')
const couchbase = require('couchbase')
const { bucketName, run } = require('./steps.cjs')

const fresh = { scanConsistency: couchbase.QueryScanConsistency.RequestPlus }

const steps = {
  async 'a query gives rows and metadata'({ cluster }) {
    const { rows, meta } = await cluster.query("SELECT 1 + 1 AS two, 'pearl' AS word")
    assert.deepEqual(rows, [{ two: 2, word: 'pearl' }])
    assert.equal(meta.status, 'success')
  },

  async 'parameters have a position or a name'({ scope }) {
    const statement = 'SELECT RAW s.n FROM shells AS s WHERE s.n >= '
    const byPosition = await scope.query(statement + '$1 ORDER BY s.n', { parameters: [1], ...fresh })
    assert.deepEqual(byPosition.rows, [1, 2])
    const byName = await scope.query(statement + '$least', { parameters: { least: 2 }, ...fresh })
    assert.deepEqual(byName.rows, [2])
  },

  async 'a prepared query gives the same rows each time'({ scope }) {
    for (const limit of [1, 2, 3, 1]) {
      const options = { adhoc: false, parameters: [limit], ...fresh }
      const { rows } = await scope.query('SELECT RAW COUNT(*) FROM shells AS s WHERE s.n < $1', options)
      assert.deepEqual(rows, [limit])
    }
  },

  async 'statements change documents'({ scope, shells }) {
    await scope.query('UPDATE shells SET m = n + 1 WHERE n = 2', fresh)
    assert.deepEqual((await shells.get('2')).content, { n: 2, m: 3 })
  },

  async 'mistakes have the classes of the SDK'({ cluster }) {
    await assert.rejects(cluster.query('SELECT FROM WHERE'), couchbase.ParsingFailureError)
    const endless = 'SELECT COUNT(*) FROM ARRAY_RANGE(0, 20000) AS a, ARRAY_RANGE(0, 20000) AS b, ARRAY_RANGE(0, 20000) AS c'
    const impatient = { timeout: 1000, readOnly: true }
    await assert.rejects(cluster.query(endless, impatient), couchbase.UnambiguousTimeoutError)
  },

  async 'indexes are created, built, listed and dropped'({ shells }) {
    const indexes = shells.queryIndexes()
    await indexes.createPrimaryIndex({ deferred: true })
    await indexes.createIndex('by_n', ['n'], { deferred: true })
    await indexes.buildDeferredIndexes()
    await indexes.watchIndexes(['by_n', '#primary'], 60_000)
    const states = (await indexes.getAllIndexes()).map((index) => `${index.name} ${index.state}`)
    assert.deepEqual(states.sort(), ['#primary online', 'by_n online'])
    await assert.rejects(indexes.createIndex('by_n', ['n']), couchbase.IndexExistsError)
    await indexes.dropIndex('by_n')
    await assert.rejects(indexes.dropIndex('by_n'), couchbase.IndexNotFoundError)
    await indexes.dropPrimaryIndex()
  },
}

/** Creates a scope of this run with three documents in its collection `shells`. */
async function setUp(cluster) {
  const collections = cluster.bucket(bucketName).collections()
  const name = `node-${Date.now()}`
  await collections.createScope(name)
  await collections.createCollection('shells', name)
  const scope = cluster.bucket(bucketName).scope(name)
  const shells = scope.collection('shells')
  for (const n of [0, 1, 2]) await shells.upsert(String(n), { n })
  return { cluster, scope, shells, tidy: () => collections.dropScope(name) }
}

run(steps, setUp)
