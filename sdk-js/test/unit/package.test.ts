/** The package as others get it: its size, its metadata, its types. */

import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { mkdtemp, readFile, rm, symlink, mkdir, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'

import { FakeNode } from './fake-node.js'

const run = promisify(execFile)
const ROOT = fileURLToPath(new URL('../../../', import.meta.url))
const ENTRY_BYTES_MAX = 132_000
const WHOLE_BYTES_MAX = 200_000
const HTTP_GZIP_BYTES_MAX = 20_000

test('minified it stays under its limits', async (context) => {
  const { stdout } = await run(process.execPath, [join(ROOT, 'scripts/size.mjs')])
  const { entry, whole, http } = JSON.parse(stdout)
  const text = `${entry.minified} bytes minified, ${entry.gzip} compressed; ${whole.minified} with all parts`
  context.diagnostic(`${text}; the official package installs 126 MB`)
  assert(entry.minified <= ENTRY_BYTES_MAX)
  assert(whole.minified <= WHOLE_BYTES_MAX)
  context.diagnostic(`nacre/http: ${http.minified} bytes minified, ${http.gzip} compressed`)
  assert(http.gzip <= HTTP_GZIP_BYTES_MAX)
})

/** Imports that a file of the package makes when it is loaded. */
async function importsOf(path: string): Promise<string[]> {
  const text = await readFile(path, 'utf8')
  return [...text.matchAll(/^(?:import|export)\b[^'"`;]*?["']([^"'\n]+)["'];$/gm)].map(([, name]) => name!)
}

test('few files are loaded, and no module of TLS or HTTP', async (context) => {
  const [files, others] = [new Set([join(ROOT, 'dist/lib/index.js')]), new Set<string>()]
  for (const file of files) {
    for (const name of await importsOf(file)) {
      if (name.startsWith('./')) files.add(join(ROOT, 'dist/lib', name))
      else others.add(name)
    }
  }
  context.diagnostic(`${files.size} files, ${[...others].sort().join(', ')}`)
  assert(files.size > 1 && files.size <= 30)
  const allowed = ['crypto', 'events', 'fs', 'net', 'timers/promises', 'util'].map((name) => `node:${name}`)
  assert.deepEqual([...others].filter((name) => !allowed.includes(name)), [])
})

test('the published files are the package that is tested', async () => {
  const published = await import(new URL('../../lib/index.js', import.meta.url).href)
  const web = await import(new URL('../../lib/web.js', import.meta.url).href)
  assert.deepEqual(Object.keys(published), Object.keys(await import('../../src/index.js')))
  assert.deepEqual(Object.keys(web), Object.keys(await import('../../src/web.js')))
  const sync = await import(new URL('../../lib/device-sync.js', import.meta.url).href)
  assert.deepEqual(Object.keys(sync), Object.keys(await import('../../src/device-sync.js')))
  // A program that syncs catches the errors of the package.
  const refused = sync.DeviceSync.start({}, {})
  await assert.rejects(refused, published.InvalidArgumentError)
  // A program may use both.
  assert.equal(web.DocumentNotFoundError, published.DocumentNotFoundError)
  await using node = await FakeNode.start()
  await using cluster = await published.connect(node.url, { username: 'user', password: 'password' })
  const collection = cluster.bucket('default').defaultCollection()
  node.on.set(0x00, () => [1, Buffer.alloc(0), Buffer.alloc(0)])
  await assert.rejects(collection.get('key'), published.DocumentNotFoundError)
  // These are in files that are loaded now.
  const { errors } = await collection.getMulti(['key'])
  assert(errors.get('key') instanceof published.DocumentNotFoundError)
  await assert.rejects(collection.upsert('key', 1, { durabilityPersistTo: 2 }), published.DurabilityImpossibleError)
  await assert.rejects(published.connect('nacre://relative'), published.InvalidArgumentError)
})

test('its metadata is without fault', async () => {
  const { stdout } = await run(process.execPath, [
    join(ROOT, 'node_modules/publint/src/cli.js'),
    '--strict',
    '--pack',
    'false',
    ROOT,
  ])
  assert.match(stdout, /All good/)
})

const CONSUMER = `
import { type Change, connect, DurabilityLevel, LookupInSpec, type MutationResult, type QueryResult } from 'nacre'

interface Order { total: number }

export async function main(): Promise<void> {
  await using cluster = await connect('couchbase://127.0.0.1', { username: 'u', password: 'p', timeouts: { kvTimeout: 1 } })
  const collection = cluster.bucket('b').scope('s').collection('c')
  const { content, cas } = await collection.get<Order>('k')
  const total: number = content.total
  const result: MutationResult = await collection.replace('k', { total }, { cas, durabilityLevel: DurabilityLevel.Majority })
  const whole: QueryResult<Order> = await cluster.query<Order>('SELECT 1', { parameters: [result.cas.toString()] })
  for await (const row of cluster.query<Order>('SELECT 1')) row.total.toFixed()
  for await (const change of collection.changes<Order>({ since: 0 })) {
    const known: Change<Order> = change
    known.content?.total.toFixed()
  }
  const entries = (await collection.lookupIn('k', [LookupInSpec.get('a')])).content
  // @ts-expect-error: there is no such option.
  await collection.get('k', { bogus: entries.length + whole.rows.length })
  // @ts-expect-error: the content is an Order.
  content.none
}
`

test('a consumer with strict types compiles', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'nacre-js-'))
  try {
    await mkdir(join(folder, 'node_modules/@types'), { recursive: true })
    await symlink(ROOT, join(folder, 'node_modules/nacre'))
    await symlink(join(ROOT, 'node_modules/@types/node'), join(folder, 'node_modules/@types/node'))
    await symlink(join(ROOT, 'node_modules/undici-types'), join(folder, 'node_modules/undici-types'))
    await writeFile(join(folder, 'package.json'), '{"type": "module"}')
    await writeFile(join(folder, 'main.ts'), CONSUMER)
    for (const more of [[], ['--exactOptionalPropertyTypes', '--noUncheckedIndexedAccess']]) {
      const options = [
        '--strict',
        '--noEmit',
        '--target',
        'es2022',
        '--module',
        'nodenext',
        '--lib',
        'es2023,esnext.disposable',
        '--types',
        'node',
        '--skipLibCheck',
        'false',
      ]
      const compiling = run(join(ROOT, 'node_modules/.bin/tsc'), [...options, ...more, 'main.ts'], { cwd: folder })
      await compiling.catch((error) => assert.fail(error.stdout))
    }
  } finally {
    await rm(folder, { recursive: true })
  }
})
