/** Connecting, and managing buckets, scopes and collections. */

import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { formatWithOptions, promisify } from 'node:util'
import { test } from 'node:test'

import * as nacre from '../../src/index.js'
import { managementUrl, nodeOfEnvironment, nodeTest, unique } from './node.js'

const SHORT = { timeout: 900 }

/** The exports of a program. It is a file, as not every runtime has exports of a `data:` URL. */
async function moduleOf(source: string): Promise<{ main: (...login: string[]) => Promise<void> }> {
  const folder = await mkdtemp(join(tmpdir(), 'nacre-js-'))
  try {
    const file = join(folder, 'program.mjs')
    await writeFile(file, source)
    return await import(pathToFileURL(file).href)
  } finally {
    await rm(folder, { recursive: true })
  }
}

nodeTest('a wrong password is refused', async ({ node }) => {
  for (const [user, password] of [[node.user, 'wrong'], ['nobody', 'password']] as const) {
    await assert.rejects(nacre.connect(node.url, user, password), (error) => {
      assert(error instanceof nacre.AuthenticationFailureError)
      assert.equal(error.context.status, 0x20)
      return true
    })
  }
})

nodeTest('options are those of the official SDK', async ({ node }) => {
  const cluster = await nacre.connect(node.url, { username: node.user, password: node.password })
  await cluster.bucket(node.bucketName).defaultCollection().exists('k')
  await cluster.close()
})

nodeTest('a missing bucket is not found', async ({ cluster }) => {
  const collection = cluster.bucket(unique('none')).defaultCollection()
  await assert.rejects(collection.get('k'), nacre.BucketNotFoundError)
})

nodeTest('buckets are created, used, listed and dropped', async ({ cluster }) => {
  const manager = cluster.buckets()
  const name = unique('bucket')
  await manager.createBucket({ name, bucketType: nacre.BucketType.Ephemeral })
  try {
    await assert.rejects(manager.createBucket({ name }), nacre.BucketExistsError)
    assert.equal((await manager.getBucket(name)).bucketType, nacre.BucketType.Ephemeral)
    assert((await manager.getAllBuckets()).some((bucket) => bucket.name === name))
    const collection = cluster.bucket(name).defaultCollection()
    await collection.upsert('k', 1)
    assert.equal((await collection.get('k')).content, 1)
  } finally {
    await manager.dropBucket(name)
  }
  await assert.rejects(manager.dropBucket(name), nacre.BucketNotFoundError)
  await assert.rejects(manager.getBucket(name), nacre.BucketNotFoundError)
})

nodeTest('settings that mean nothing are refused', async ({ cluster }) => {
  await assert.rejects(cluster.buckets().createBucket({ name: 'no/slashes' }), nacre.InvalidArgumentError)
})

nodeTest('scopes and collections are created, used, listed and dropped', async ({ bucket, key }) => {
  const manager = bucket.collections()
  const [scope, name] = [unique('s'), unique('c')]
  await manager.createScope(scope)
  await assert.rejects(manager.createScope(scope), nacre.ScopeExistsError)
  await manager.createCollection(name, scope, { maxExpiry: 3600 })
  await assert.rejects(manager.createCollection(name, scope), nacre.CollectionExistsError)
  const listed = (await manager.getAllScopes()).find((spec) => spec.name === scope)
  assert.deepEqual(listed?.collections, [{ name, scopeName: scope, maxExpiry: 3600 }])

  const collection = bucket.scope(scope).collection(name)
  await collection.upsert(key, 'here')
  assert.equal((await collection.get(key)).content, 'here')
  assert.equal((await bucket.defaultCollection().exists(key)).exists, false)
  await assert.rejects(collection.get('k'.repeat(247)), nacre.InvalidArgumentError)

  await manager.dropCollection(name, scope)
  await assert.rejects(collection.get(key, SHORT), nacre.CollectionNotFoundError)
  await assert.rejects(manager.dropCollection(name, scope), nacre.CollectionNotFoundError)
  await manager.createCollection(name, scope)
  // The old id is forgotten, and the new collection is empty.
  assert.equal((await collection.exists(key)).exists, false)
  await manager.dropScope(scope)
})

nodeTest('missing scopes are not found', async ({ bucket }) => {
  const manager = bucket.collections()
  const scope = unique('none')
  await assert.rejects(manager.dropScope(scope), nacre.ScopeNotFoundError)
  await assert.rejects(manager.createCollection('c', scope), nacre.ScopeNotFoundError)
  await assert.rejects(bucket.scope(scope).collection('c').get('k', SHORT), nacre.ScopeNotFoundError)
})

nodeTest('management can be aborted', async ({ cluster }) => {
  const signal = AbortSignal.abort()
  await assert.rejects(cluster.buckets().getAllBuckets({ signal }), nacre.RequestCanceledError)
})

test('the example of the README runs', async (context) => {
  const node = nodeOfEnvironment()
  const readme = await readFile(new URL('../../../README.md', import.meta.url), 'utf8')
  const example = /```js\n(.*?)```/s.exec(readme)![1]!
  const index = new URL('../../src/index.js', import.meta.url)
  const source = example.replace("'nacre'", `'${index}'`).replace("bucket('default')", `bucket('${node.bucketName}')`)
  const { main } = await moduleOf(source)
  const printed: unknown[][] = []
  context.mock.method(console, 'log', (...values: unknown[]) => printed.push(values))
  await main(node.url, node.user, node.password)
  assert.deepEqual(printed, [['new', false]])
})

test('the examples of the guide run and print what stands below them', async (context) => {
  const node = nodeOfEnvironment()
  const guide = await readFile(new URL('../../../../docs/guides/use-the-javascript-client.md', import.meta.url), 'utf8')
  const examples = [...guide.matchAll(/```js\n(.*?)```\n\n```text\n(.*?)```/gs)]
  assert(examples.length >= 5)
  const index = new URL('../../src/index.js', import.meta.url)
  let printed: string[] = []
  context.mock.method(console, 'log', (...values: unknown[]) => printed.push(formatWithOptions({}, ...values)))
  for (const [, example, expected] of examples) {
    const isWeb = example!.includes("'nacre/http'")
    const source = example!
      .replace("'nacre'", `'${index}'`)
      .replace("'nacre/http'", `'${new URL('../../src/web.js', import.meta.url)}'`)
      .replaceAll("bucket('default')", `bucket('${node.bucketName}')`)
    const { main } = await moduleOf(source)
    printed = []
    await main(isWeb ? await managementUrl(node) : node.url, node.user, node.password)
    assert.equal(`${printed.join('\n')}\n`, expected)
  }
})

test('a program for the official package runs with its import changed', async () => {
  const node = nodeOfEnvironment()
  const index = new URL('../../src/index.js', import.meta.url)
  const ported = async (name: string) => {
    const program = await readFile(new URL(`../../../../conformance/sdk/node/${name}.cjs`, import.meta.url), 'utf8')
    const changed = program
      .replace("const couchbase = require('couchbase')", `import * as couchbase from '${index}'`)
      .replace("const assert = require('node:assert')", "import assert from 'node:assert'")
      .replace("const { bucketName, run } = require('./steps.cjs')", "import { bucketName, run } from './steps.mjs'")
      .replace('exports.bucketName = bucketName', 'export { bucketName }')
      .replace('exports.run = ', 'export const run = ')
    assert(!/require\(|exports\./.test(changed))
    return changed
  }
  const folder = await mkdtemp(join(tmpdir(), 'nacre-js-'))
  try {
    await writeFile(join(folder, 'steps.mjs'), await ported('steps'))
    await writeFile(join(folder, 'ported.mjs'), await ported('queries'))
    const { url, user, password, bucketName } = node
    const run = promisify(execFile)(process.execPath, [join(folder, 'ported.mjs'), url, user, password, bucketName])
    const { stdout } = await run.catch((error) => assert.fail(`${error.stdout}${error.stderr}`))
    assert(stdout.split('\n').filter((line) => line.startsWith('ok ')).length >= 6)
  } finally {
    await rm(folder, { recursive: true })
  }
})
