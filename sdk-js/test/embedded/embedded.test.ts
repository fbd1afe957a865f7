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

folderTest('what is no key is refused by name', async (url) => {
  for (const key of [Buffer.alloc(31), '', 32 as unknown as string]) {
    await assert.rejects(connect(url, { key }), nacre.InvalidArgumentError)
  }
  await assert.rejects(connect('couchbase://127.0.0.1:1', { key: 'p' }), nacre.InvalidArgumentError)
  assert(!existsSync(url.slice('nacre://'.length)))
})

folderTest('what is no database is refused by name', async (url) => {
  for (const wrong of ['nacre://relative', 'nacre:///x?speed=1', 'nacre:///x?vbuckets=many', 'nacre:///x?sync=often']) {
    await assert.rejects(connect(wrong), nacre.InvalidArgumentError)
  }
  await assert.rejects(connect(`${url}?create=false`), /there is no database/)
  assert(!existsSync(url.slice('nacre://'.length)))
  await using memory = await connect('nacre://:memory:')
  await assert.rejects(memory.query('SELECT 1'), nacre.ServiceNotAvailableError)
  await assert.rejects(memory.bucket('other').defaultCollection().get('k'), nacre.BucketNotFoundError)
})
