/** Indexes of the search service on the wire; nacre has no such service yet. */

import assert from 'node:assert/strict'
import { test } from 'node:test'

import * as nacre from '../../src/index.js'
import { FakeNode, FakeService } from './fake-node.js'

async function withSearch(body: (cluster: nacre.Cluster, service: FakeService) => Promise<void>): Promise<void> {
  await using node = await FakeNode.start()
  await using service = await FakeService.start()
  node.neighbours = [{ fts: service.port }]
  await using cluster = await nacre.connect(node.url, 'user', 'password')
  await body(cluster, service)
}

function answers(service: FakeService, status: number, body: unknown): void {
  service.onRequest = (response) => response.writeHead(status).end(JSON.stringify(body))
}

test('every operation has its path', () =>
  withSearch(async (cluster, service) => {
    answers(service, 200, { status: 'ok', count: 7, analyzed: [1], indexDef: { name: 'i' }, indexDefs: null })
    const manager = cluster.searchIndexes()
    await manager.upsertIndex({ name: 'i', sourceName: 'b' })
    assert.equal((await manager.getIndex('i')).type, 'fulltext-index')
    assert.deepEqual(await manager.getAllIndexes(), [])
    assert.equal(await manager.getIndexedDocumentsCount('i'), 7)
    assert.deepEqual(await manager.analyzeDocument('i', {}), [1])
    for (const name of [
      'pauseIngest',
      'resumeIngest',
      'allowQuerying',
      'disallowQuerying',
      'freezePlan',
      'unfreezePlan',
    ] as const) {
      await manager[name]('i')
    }
    await manager.dropIndex('i')
    await cluster.bucket('b').scope('s').searchIndexes().dropIndex('a/b')
    assert.deepEqual(service.asked, [
      'PUT /api/index/i',
      'GET /api/index/i',
      'GET /api/index',
      'GET /api/index/i/count',
      'POST /api/index/i/analyzeDoc',
      'POST /api/index/i/ingestControl/pause',
      'POST /api/index/i/ingestControl/resume',
      'POST /api/index/i/queryControl/allow',
      'POST /api/index/i/queryControl/disallow',
      'POST /api/index/i/planFreezeControl/freeze',
      'POST /api/index/i/planFreezeControl/unfreeze',
      'DELETE /api/index/i',
      'DELETE /api/bucket/b/scope/s/index/a%2Fb',
    ])
  }))

test('refusals have the names of the official SDK', () =>
  withSearch(async (cluster, service) => {
    const manager = cluster.searchIndexes()
    const cases: [number, string, abstract new (...given: any[]) => Error][] = [
      [404, 'rest_auth: preparePerms, err: index not found', nacre.IndexNotFoundError],
      [400, 'cannot create index because an index with the same name already exists: i', nacre.IndexExistsError],
      [400, 'num_fts_indexes (active + pending) >= 20', nacre.QuotaLimitedError],
      [400, 'bad mapping', nacre.InvalidArgumentError],
      [500, 'broken', nacre.CouchbaseError],
    ]
    for (const [status, error, kind] of cases) {
      answers(service, status, { error })
      await assert.rejects(manager.upsertIndex({ name: 'i' }), kind)
    }
    await assert.rejects(manager.getIndex(''), nacre.InvalidArgumentError)
  }))

test('without the service the error says so', async () => {
  await using node = await FakeNode.start()
  await using cluster = await nacre.connect(node.url, 'user', 'password')
  await assert.rejects(cluster.searchIndexes().getAllIndexes(), nacre.ServiceNotAvailableError)
})
