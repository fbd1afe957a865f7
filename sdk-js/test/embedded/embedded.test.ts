/** A database in this process: opened, shared, closed, refused. Needs the addon (NACRE_ADDON). */

import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { existsSync } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'

import * as nacre from '../../src/index.js'
import { connect } from '../../src/index.js'

const run = promisify(execFile)

function folderTest(name: string, body: (url: string) => Promise<void>): void {
  test(name, async () => {
    const folder = await mkdtemp(join(tmpdir(), 'nacre-embedded-'))
    try {
      await body(`nacre://${join(folder, 'db')}`)
    } finally {
      await rm(folder, { recursive: true })
    }
  })
}

folderTest('what is written is there when the folder is opened again', async (url) => {
  {
    await using cluster = await connect(`${url}?store=log&vbuckets=4&quota_mib=8`)
    const bucket = cluster.bucket('default')
    await bucket.collections().createScope('shop')
    await bucket.collections().createCollection('orders', 'shop')
    await assert.rejects(bucket.collections().createCollection('orders', 'shop'), nacre.CollectionExistsError)
    await assert.rejects(bucket.collections().dropScope('none'), nacre.ScopeNotFoundError)
    await bucket.scope('shop').collection('orders').upsert('o', { n: 1 })
  }
  await using cluster = await connect(`${url}?create=false`)
  const bucket = cluster.bucket('default')
  const scopes = await bucket.collections().getAllScopes()
  assert.deepEqual(scopes.map(({ name }) => name), ['_default', 'shop'])
  assert.deepEqual((await bucket.scope('shop').collection('orders').get('o')).content, { n: 1 })
})

folderTest('clusters of one process share a folder, and others are refused', async (url) => {
  const index = fileURLToPath(new URL('../../src/index.js', import.meta.url))
  const script = `const { connect } = await import(${JSON.stringify(index)})
    await connect(${JSON.stringify(url)}).then((cluster) => cluster.close(), (error) => console.log(error.message))`
  const inAnotherProcess = async (): Promise<string> =>
    (await run(process.execPath, ['--input-type=module', '-e', script])).stdout
  {
    await using one = await connect(url)
    await using other = await connect(url)
    await one.bucket('default').defaultCollection().upsert('k', 1)
    assert.equal((await other.bucket('default').defaultCollection().get('k')).content, 1)
    assert.match(await inAnotherProcess(), /in use by process/)
  }
  assert.equal(await inAnotherProcess(), '')
})

folderTest('many requests at once pass', async (url) => {
  await using cluster = await connect(`${url}?sync=always`)
  const docs = cluster.bucket('default').defaultCollection()
  const numbers = Array.from({ length: 2000 }, (_, number) => number)
  await Promise.all(numbers.map((number) => docs.upsert(`k${number}`, number)))
  const found = await Promise.all(numbers.map((number) => docs.get(`k${number}`)))
  assert.deepEqual(found.map(({ content }) => content), numbers)
})

folderTest('a folder opens with its key only', async (url) => {
  for (const [key, other] of [
    [Buffer.alloc(32, 1), Buffer.alloc(32, 2)],
    ['open sesame', 'open'],
  ] as const) {
    const encrypted = `${url}-${typeof key}`
    {
      await using cluster = await connect(encrypted, { key })
      await cluster.bucket('default').defaultCollection().upsert('k', 1)
      // A folder that is open with its key opens with no other one.
      await assert.rejects(connect(encrypted, { key: other }), /IN_USE/)
    }
    await assert.rejects(connect(encrypted, { key: other }), /WRONG_KEY/)
    await assert.rejects(connect(encrypted), /: ENCRYPTED/)
    await using cluster = await connect(encrypted, { key })
    assert.equal((await cluster.bucket('default').defaultCollection().get('k')).content, 1)
  }
  await (await connect(url)).close()
  await assert.rejects(connect(url, { key: 'superfluous' }), /NOT_ENCRYPTED/)
})

folderTest('a new key replaces the old one', async (url) => {
  const old = Buffer.alloc(32, 1)
  {
    await using cluster = await connect(url, { key: old })
    await cluster.bucket('default').defaultCollection().upsert('k', 1)
    await cluster.rekey('open sesame')
    await using other = await connect(url, { key: 'open sesame' })
    assert.equal((await other.bucket('default').defaultCollection().get('k')).content, 1)
    for (const wrong of [Buffer.alloc(31), '']) await assert.rejects(cluster.rekey(wrong), nacre.InvalidArgumentError)
  }
  await assert.rejects(connect(url, { key: old }), /WRONG_KEY/)
  {
    await using cluster = await connect(url, { key: 'open sesame' })
    assert.equal((await cluster.bucket('default').defaultCollection().get('k')).content, 1)
    await cluster.rekey(old)
  }
  await (await connect(url, { key: old })).close()
  await using plain = await connect(`${url}-plain`)
  await assert.rejects(plain.rekey('open sesame'), /NOT_ENCRYPTED/)
})

folderTest('a value that is not a key is refused', async (url) => {
  for (const key of [Buffer.alloc(31), '', 32 as unknown as string]) {
    await assert.rejects(connect(url, { key }), nacre.InvalidArgumentError)
  }
  await assert.rejects(connect('couchbase://127.0.0.1:1', { key: 'p' }), nacre.InvalidArgumentError)
  assert(!existsSync(url.slice('nacre://'.length)))
})

folderTest('views follow the documents', async (url) => {
  const { DesignDocument, DesignDocumentView } = nacre
  {
    await using cluster = await connect(url)
    const bucket = cluster.bucket('default')
    const docs = bucket.defaultCollection()
    const manager = bucket.viewIndexes()
    await assert.rejects(manager.getDesignDocument('orders'), nacre.DesignDocumentNotFoundError)
    const total = new DesignDocumentView('function (doc, meta) { emit(doc.customer, doc.total); }', '_sum')
    const letters = new DesignDocumentView(
      "function (doc, meta) { doc.customer.split('').forEach(function (c) { emit(c, null); }); }",
    )
    await manager.upsertDesignDocument(new DesignDocument({ name: 'orders', views: { total, letters } }))
    for (const [number, customer] of ['ann', 'bob', 'ann'].entries()) {
      await docs.upsert(`o${number}`, { customer, total: number + 1 })
    }
    const { rows } = await bucket.viewQuery('orders', 'total', { group: true })
    assert.deepEqual(rows.map(({ key, value }) => [key, value]), [['ann', 4], ['bob', 2]])
    const ofBob = await bucket.viewQuery('orders', 'total', { keys: ['bob'], reduce: false })
    assert.deepEqual(ofBob.rows, [{ id: 'o1', key: 'bob', value: 2 }])
    assert.equal(ofBob.meta.totalRows, 3)
    const many = Array.from({ length: 4 }, () => bucket.viewQuery('orders', 'letters', { key: 'n' }))
    for (const found of await Promise.all(many)) assert.equal(found.rows.length, 4)
    await assert.rejects(bucket.viewQuery('orders', 'none'), nacre.ViewNotFoundError)
    await assert.rejects(bucket.viewQuery('orders', 'letters', { reduce: true }), nacre.ViewEngineError)
    const broken = new DesignDocument({ name: 'broken', views: { v: new DesignDocumentView('function (') } })
    await assert.rejects(manager.upsertDesignDocument(broken), /map of view/)
  }
  // Definitions are part of the folder.
  await using cluster = await connect(url)
  const bucket = cluster.bucket('default')
  const manager = bucket.viewIndexes()
  assert.deepEqual((await manager.getAllDesignDocuments()).map(({ name }) => name), ['orders'])
  assert.deepEqual((await bucket.viewQuery('orders', 'total')).rows.map(({ value }) => value), [6])
  await manager.dropDesignDocument('orders')
  await assert.rejects(bucket.viewQuery('orders', 'total'), nacre.ViewNotFoundError)
})

folderTest('statements read and change the documents', async (url) => {
  await using cluster = await connect(url)
  const bucket = cluster.bucket('default')
  await bucket.collections().createScope('shop')
  await bucket.collections().createCollection('orders', 'shop')
  const scope = bucket.scope('shop')
  const orders = scope.collection('orders')
  for (const [number, customer] of ['ann', 'bob', 'ann'].entries()) {
    await orders.upsert(`o${number}`, { customer, total: number + 1 })
  }
  const byKey = "SELECT RAW o.total FROM `default`.shop.orders o USE KEYS ['o2', 'none', 'o0']"
  assert.deepEqual((await cluster.query(byKey)).rows.sort(), [1, 3])
  const numbered = 'SELECT META(o).id FROM orders o WHERE o.total > $1'
  const { rows, meta } = await scope.query(`${numbered} ORDER BY o.total`, {
    parameters: [1],
    scanConsistency: nacre.QueryScanConsistency.RequestPlus,
    readOnly: true,
    metrics: true,
  })
  assert.deepEqual(rows, [{ id: 'o1' }, { id: 'o2' }])
  assert.equal(meta.metrics?.resultCount, 2)
  const named = 'SELECT RAW SUM(o.total) FROM orders o WHERE o.customer = $who'
  assert.deepEqual((await scope.query(named, { parameters: { who: 'ann' } })).rows, [4])
  const update = "UPDATE orders o SET o.paid = TRUE WHERE o.customer = 'bob' RETURNING o.paid"
  for (const adhoc of [true, false, false]) {
    assert.deepEqual((await scope.query(update, { adhoc })).rows, [{ paid: true }])
  }
  assert.equal((await orders.get('o1')).content.paid, true)

  await bucket.defaultCollection().upsert('k', 1)
  await assert.rejects(cluster.query('SELECT FROM'), nacre.ParsingFailureError)
  await assert.rejects(scope.query('SELECT * FROM nothing'), nacre.CollectionNotFoundError)
  const insert = "INSERT INTO `default` (KEY, VALUE) VALUES ('k', 2)"
  await assert.rejects(cluster.query(insert), nacre.DocumentExistsError)
  await assert.rejects(cluster.query('DELETE FROM `default`', { readOnly: true }), nacre.InvalidArgumentError)
  assert.equal((await bucket.defaultCollection().get('k')).content, 1)
})

folderTest('what is no database is refused by name', async (url) => {
  for (const wrong of ['nacre://relative', 'nacre:///x?speed=1', 'nacre:///x?vbuckets=many', 'nacre:///x?sync=often']) {
    await assert.rejects(connect(wrong), nacre.InvalidArgumentError)
  }
  await assert.rejects(connect(`${url}?create=false`), /there is no database/)
  assert(!existsSync(url.slice('nacre://'.length)))
  await using memory = await connect('nacre://:memory:')
  await assert.rejects(memory.analyticsQuery('SELECT 1'), nacre.ServiceNotAvailableError)
  await assert.rejects(memory.bucket('other').defaultCollection().get('k'), nacre.BucketNotFoundError)
})
