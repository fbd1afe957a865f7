/** Nodes whose certificates are out of date, of another name or by a stranger. */

import assert from 'node:assert/strict'
import { once } from 'node:events'
import { type AddressInfo, connect, type Socket } from 'node:net'
import { test } from 'node:test'
import { createServer } from 'node:tls'

import * as nacre from '../../src/index.js'
import { FakeNode } from './fake-node.js'
import { AUTHORITY, EARLY, EXPIRED, GOOD, NODE_KEY, OTHER_NAME } from './own-certificates.js'

/** Runs with a node behind a port with TLS. */
async function withTls(cert: string, body: (url: string, node: FakeNode) => Promise<void>): Promise<void> {
  await using node = await FakeNode.start()
  const sockets = new Set<Socket>()
  const server = createServer({ key: NODE_KEY, cert }, (socket) => {
    const inner = connect(node.port, '127.0.0.1')
    for (const each of [socket, inner]) {
      sockets.add(each)
      each.on('error', () => {})
    }
    socket.pipe(inner).pipe(socket)
  })
  server.on('tlsClientError', (_, socket) => socket.destroy())
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  node.services = { kvSSL: port }
  try {
    await body(`couchbases://127.0.0.1:${port}`, node)
  } finally {
    for (const socket of sockets) socket.destroy()
    server.close()
    await once(server, 'close')
  }
}

const user = { username: 'user', password: 'password', timeouts: { connectTimeout: 60_000 } }
const security = { trustCertificates: AUTHORITY }

test('a good certificate is accepted', () =>
  withTls(GOOD, async (url, node) => {
    node.on.set(0x00, () => [0, Buffer.from('02000000', 'hex'), Buffer.from('"v"')])
    await using cluster = await nacre.connect(url, { ...user, security })
    assert.equal((await cluster.bucket('b').defaultCollection().get('k')).content, 'v')
  }))

for (const [name, certificate, reason] of [
  ['expired', EXPIRED, /certificate has expired/],
  ['not yet valid', EARLY, /certificate is not yet valid/],
  ['of another name', OTHER_NAME, /does not match certificate/],
] as const) {
  test(`a certificate that is ${name} is refused at once, with the reason`, () =>
    withTls(certificate, async (url, node) => {
      const began = performance.now()
      await assert.rejects(nacre.connect(url, { ...user, security }), (error) => {
        assert(error instanceof nacre.AuthenticationFailureError, `${error}`)
        assert.match(error.message, reason)
        return true
      })
      assert(performance.now() - began < 30_000)
      // Neither a password nor a name crossed the connection.
      assert.deepEqual(node.asked, [])
    }))
}

test('a certificate of a stranger is refused', () =>
  withTls(GOOD, async (url) => {
    await assert.rejects(nacre.connect(url, user), nacre.AuthenticationFailureError)
  }))
