/**
 * A device in step with a node: the guides, conflicts, and refusals. Needs the addon (NACRE_ADDON) and a node's program
 * (NACRE_TEST_BINARY).
 */

import assert from 'node:assert/strict'
import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdir, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'

import { DeviceSync, type DeviceSyncEvent, type DeviceSyncOptions } from '../../src/device-sync.js'
import {
  type Cluster,
  type Collection,
  connect,
  CouchbaseError,
  InvalidArgumentError,
  UnambiguousTimeoutError,
} from '../../src/index.js'

const run = promisify(execFile)
const ROOT = fileURLToPath(new URL('../../../', import.meta.url))
const [USER, PASSWORD] = ['Administrator', 'password']
/** Ports of a node, from its base. */
const PORTS = 18
const PATIENCE_MS = 60_000
const PAUSE_MS = 20

let folder: string
let address: string
let kv: string
let end: () => Promise<void>

/** Repeats a check until it holds. */
async function until(what: string, check: () => boolean | Promise<boolean>): Promise<void> {
  const limit = performance.now() + PATIENCE_MS
  while (!(await check())) {
    if (performance.now() > limit) throw new Error(`not in time: ${what}`)
    await new Promise((resolve) => setTimeout(resolve, PAUSE_MS))
  }
}

function isFree(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const server = createServer()
    server.once('error', () => resolve(false))
    server.listen(port, '127.0.0.1', () => server.close(() => resolve(true)))
  })
}

async function freePorts(): Promise<number> {
  for (;;) {
    const base = 15_000 + PORTS * Math.floor(Math.random() * 900)
    const ports = Array.from({ length: PORTS }, (_, index) => isFree(base + index))
    if ((await Promise.all(ports)).every(Boolean)) return base
  }
}

/** The blocks of a guide in a language, each with the block after it. */
async function blocks(page: string, language: string): Promise<[string, string][]> {
  const text = await readFile(join(ROOT, '../docs/guides', page), 'utf8')
  const all = [...text.matchAll(/^```(\w*)[^\n]*\n(.*?)^```/gms)]
  const found: [string, string][] = []
  for (const [index, [, name, body]] of all.entries()) {
    if (name === language) found.push([body!, all[index + 1]?.[2] ?? ''])
  }
  return found
}

/** Runs a program that imports this package by its name. */
async function program(code: string, ...values: string[]): Promise<string> {
  const place = join(folder, 'program')
  await mkdir(join(place, 'node_modules'), { recursive: true })
  await symlink(ROOT, join(place, 'node_modules/nacre')).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== 'EEXIST') throw error
  })
  await writeFile(join(place, 'main.mjs'), code)
  return (await run(process.execPath, [join(place, 'main.mjs'), ...values])).stdout
}

before(async () => {
  const { NACRE_TEST_BINARY: binary } = process.env
  if (!binary) throw new Error('set NACRE_TEST_BINARY to the program nacre, with which the test starts a node')
  folder = await mkdtemp(join(tmpdir(), 'nacre-devices-'))
  const base = await freePorts()
  address = `127.0.0.1:${base}`
  kv = `couchbase://127.0.0.1:${base + 10}`
  const options = ['--data-dir', join(folder, 'node'), '--port-base', `${base}`, '--user', USER, '--password', PASSWORD]
  const node = spawn(binary, ['serve', ...options, '--buckets', 'default'], { stdio: 'ignore' })
  const ended = once(node, 'exit')
  end = async () => {
    node.kill()
    await ended
    await rm(folder, { recursive: true })
  }
  const authorization = `Basic ${Buffer.from(`${USER}:${PASSWORD}`).toString('base64')}`
  await until('the node answers', () => {
    assert.equal(node.exitCode, null, 'the node has ended')
    return fetch(`http://${address}/pools/default`, { headers: { authorization } }).then(
      ({ ok }) => ok,
      () => false,
    )
  })
  const [setup] = await blocks('sync-devices.md', 'sh')
  const { stdout } = await run('sh', ['-ec', setup![0].replaceAll('127.0.0.1:8091', address)])
  assert.doesNotMatch(stdout, /error/i)
})
after(() => end?.())

const settings = (): DeviceSyncOptions => ({
  url: `http://${address}/default`,
  username: 'devices',
  password: 'secret',
  collections: ['shop.orders'],
})

/** The documents of a device. */
const ordersOf = (cluster: Cluster): Collection => cluster.bucket('default').scope('shop').collection('orders')

/** Brings a device in step; returns the conflicts and parked versions that sync has reported. */
async function bringInStep(device: Cluster): Promise<DeviceSyncEvent[]> {
  await using sync = await DeviceSync.start(device, settings())
  const events: DeviceSyncEvent[] = []
  const reading = (async () => {
    for await (const event of sync.events()) {
      if (event.event === 'conflict' || event.event === 'parked') events.push(event)
    }
  })()
  await sync.waitInStep()
  const { state, conflicts, parked } = sync.status()
  assert.equal(state, 'live')
  await until('all events are read', () => events.length === conflicts + parked)
  await sync.stop()
  await reading
  return events
}

test('the guide to embedding runs', async () => {
  const [[code]] = (await blocks('embed.md', 'js')) as [[string, string]]
  assert.equal(await program(code, join(folder, 'shop')), "{ customer: 'ann', total: 30 }\n")
})

test('the guide to sync runs', async () => {
  const [[code, printed]] = (await blocks('sync-devices.md', 'js')) as [[string, string]]
  assert.equal(await program(code, join(folder, 'guide'), settings().url), printed)
})

test('offline edits of two devices and the hub end equal, and the loser of a conflict is reported', async () => {
  await using one = await connect(`nacre://${join(folder, 'one')}`)
  await using other = await connect(`nacre://${join(folder, 'other')}`)
  await using hub = await connect(kv, USER, PASSWORD)
  await bringInStep(one)
  await bringInStep(other)
  const places = [one, other, hub].map(ordersOf)
  const [here, there, docs] = places as [Collection, Collection, Collection]
  await here.upsert('o', { by: 'nobody' })
  await bringInStep(one)
  await bringInStep(other)

  await here.upsert('o', { by: 'one' })
  await there.upsert('o', { by: 'other' })
  await there.upsert('only', { by: 'other' })
  await docs.upsert('of-hub', { by: 'hub' })
  const events: DeviceSyncEvent[] = []
  for (const device of [one, other, one]) events.push(...(await bringInStep(device)))
  assert.deepEqual(events.map(({ event }) => event).sort(), ['conflict', 'parked'])
  for (const key of ['o', 'only', 'of-hub']) {
    const expected = await docs.get(key)
    for (const device of [here, there]) {
      const found = await device.get(key)
      assert.deepEqual([found.content, found.cas], [expected.content, expected.cas], key)
    }
  }
})

test('sync without a hub waits, and the database works meanwhile', async () => {
  await using cluster = await connect(`nacre://${join(folder, 'away')}`)
  await using sync = await DeviceSync.start(cluster, { ...settings(), url: 'http://127.0.0.1:1/default' })
  await ordersOf(cluster).upsert('o', 1)
  await assert.rejects(sync.waitInStep({ timeout: 50 }), UnambiguousTimeoutError)
  assert.match(sync.status().state, /^(offline|connecting)$/)
  sync.retryNow()
  await assert.rejects(DeviceSync.start(cluster, settings()), /sync runs already/)
  await sync.stop()
  assert.throws(() => sync.status(), InvalidArgumentError)
})

test('a wrong password and options that cannot be are refused by name', async () => {
  await using cluster = await connect(`nacre://${join(folder, 'wrong')}`)
  await using sync = await DeviceSync.start(cluster, { ...settings(), password: 'wrong' })
  await assert.rejects(sync.waitInStep(), (error) => error instanceof CouchbaseError && /password/.test(error.message))
  assert.equal(sync.status().state, 'stopped')
  await sync.stop()
  for (const wrong of [{ conflicts: 'mine' }, { collections: [] }, { url: 'ftp://h/b' }, { speed: 1 }]) {
    const options = { ...settings(), ...wrong } as DeviceSyncOptions
    await assert.rejects(DeviceSync.start(cluster, options), InvalidArgumentError, JSON.stringify(wrong))
  }
  await using hub = await connect(kv, USER, PASSWORD)
  await assert.rejects(DeviceSync.start(hub, settings()), /sync needs a database/)
})
