// Analytics with the official Node SDK, against a node with the service `cbas`.
//
//     NODE_PATH=…/node_modules node analytics.cjs couchbase://127.0.0.1 Administrator password default
//
// Prints a line for each step; the exit code is 1 if any failed.
'use strict'

const assert = require('node:assert')
const couchbase = require('couchbase')
const { bucketName, run } = require('./steps.cjs')

const dataverse = `dv${Date.now()}`
const fresh = { scanConsistency: couchbase.AnalyticsScanConsistency.RequestPlus }

const steps = {
  async 'a query gives rows and metadata'({ cluster }) {
    const { rows, meta } = await cluster.analyticsQuery("SELECT 1 + 1 AS two, 'pearl' AS word")
    assert.deepEqual(rows, [{ two: 2, word: 'pearl' }])
    assert.equal(meta.status, 'success')
    assert.equal(meta.metrics.resultCount, 1)
  },

  async 'scopes, collections and indexes are defined and listed'({ cluster }) {
    const manager = cluster.analyticsIndexes()
    await manager.createDataverse(dataverse)
    await assert.rejects(manager.createDataverse(dataverse), couchbase.DataverseExistsError)
    await manager.createDataset(bucketName, 'shells', { dataverseName: dataverse })
    await assert.rejects(
      manager.createDataset(bucketName, 'shells', { dataverseName: dataverse }),
      couchbase.DatasetExistsError
    )
    await manager.createIndex('shells', 'by_n', { n: 'double' }, { dataverseName: dataverse })
    const datasets = await manager.getAllDatasets()
    assert.ok(datasets.some((set) => set.name === 'shells' && set.dataverseName === dataverse))
    const indexes = await manager.getAllIndexes()
    assert.ok(indexes.some((index) => index.name === 'by_n' && !index.isPrimary))
    await manager.connectLink({ dataverseName: dataverse })
  },

  async 'documents are grouped'({ cluster, collection }) {
    for (const n of [1, 2, 3, 4]) await collection.upsert(`${dataverse}-${n}`, { of: dataverse, n, even: n % 2 === 0 })
    const statement = `SELECT s.even, SUM(s.n) AS sum FROM \`${dataverse}\`.shells s WHERE s.of = $of
                       GROUP BY s.even ORDER BY s.even`
    const { rows } = await cluster.analyticsQuery(statement, { parameters: { of: dataverse }, ...fresh })
    assert.deepEqual(rows, [{ even: false, sum: 4 }, { even: true, sum: 6 }])
    for (const n of [1, 2, 3, 4]) await collection.remove(`${dataverse}-${n}`)
  },

  async 'changes that are not taken in are counted'({ cluster }) {
    const pending = await cluster.analyticsIndexes().getPendingMutations()
    assert.ok(pending && typeof pending === 'object')
  },

  async 'what is not there is named'({ cluster }) {
    await assert.rejects(cluster.analyticsQuery('SELECT * FROM nothing_of_this_name x'), couchbase.DatasetNotFoundError)
    await assert.rejects(cluster.analyticsQuery('SELEC 1'), couchbase.CompilationFailureError)
  },

  async 'definitions are dropped'({ cluster }) {
    const manager = cluster.analyticsIndexes()
    await manager.dropIndex('shells', 'by_n', { dataverseName: dataverse })
    await manager.dropDataset('shells', { dataverseName: dataverse })
    await manager.dropDataverse(dataverse)
    await assert.rejects(manager.dropDataverse(dataverse), couchbase.DataverseNotFoundError)
  }
}

run(steps, (cluster) => ({ cluster, collection: cluster.bucket(bucketName).defaultCollection() }))
