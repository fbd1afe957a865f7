/** What queries of views and design documents are on the wire. */

import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { test } from 'node:test'

import * as nacre from '../../src/index.js'
import { FakeNode } from './fake-node.js'

/** A service that keeps what was put, and gives it back. */
function keeper(asked: string[]): Server {
  let kept = '{"rows": []}'
  return createServer(async (request, response) => {
    let body = ''
    for await (const part of request) body += part
    asked.push(`${request.method} ${request.url}`)
    if (request.method === 'PUT') kept = body
    response.end(request.url!.includes('_view') ? '{"rows": []}' : kept)
  })
}

async function withViews(body: (bucket: nacre.Bucket, asked: string[]) => Promise<void>): Promise<void> {
  const asked: string[] = []
  const server = keeper(asked).listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  try {
    await using node = await FakeNode.start()
    node.neighbours = [{ mgmt: port, capi: port }]
    await using cluster = await nacre.connect(node.url, 'user', 'password')
    await body(cluster.bucket('b'), asked)
  } finally {
    server.close()
    server.closeAllConnections()
  }
}

test('the level comes after the group, so that it counts', () =>
  withViews(async (bucket, asked) => {
    await bucket.viewQuery('d', 'v', { group: true, groupLevel: 1 })
    await bucket.viewQuery('d', 'v', { groupLevel: 1, group: true })
    const query = 'GET /b/_design/d/_view/v?group=true&group_level=1'
    assert.deepEqual(asked, [query, query])
  }))

test('a design document that is read and written back keeps its collection and all other members', () =>
  withViews(async (bucket) => {
    const manager = bucket.viewIndexes()
    const document = new nacre.DesignDocument({
      name: 'todos',
      collection: 'app.todos',
      views: { open: { map: 'function (doc, meta) {}', reduce: '_count', note: 1 } },
      language: 'javascript',
    })
    await manager.upsertDesignDocument(document)
    const read = await manager.getDesignDocument('todos')
    assert.equal(read.collection, 'app.todos')
    assert.deepEqual(read, document)
    await manager.upsertDesignDocument(new nacre.DesignDocument({ ...read }))
    assert.deepEqual(await manager.getDesignDocument('todos'), document)
  }))
