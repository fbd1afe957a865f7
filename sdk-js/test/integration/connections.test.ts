/** TLS, certificates, mechanisms, seeds, pings and diagnostics. */

import assert from 'node:assert/strict'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import { nodesWith } from '../../src/cluster-map.js'
import * as nacre from '../../src/index.js'
import { AUTHORITY, CLIENT_CERTIFICATE, CLIENT_KEY } from './certificates.js'
import { type Node, nodeTest, unique } from './node.js'

/** Where the node's services are with TLS, its authority, and a request to its management. */
async function secured(cluster: nacre.Cluster): Promise<{ url: string; ca: string }> {
  const map = cluster.client.map!
  const [kv] = nodesWith(map, 'kvSSL')
  const { text } = await cluster.askManagement({ method: 'GET', path: '/pools/default/certificate' }, {})
  return { url: `couchbases://${kv!.host}:${kv!.port}`, ca: text }
}

async function withFiles(
  files: Record<string, string>,
  body: (path: (name: string) => string) => Promise<void>,
): Promise<void> {
  const folder = await mkdtemp(join(tmpdir(), 'nacre-js-'))
  const path = (name: string): string => join(folder, name)
  try {
    for (const [name, text] of Object.entries(files)) await writeFile(path(name), text)
    await body(path)
  } finally {
    await rm(folder, { recursive: true })
  }
}

const user = ({ user: username, password }: Node): { username: string; password: string } => ({ username, password })

nodeTest('TLS works with an authority as text and as a file', async ({ node, cluster, key }) => {
  const { url, ca } = await secured(cluster)
  await withFiles({ 'ca.pem': ca }, async (path) => {
    for (const security of [
      { trustCertificates: ca },
      { trustCertificates: [AUTHORITY, ca] },
      { trustStorePath: path('ca.pem') },
    ]) {
      await using connected = await nacre.connect(url, { ...user(node), security })
      const collection = connected.bucket(node.bucketName).defaultCollection()
      await collection.upsert(key, { a: 'x'.repeat(100_000) })
      assert.equal((await collection.get(key)).content.a.length, 100_000)
      assert((await connected.buckets().getAllBuckets()).length)
    }
    await using connected = await nacre.connect(`${url}?trust_certificate=${path('ca.pem')}`, user(node))
    assert.equal((await connected.bucket(node.bucketName).defaultCollection().exists(key)).exists, true)
  })
})

nodeTest('a node that is not trusted is refused at once', async ({ node, cluster }) => {
  const { url, ca } = await secured(cluster)
  for (const security of [{}, { trustCertificates: AUTHORITY }]) {
    await assert.rejects(nacre.connect(url, { ...user(node), security }), (error) => {
      assert(error instanceof nacre.AuthenticationFailureError, `${error}`)
      assert.match(error.message, /certificate of .* is not accepted/)
      return true
    })
  }
  for (const security of [{ trustCertificates: 'no PEM' }, { trustStorePath: '/none' }]) {
    await assert.rejects(nacre.connect(url, { ...user(node), security }), nacre.InvalidArgumentError)
  }
  // The port without TLS answers no handshake.
  const plain = node.url.replace('couchbase:', 'couchbases:')
  const options = { ...user(node), security: { trustCertificates: ca }, timeouts: { connectTimeout: 500 } }
  await assert.rejects(nacre.connect(plain, options), nacre.UnambiguousTimeoutError)
})

nodeTest('a certificate says who connects', async ({ node, cluster, key }) => {
  const { url, ca } = await secured(cluster)
  const ask = (path: string, body: string, contentType: string) =>
    cluster.askManagement({ method: 'POST', path, body, contentType }, {})
  await ask('/controller/uploadClusterCA', AUTHORITY, 'text/plain')
  const clients = (state: string) =>
    ask(
      '/settings/clientCertAuth',
      JSON.stringify({ state, prefixes: [{ path: 'subject.cn', prefix: '', delimiter: '' }] }),
      'application/json',
    )
  assert.equal((await clients('enable')).status, 202)
  try {
    await withFiles({ 'client.pem': CLIENT_CERTIFICATE, 'client.key': CLIENT_KEY }, async (path) => {
      const authenticator = new nacre.CertificateAuthenticator(path('client.pem'), path('client.key'))
      await using connected = await nacre.connect(url, { authenticator, security: { trustCertificates: ca } })
      const collection = connected.bucket(node.bucketName).defaultCollection()
      await collection.upsert(key, 1)
      assert.equal((await collection.get(key)).content, 1)
      assert((await connected.buckets().getAllBuckets()).length)
      await assert.rejects(nacre.connect(node.url, { authenticator }), nacre.InvalidArgumentError)
    })
  } finally {
    await clients('disable')
  }
})

nodeTest('every mechanism logs in', async ({ node, cluster }) => {
  const { url, ca } = await secured(cluster)
  const security = { trustCertificates: ca }
  for (const mechanism of ['SCRAM-SHA512', 'SCRAM-SHA256', 'SCRAM-SHA1', 'PLAIN']) {
    const authenticator = new nacre.PasswordAuthenticator(node.user, node.password)
    authenticator.allowed_sasl_mechanisms = [mechanism]
    for (const place of [node.url, url]) await (await nacre.connect(place, { authenticator, security })).close()
    authenticator.password = 'wrong'
    await assert.rejects(nacre.connect(node.url, { authenticator }), nacre.AuthenticationFailureError)
  }
  const authenticator = nacre.PasswordAuthenticator.ldapCompatible(node.user, node.password)
  await (await nacre.connect(url, { authenticator, security })).close()
  await assert.rejects(nacre.connect('couchbase://192.0.2.1', { authenticator }), nacre.InvalidArgumentError)
})

nodeTest('credentials are exchanged while connected', async ({ node, cluster, key }) => {
  const username = unique('user')
  const setPassword = (password: string) =>
    cluster.askManagement(
      {
        method: 'PUT',
        path: `/settings/rbac/users/local/${username}`,
        body: new URLSearchParams({ password, roles: 'admin' }).toString(),
        contentType: 'application/x-www-form-urlencoded',
      },
      {},
    )
  await setPassword('first password')
  await using other = await nacre.connect(node.url, username, 'first password')
  const collection = other.bucket(node.bucketName).defaultCollection()
  await collection.upsert(key, 1)
  await setPassword('second password')
  other.updateCredentials(new nacre.PasswordAuthenticator(username, 'second password'))
  // The server has ended the login of the old password.
  assert.equal((await collection.get(key)).content, 1)
  assert((await other.buckets().getAllBuckets()).length)
  await cluster.askManagement({ method: 'DELETE', path: `/settings/rbac/users/local/${username}` }, {})
})

nodeTest('pings and diagnostics name the endpoints', async ({ cluster, bucket }) => {
  await cluster.waitUntilReady(5000)
  await bucket.waitUntilReady(5000, { serviceTypes: [nacre.ServiceType.KeyValue, nacre.ServiceType.Query] })
  const { services, id } = await cluster.ping({ reportId: 'mine' })
  assert.equal(id, 'mine')
  for (const service of ['eventing', 'kv', 'mgmt', 'query', 'views']) assert(services[service]?.length, service)
  for (const endpoints of Object.values(services)) {
    for (const { state, latency, remote, error } of endpoints) {
      assert.equal(state, nacre.PingState.Ok, error)
      assert(latency > 0)
      assert.match(remote, /:\d+$/)
    }
  }
  const ping = await bucket.ping({ serviceTypes: [nacre.ServiceType.KeyValue] })
  assert.deepEqual(Object.keys(ping.services), ['kv'])
  assert.equal(ping.services['kv']![0]!.bucket, bucket.name)
  const report = JSON.parse(JSON.stringify(await cluster.diagnostics()))
  assert.deepEqual(
    report.services.kv.map(({ state }: { state: string }) => state),
    ['connected', 'connected'],
  )
  assert.equal(report.services.kv[1].namespace, bucket.name)
})

nodeTest('what is not there is not waited for longer than told', async ({ cluster }) => {
  const serviceTypes = [nacre.ServiceType.Analytics]
  await assert.rejects(cluster.waitUntilReady(300, { serviceTypes }), (error) => {
    assert(error instanceof nacre.UnambiguousTimeoutError)
    assert.match(error.message, /analytics/)
    return true
  })
  const bogus = ['bogus' as nacre.ServiceType]
  await assert.rejects(cluster.ping({ serviceTypes: bogus }), nacre.InvalidArgumentError)
})

nodeTest('the map is pushed when it changes', async ({ cluster }) => {
  const before = cluster.client.map!
  const name = unique('bucket')
  await cluster.buckets().createBucket({ name, bucketType: nacre.BucketType.Ephemeral, numReplicas: 0 })
  await cluster.buckets().dropBucket(name)
  const end = Date.now() + 5000
  while (cluster.client.map!.revision === before.revision) {
    assert(Date.now() < end, 'no map was pushed')
    await new Promise((resolve) => setImmediate(resolve))
  }
})
