/** Design documents and queries of views. */

import assert from 'node:assert/strict'

import * as nacre from '../../src/index.js'
import { nodeTest, type Setting, unique } from './node.js'

const scanConsistency = nacre.ViewScanConsistency.RequestPlus

interface ViewSetting extends Setting {
  name: string
  views: Record<string, nacre.DesignDocumentView>
  manager: nacre.ViewIndexManager
}

function viewTest(title: string, body: (setting: ViewSetting) => Promise<void>): void {
  nodeTest(title, async (setting) => {
    const { bucket, collection, key } = setting
    const name = unique('ddoc')
    const mine = `if (meta.id.indexOf("${key}") === 0)`
    const views = {
      by_n: { map: `function (doc, meta) { ${mine} emit(doc.n, doc.t); }` },
      sum: { map: `function (doc, meta) { ${mine} emit(doc.t, doc.n); }`, reduce: '_sum' },
    }
    const manager = bucket.viewIndexes()
    await manager.upsertDesignDocument(new nacre.DesignDocument({ name, views }))
    try {
      for (let n = 0; n < 6; n++) await collection.upsert(`${key}-${n}`, { n, t: n % 2 ? 'odd' : 'é' })
      await body({ ...setting, name, views, manager })
    } finally {
      await manager.dropDesignDocument(name)
    }
  })
}

viewTest('rows come in the order of their keys', async ({ bucket, name, key }) => {
  const query = bucket.viewQuery(name, 'by_n', { scanConsistency })
  const keys: number[] = []
  for await (const row of query) keys.push(row.key)
  assert.deepEqual(keys, [0, 1, 2, 3, 4, 5])
  const { rows, meta } = await query
  assert.deepEqual(rows[1], { id: `${key}-1`, key: 1, value: 'odd' })
  assert.equal(meta.totalRows, 6)
})

viewTest('options choose rows', async ({ bucket, name }) => {
  const cases: [nacre.ViewQueryOptions, number[]][] = [
    [{ limit: 2, skip: 1 }, [1, 2]],
    [{ range: { start: 4 } }, [4, 5]],
    [{ range: { start: 1, end: 3, inclusiveEnd: false } }, [1, 2]],
    [{ key: 3 }, [3]],
    [{ keys: [5, 0] }, [5, 0]],
    [{ order: nacre.ViewOrdering.Descending, limit: 2 }, [5, 4]],
  ]
  for (const [options, expected] of cases) {
    const { rows } = await bucket.viewQuery(name, 'by_n', { ...options, scanConsistency })
    assert.deepEqual(rows.map((row) => row.key), expected)
  }
})

viewTest('reduced rows have no id', async ({ bucket, name }) => {
  const { rows } = await bucket.viewQuery<number, string>(name, 'sum', { group: true, scanConsistency })
  rows.sort((a, b) => a.value - b.value)
  assert.deepEqual(rows, [{ id: undefined, key: 'é', value: 6 }, { id: undefined, key: 'odd', value: 9 }])
})

viewTest('missing views are not found', async ({ bucket, name }) => {
  for (const [designDocument, view] of [[name, 'none'], [unique('none'), 'by_n']] as const) {
    const query = bucket.viewQuery(designDocument, view)
    await assert.rejects(query.then(), nacre.ViewNotFoundError)
    await assert.rejects(query[Symbol.asyncIterator]().next(), nacre.ViewNotFoundError)
  }
})

viewTest('options that mean nothing are refused', async ({ bucket, name }) => {
  assert.throws(() => bucket.viewQuery(name, 'by_n', { limit: -1 }), nacre.InvalidArgumentError)
})

viewTest('design documents are read as written and dropped', async ({ manager, name, views }) => {
  const read = await manager.getDesignDocument(name)
  assert.deepEqual([read.name, read.views], [name, views])
  const { Development } = nacre.DesignDocumentNamespace
  await assert.rejects(manager.getDesignDocument(name, Development), nacre.DesignDocumentNotFoundError)
  await manager.upsertDesignDocument(read, Development)
  assert.deepEqual((await manager.getDesignDocument(name, Development)).views, views)
  assert((await manager.getAllDesignDocuments()).some((document) => document.name === name))
  const developed = (await manager.getAllDesignDocuments(Development)).filter((document) => document.name === name)
  assert.deepEqual(developed.map((document) => document.views), [views])
  await manager.dropDesignDocument(name)
  await manager.publishDesignDocument(name, { timeout: 10_000 })
  assert.deepEqual((await manager.getDesignDocument(name, { timeout: 10_000 })).views, views)
  await manager.dropDesignDocument(name, Development)
  await assert.rejects(manager.dropDesignDocument(name, Development), nacre.DesignDocumentNotFoundError)
})
