/** Servers that lie about lengths, push garbage, offer other mechanisms or stop in the middle: a named error, and no more. */

import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createServer, type Socket } from 'node:net'
import { test } from 'node:test'
import { setImmediate as turn } from 'node:timers/promises'

import { parseClusterMap } from '../../src/cluster-map.js'
import { parseConnectionString, resolveSeeds } from '../../src/connection-string.js'
import * as nacre from '../../src/index.js'
import { FakeNode } from './fake-node.js'

const NONE = Buffer.alloc(0)
const FOUND: [number, Buffer, Buffer] = [0, Buffer.from('02000000', 'hex'), Buffer.from('"v"')]
const SHORT = { timeouts: { connectTimeout: 300 } }

/** A server that sends these bytes to each client. */
async function saying(bytes: Buffer, body: (url: string) => Promise<void>): Promise<void> {
  const sockets = new Set<Socket>()
  const server = createServer((socket) => {
    sockets.add(socket)
    socket.on('error', () => {})
    socket.write(bytes)
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  try {
    await body(`couchbase://127.0.0.1:${(server.address() as { port: number }).port}`)
  } finally {
    for (const socket of sockets) socket.destroy()
    server.close()
  }
}

function header(magic: number, bodyBytes: number, keyBytes = 0): Buffer {
  const frame = Buffer.alloc(24)
  frame[0] = magic
  frame.writeUInt16BE(keyBytes, 2)
  frame.writeUInt32BE(bodyBytes, 8)
  return frame
}

test('lengths beyond any limit end the connection, with the reason', async () => {
  const contradicting = Buffer.concat([header(0x81, 3, 9), Buffer.alloc(3)])
  for (const bytes of [header(0x81, 0xffffffff), header(0x82, 0x7fffffff), contradicting, Buffer.alloc(24, 0xff)]) {
    await saying(bytes, async (url) => {
      await assert.rejects(nacre.connect(url, { username: 'u', password: 'p', ...SHORT }), (error) => {
        assert(error instanceof nacre.UnambiguousTimeoutError)
        assert.match(error.message, /the answer cannot be read/)
        return true
      })
    })
  }
})

test('a server that stops in the middle of a frame is not waited for', async () => {
  await saying(header(0x81, 1_000_000), async (url) => {
    await assert.rejects(nacre.connect(url, { username: 'u', password: 'p', ...SHORT }), nacre.UnambiguousTimeoutError)
  })
})

test('pushed garbage changes nothing, and a pushed map is taken', async () => {
  await using node = await FakeNode.start()
  await using other = await FakeNode.start()
  node.on.set(0x00, () => FOUND)
  other.on.set(0x00, () => [0, FOUND[1], Buffer.from('"moved"')])
  await using cluster = await nacre.connect(node.url, 'user', 'password')
  const collection = cluster.bucket('b').defaultCollection()
  await collection.get('k')
  const push = (map: Buffer): void => {
    const key = Buffer.from('b')
    for (const socket of node.sockets) {
      socket.write(Buffer.concat([header(0x82, key.length + map.length, key.length).fill(1, 1, 2), key, map]))
    }
  }
  for (const garbage of ['', '{', '[]', 'null', '{"rev":"x"}', JSON.stringify({ rev: 99, nodesExt: [] })])
    push(Buffer.from(garbage))
  assert.equal((await collection.get('k')).content, 'v')
  node.rev = 3
  push(node.config(other.port))
  while (cluster.bucket('b').client.map!.revision !== 3) await turn()
  assert.equal((await collection.get('k')).content, 'moved')
  assert.equal(node.count(0x07), 0)
})

test('the next mechanism that the server offers is used, never one that shows the password', async () => {
  await using node = await FakeNode.start()
  const tried: string[] = []
  for (const [offered, expected] of [
    ['PLAIN', ['SCRAM-SHA512']],
    ['', ['SCRAM-SHA512']],
    ['SCRAM-SHA1 SCRAM-SHA256', ['SCRAM-SHA512', 'SCRAM-SHA256']],
  ] as const) {
    tried.length = 0
    node.on.set(0x20, () => [0, NONE, Buffer.from(offered)])
    node.on.set(0x21, ({ key }) => (tried.push(key.toString()), [0x20, NONE, NONE]))
    await assert.rejects(nacre.connect(node.url, 'user', 'password'), nacre.AuthenticationFailureError)
    assert.deepEqual(tried, expected)
  }
})

test('a login that has ended is made anew', async () => {
  await using node = await FakeNode.start()
  node.on.set(0x00, () => FOUND)
  await using cluster = await nacre.connect(node.url, 'user', 'password')
  const collection = cluster.bucket('b').defaultCollection()
  let stale = 1
  node.on.set(0x00, () => (stale-- > 0 ? [0x1f, NONE, NONE] : FOUND))
  node.on.set(0x01, () => (stale++ === -1 ? [0x1f, NONE, NONE] : [0, NONE, NONE]))
  assert.equal((await collection.get('k')).content, 'v')
  await collection.upsert('k', 1)
  assert.equal(node.count(0x01), 2)
})

const MAP = {
  rev: 1,
  nodesExt: [
    {
      hostname: 'inner',
      services: { kv: 11210, kvSSL: 11207, n1qlSSL: 18093, eventingSSL: 18096, mgmt: 8091 },
      alternateAddresses: { external: { hostname: 'outer', ports: { kv: 31210, kvSSL: 31207 } } },
    },
  ],
  vBucketServerMap: { serverList: ['inner:11210'], vBucketMap: [[0]] },
}

test('a map has the ports with TLS, and the addresses for clients elsewhere', () => {
  const text = Buffer.from(JSON.stringify(MAP))
  const tls = parseClusterMap(text, 'inner', { tls: true })
  assert.deepEqual(tls.kv, [{ host: 'inner', port: 11207 }])
  assert.deepEqual(
    tls.services.map(([name]) => name),
    ['kv', 'n1ql', 'eventingAdminPort'],
  )
  assert.deepEqual(parseClusterMap(text, 'outer').kv, [{ host: 'outer', port: 31210 }])
  assert.deepEqual(parseClusterMap(text, 'outer', { tls: true }).kv, [{ host: 'outer', port: 31207 }])
  assert.deepEqual(parseClusterMap(text, 'x').kv, [{ host: 'inner', port: 11210 }])
  assert.deepEqual(parseClusterMap(text, 'x', { network: 'external' }).kv, [{ host: 'outer', port: 31210 }])
  assert.deepEqual(parseClusterMap(text, 'outer', { network: 'default' }).kv, [{ host: 'inner', port: 11210 }])
})

test('addresses with TLS have a port of their own, and names in DNS fall back on hosts', async () => {
  const place = parseConnectionString('couchbases://db.example.invalid')
  assert.deepEqual(place.seeds, [{ host: 'db.example.invalid', port: 11207 }])
  assert.deepEqual(await resolveSeeds(place, 200), place.seeds)
  assert.equal(parseConnectionString('couchbase://a:1').name, undefined)
  const options = { username: 'u', password: 'p' }
  for (const text of ['couchbase://127.0.0.1?bogus=1', 'couchbase://127.0.0.1?network=bogus']) {
    await assert.rejects(nacre.connect(text, options), nacre.InvalidArgumentError)
  }
})

test('what connects has to be complete', async () => {
  const token = { authenticator: { token: 'x' } as any }
  await assert.rejects(nacre.connect('couchbases://127.0.0.1', token), nacre.FeatureNotAvailableError)
  await assert.rejects(
    nacre.connect('couchbase://127.0.0.1', { configProfile: 'bogus', username: 'u', password: 'p' }),
    nacre.InvalidArgumentError,
  )
  const none = new nacre.CertificateAuthenticator('/none', '/none')
  await assert.rejects(nacre.connect('couchbases://127.0.0.1', { authenticator: none }), nacre.InvalidArgumentError)
})
