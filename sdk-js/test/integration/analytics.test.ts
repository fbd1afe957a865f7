/** Analytics, on a cluster that runs the service; on another one, the errors that say so. */

import assert from 'node:assert/strict'
import { setTimeout as sleep } from 'node:timers/promises'

import { nodesWith } from '../../src/cluster-map.js'
import * as nacre from '../../src/index.js'
import { nodeTest, type Setting, unique } from './node.js'

const FRESH = { scanConsistency: nacre.AnalyticsScanConsistency.RequestPlus }
const CAUGHT_UP_MS = 60_000

/** A test that goes on where a node runs the service, once the errors elsewhere say so. */
function analyticsTest(name: string, body: (setting: Setting) => Promise<void>): void {
  nodeTest(name, async (setting) => {
    const { cluster, bucket } = setting
    const map = await cluster.client.bootstrap({}, 10_000)
    if (nodesWith(map, 'cbas').length) return body(setting)
    const manager = cluster.analyticsIndexes()
    for (const ask of [
      () => cluster.analyticsQuery('SELECT 1').then(),
      () => bucket.defaultScope().analyticsQuery('SELECT 1').then(),
      () => manager.createDataverse('d'),
      () => manager.getAllDatasets(),
      () => manager.getPendingMutations(),
      () => manager.getAllLinks(),
    ]) {
      await assert.rejects(ask, nacre.ServiceNotAvailableError)
    }
  })
}

analyticsTest('statements without documents have metadata, and errors classes', async ({ cluster }) => {
  const seen = []
  for await (const n of cluster.analyticsQuery('SELECT VALUE n + $1 FROM range(1, 2000) AS n', { parameters: [10] })) {
    seen.push(n)
  }
  assert.deepEqual([seen.length, seen[0], seen.at(-1)], [2000, 11, 2010])
  const { rows, meta } = await cluster.analyticsQuery('SELECT 1 + $a AS two', { parameters: { a: 1 } })
  assert.deepEqual(rows, [{ two: 2 }])
  assert.equal(meta.status, nacre.AnalyticsStatus.Success)
  assert.equal(meta.metrics.resultCount, 1)
  assert(meta.metrics.elapsedTime > 0)
  const cases: [string, object, typeof nacre.CouchbaseError][] = [
    ['SELEC 1', {}, nacre.CompilationFailureError],
    ['SELECT * FROM no_such_thing AS x', {}, nacre.DatasetNotFoundError],
    ['SELECT sleep(1, 10000) AS x', { timeout: '1s' }, nacre.UnambiguousTimeoutError],
  ]
  for (const [statement, raw, Kind] of cases) {
    await assert.rejects(() => cluster.analyticsQuery(statement, { raw }).then(), Kind)
  }
})

analyticsTest('datasets follow documents', async ({ cluster, bucket, collection, key }) => {
  const manager = cluster.analyticsIndexes()
  const dataverseName = unique('dv').replaceAll('-', '_')
  await manager.createDataverse(dataverseName)
  try {
    await assert.rejects(manager.createDataverse(dataverseName), nacre.DataverseExistsError)
    await manager.createDataverse(dataverseName, { ignoreIfExists: true })
    const condition = `run = '${key}'`
    await manager.createDataset(bucket.name, 'orders', { dataverseName, condition })
    await assert.rejects(manager.createDataset(bucket.name, 'orders', { dataverseName }), nacre.DatasetExistsError)
    const datasets = await manager.getAllDatasets()
    assert.deepEqual(
      datasets.filter((dataset) => dataset.dataverseName === dataverseName),
      [{ name: 'orders', dataverseName, linkName: 'Local', bucketName: bucket.name }],
    )
    await manager.createIndex('orders', 'by_n', { n: 'double' }, { dataverseName })
    const indexes = await manager.getAllIndexes()
    assert(indexes.some(({ name, isPrimary }) => name === 'by_n' && !isPrimary))

    for (let n = 0; n < 4; n++) await collection.upsert(`${key}:${n}`, { run: key, n })
    const from = `FROM \`${dataverseName}\`.orders AS o`
    const { rows } = await cluster.analyticsQuery(`SELECT VALUE SUM(o.n) ${from}`, FRESH)
    assert.deepEqual(rows, [6])
    await collection.remove(`${key}:3`)
    const count = `SELECT VALUE COUNT(*) ${from} WHERE o.n > $1`
    assert.deepEqual((await cluster.analyticsQuery(count, { ...FRESH, parameters: [0] })).rows, [2])
    const until = Date.now() + CAUGHT_UP_MS
    while ((await manager.getPendingMutations())[dataverseName]?.['orders']) {
      assert(Date.now() < until, 'the dataset does not catch up')
      await sleep(50)
    }

    await manager.disconnectLink({ dataverseName })
    await manager.connectLink({ dataverseName })
    await manager.dropIndex('orders', 'by_n', { dataverseName })
    await assert.rejects(manager.dropIndex('orders', 'by_n', { dataverseName }), nacre.IndexNotFoundError)
    await manager.dropDataset('orders', { dataverseName })
    await assert.rejects(manager.dropDataset('orders', { dataverseName }), nacre.DatasetNotFoundError)
  } finally {
    await manager.dropDataverse(dataverseName)
  }
  await assert.rejects(manager.dropDataverse(dataverseName), nacre.DataverseNotFoundError)
})

analyticsTest('links to other stores are not supported', async ({ cluster, key }) => {
  const manager = cluster.analyticsIndexes()
  assert.deepEqual(await manager.getAllLinks(), [])
  const secrets = { accessKeyId: 'id', secretAccessKey: 'secret', region: 'region' }
  const link = new nacre.S3ExternalAnalyticsLink({ dataverse: 'Default', name: key, ...secrets })
  await assert.rejects(manager.createLink(link), nacre.LinkNotFoundError)
  await assert.rejects(manager.dropLink(key, 'Default'), nacre.LinkNotFoundError)
})
