/** Analytics: what is asked of the service, and what its answers mean. */

import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createServer, type IncomingHttpHeaders } from 'node:http'
import type { AddressInfo } from 'node:net'
import { test } from 'node:test'

import * as nacre from '../../src/index.js'
import { FakeNode } from './fake-node.js'

interface Asked {
  /** Method and path. */
  line: string
  body: string
  headers: IncomingHttpHeaders
}

type Link = Parameters<nacre.AnalyticsIndexManager['createLink']>[0]
type Reply = [number, unknown]

const METRICS = {
  elapsedTime: '1.5s',
  executionTime: '12.25ms',
  resultCount: 2,
  resultSize: 20,
  processedObjects: 300,
  warningCount: 1,
}
const ANSWER = {
  requestID: 'r',
  clientContextID: 'c',
  signature: { '*': '*' },
  results: [{ n: 1 }, { n: 2 }],
  warnings: [{ code: 24061, msg: 'so so' }],
  status: 'success',
  metrics: METRICS,
}
const DONE = { status: 'success' }
const FORM = 'application/x-www-form-urlencoded'

/** A service that gives the next of `replies`, and the last one again and again. */
class Service {
  readonly asked: Asked[] = []
  replies: Reply[] = [[200, ANSWER]]

  /** The members of the last statement, without those that differ each time. */
  sent(): Record<string, unknown> {
    const { line, body } = this.asked.at(-1)!
    assert.equal(line, 'POST /query/service')
    const { client_context_id: id, timeout, ...members } = JSON.parse(body)
    assert(id)
    assert.match(timeout, /^\d+ms$/)
    return members
  }
}

async function withAnalytics(
  body: (cluster: nacre.Cluster, service: Service) => Promise<void>,
  options: nacre.ConnectOptions = {},
): Promise<void> {
  const service = new Service()
  const server = createServer(async (request, response) => {
    let text = ''
    for await (const part of request) text += part
    service.asked.push({ line: `${request.method} ${request.url}`, body: text, headers: request.headers })
    const { replies } = service
    const [status, answer] = replies.length > 1 ? replies.shift()! : replies[0]!
    response.statusCode = status
    response.end(typeof answer === 'string' ? answer : JSON.stringify(answer))
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  try {
    await using node = await FakeNode.start()
    node.neighbours = [{ cbas: (server.address() as AddressInfo).port }]
    await using cluster = await nacre.connect(node.url, { username: 'user', password: 'password', ...options })
    await body(cluster, service)
  } finally {
    server.close()
    server.closeAllConnections()
  }
}

function failure(code: number, more: object = {}): object {
  return { errors: [{ code, msg: `for ${code}`, ...more }], status: 'fatal' }
}

test('rows come with metadata, at once or one by one', () =>
  withAnalytics(async (cluster, service) => {
    const { rows, meta } = await cluster.analyticsQuery<{ n: number }>('SELECT 1')
    assert.deepEqual(rows, [{ n: 1 }, { n: 2 }])
    assert.deepEqual(service.sent(), { statement: 'SELECT 1' })
    assert.equal(service.asked[0]!.headers['analytics-priority'], undefined)
    assert.deepEqual(meta, {
      requestId: 'r',
      clientContextId: 'c',
      status: nacre.AnalyticsStatus.Success,
      signature: { '*': '*' },
      warnings: [{ code: 24061, message: 'so so' }],
      metrics: { ...METRICS, elapsedTime: 1500, executionTime: 12.25, errorCount: 0 },
    })
    const seen = []
    for await (const { n } of cluster.analyticsQuery<{ n: number }>('SELECT 1')) seen.push(n)
    assert.deepEqual(seen, [1, 2])
  }))

test('options are members of the request', () =>
  withAnalytics(async (cluster, service) => {
    await cluster.analyticsQuery('SELECT 1', {
      parameters: [1, undefined, 'a'],
      scanConsistency: nacre.AnalyticsScanConsistency.RequestPlus,
      clientContextId: 'mine',
      priority: true,
      readOnly: true,
      queryContext: 'default:`a`.`b`',
      raw: { 'max-warnings': 5, timeout: '1s' },
    })
    const [{ body, headers }] = service.asked as [Asked]
    assert.deepEqual(JSON.parse(body), {
      statement: 'SELECT 1',
      client_context_id: 'mine',
      scan_consistency: 'request_plus',
      readonly: true,
      query_context: 'default:`a`.`b`',
      args: [1, null, 'a'],
      'max-warnings': 5,
      timeout: '1s',
    })
    assert.equal(headers['analytics-priority'], '-1')
    await cluster.bucket('b').scope('s`s').analyticsQuery('SELECT 1', { parameters: { x: 1, $y: 2 } })
    assert.deepEqual(service.sent(), { statement: 'SELECT 1', query_context: 'default:`b`.`s``s`', $x: 1, $y: 2 })
  }))

test('a statement that nobody awaits is sent', () =>
  withAnalytics(async (cluster, service) => {
    const query = cluster.analyticsQuery('CREATE …')
    await once(query as any, 'end')
    assert.equal(service.asked.length, 1)
  }))

test('errors have the classes of their codes', async () => {
  const cases: [number, typeof nacre.CouchbaseError][] = [
    [20001, nacre.AuthenticationFailureError],
    [21002, nacre.UnambiguousTimeoutError],
    [21007, nacre.RequestCanceledError],
    [21010, nacre.InvalidArgumentError],
    [22001, nacre.CouchbaseError],
    [23008, nacre.CouchbaseError],
    [24000, nacre.CompilationFailureError],
    [24006, nacre.LinkNotFoundError],
    [24025, nacre.DatasetNotFoundError],
    [24034, nacre.DataverseNotFoundError],
    [24039, nacre.DataverseExistsError],
    [24040, nacre.DatasetExistsError],
    [24044, nacre.DatasetNotFoundError],
    [24045, nacre.DatasetNotFoundError],
    [24047, nacre.IndexNotFoundError],
    [24048, nacre.IndexExistsError],
    [24055, nacre.LinkExistsError],
    [24122, nacre.CompilationFailureError],
    [25000, nacre.InternalServerFailureError],
  ]
  await withAnalytics(async (cluster, service) => {
    for (const [code, Kind] of cases) {
      // Errors may follow rows, and then have the status 200.
      const replies: Reply[] = [[400, failure(code)], [200, failure(code)], [200, { results: [1], ...failure(code) }]]
      for (const reply of replies) {
        service.replies = [reply]
        await assert.rejects(
          () => cluster.analyticsQuery('SELECT 1', { clientContextId: 'i' }).then(),
          (error: nacre.CouchbaseError) => {
            assert.equal(error.constructor, Kind, `${code}: ${error}`)
            const { errorCode, errorMessage, statement, clientContextId } = error.context
            assert.deepEqual([errorCode, errorMessage], [code, `for ${code}`])
            assert.deepEqual([statement, clientContextId], ['SELECT 1', 'i'])
            return true
          },
        )
      }
    }
    assert.equal(service.asked.length, 3 * cases.length)
  })
})

test('an answer without errors that is no success fails', () =>
  withAnalytics(async (cluster, service) => {
    const cases: [Reply, typeof nacre.CouchbaseError][] = [
      [[200, { status: 'timeout' }], nacre.UnambiguousTimeoutError],
      [[200, { status: 'fatal' }], nacre.CouchbaseError],
      [[200, '{"results": [1'], nacre.DecodingFailureError],
      [[401, ''], nacre.AuthenticationFailureError],
      [[404, 'no such path'], nacre.InternalServerFailureError],
      [[500, { errors: [] }], nacre.InternalServerFailureError],
      [[500, { errors: null }], nacre.InternalServerFailureError],
      [[500, 'null'], nacre.InternalServerFailureError],
    ]
    for (const [reply, Kind] of cases) {
      service.replies = [reply]
      await assert.rejects(
        () => cluster.analyticsQuery('SELECT 1').then(),
        (error: Error) => error.constructor === Kind,
      )
    }
  }))

test('a service that is starting or full is asked again', () =>
  withAnalytics(async (cluster, service) => {
    for (const [code, more] of [[23000, {}], [23003, {}], [23007, {}], [24999, { retriable: true }]] as const) {
      const refused: Reply = [503, failure(code, more)]
      service.replies = [refused, refused, [200, ANSWER]]
      service.asked.length = 0
      const { rows } = await cluster.analyticsQuery('CREATE …')
      assert.deepEqual([rows.length, service.asked.length], [2, 3])
    }
  }))

test('a service that stays so is named soon', () =>
  withAnalytics(async (cluster, service) => {
    for (const [code, Kind] of [[23000, nacre.TemporaryFailureError], [23007, nacre.JobQueueFullError]] as const) {
      service.replies = [[503, failure(code)]]
      service.asked.length = 0
      await assert.rejects(
        () => cluster.analyticsQuery('SELECT 1').then(),
        (error: nacre.CouchbaseError) => error instanceof Kind && error.context.retryAttempts === 10,
      )
      assert.equal(service.asked.length, 11)
    }
    // The last answer says more than the end of the time.
    await assert.rejects(() => cluster.analyticsQuery('SELECT 1', { timeout: 800 }).then(), nacre.JobQueueFullError)
    // A request with rows may have had an effect.
    service.replies = [[200, { results: [1], ...failure(23000) }]]
    service.asked.length = 0
    await assert.rejects(() => cluster.analyticsQuery('SELECT 1').then(), nacre.TemporaryFailureError)
    assert.equal(service.asked.length, 1)
  }))

test('without the service the error says so', async () => {
  await using node = await FakeNode.start()
  await using cluster = await nacre.connect(node.url, 'user', 'password')
  const scope = cluster.bucket('b').defaultScope()
  const manager = cluster.analyticsIndexes()
  for (const ask of [
    () => cluster.analyticsQuery('SELECT 1').then(),
    () => scope.analyticsQuery('SELECT 1').then(),
    () => manager.getAllDatasets(),
    () => manager.getAllLinks(),
  ]) {
    await assert.rejects(ask, nacre.ServiceNotAvailableError)
  }
})

test('operations are watched', async () => {
  const spans: { name: string; parent: string | undefined; attributes: Record<string, unknown> }[] = []
  const tracer: nacre.RequestTracer = {
    requestSpan: (name, parent) => {
      const span = { name, parent: parent?.name, attributes: {} as Record<string, unknown> }
      spans.push(span)
      return { name, setAttribute: (key, value) => (span.attributes[key] = value), end: () => {} }
    },
  }
  await withAnalytics(
    async (cluster, service) => {
      // The span of connecting.
      spans.length = 0
      await cluster.analyticsQuery('SELECT 1')
      service.replies = [[200, []]]
      await cluster.analyticsIndexes().getAllLinks({ dataverse: 'b/s', name: 'l' })
    },
    { tracer },
  )
  const names = spans.map(({ name, parent }) => [name, parent])
  assert.deepEqual(names, [
    ['analytics_query', undefined],
    ['dispatch_to_server', 'analytics_query'],
    ['GET /analytics/link/{name}/{name}', undefined],
    ['dispatch_to_server', 'GET /analytics/link/{name}/{name}'],
  ])
  assert.equal(spans[0]!.attributes['couchbase.service'], 'analytics')
  assert.equal(spans[2]!.attributes['couchbase.service'], 'analytics')
})

test('definitions are statements', () =>
  withAnalytics(async (cluster, service) => {
    service.replies = [[200, DONE]]
    const manager = cluster.analyticsIndexes()
    const inDataverse = { dataverseName: 'b/s', ignoreIfExists: true }
    const ignoring = { dataverseName: 'd', ignoreIfNotExists: true }
    const cases: [() => Promise<void>, string][] = [
      [() => manager.createDataverse('d'), 'CREATE DATAVERSE `d`'],
      [
        () => manager.createDataverse('b/s', { ignoreIfExists: true }),
        'CREATE DATAVERSE `b`.`s` IF NOT EXISTS',
      ],
      [() => manager.dropDataverse('d`'), 'DROP DATAVERSE `d```'],
      [() => manager.dropDataverse('d', { ignoreIfNotExists: true }), 'DROP DATAVERSE `d` IF EXISTS'],
      [() => manager.createDataset('b', 's'), 'CREATE DATASET `Default`.`s` ON `b`'],
      [
        () => manager.createDataset('b', 's', { ...inDataverse, condition: 'a = 1' }),
        'CREATE DATASET IF NOT EXISTS `b`.`s`.`s` ON `b` WHERE a = 1',
      ],
      [() => manager.dropDataset('s'), 'DROP DATASET `Default`.`s`'],
      [() => manager.dropDataset('s', ignoring), 'DROP DATASET `d`.`s` IF EXISTS'],
      [() => manager.createIndex('s', 'i', { 'a.b': 'string' }), 'CREATE INDEX `i` ON `Default`.`s` (a.b:string)'],
      [
        () => manager.createIndex('s', 'i', { a: 'string', n: 'double' }, inDataverse),
        'CREATE INDEX `i` IF NOT EXISTS ON `b`.`s`.`s` (a:string,n:double)',
      ],
      [() => manager.dropIndex('s', 'i'), 'DROP INDEX `Default`.`s`.`i`'],
      [() => manager.dropIndex('s', 'i', ignoring), 'DROP INDEX `d`.`s`.`i` IF EXISTS'],
      [() => manager.connectLink(), 'CONNECT LINK `Default`.`Local`'],
      [
        () => manager.connectLink({ dataverseName: 'b/s', linkName: 'l', force: true }),
        'CONNECT LINK `b`.`s`.`l` WITH {"force": true}',
      ],
      [() => manager.connectLink('`d`.l', { force: true }), 'CONNECT LINK `d`.l WITH {"force": true}'],
      [() => manager.disconnectLink(), 'DISCONNECT LINK `Default`.`Local`'],
      [() => manager.disconnectLink({ dataverseName: 'd', linkName: 'l' }), 'DISCONNECT LINK `d`.`l`'],
      [() => manager.disconnectLink('l'), 'DISCONNECT LINK l'],
    ]
    for (const [ask, statement] of cases) {
      await ask()
      assert.deepEqual(service.sent(), { statement })
    }
  }))

test('the catalog is read', () =>
  withAnalytics(async (cluster, service) => {
    const manager = cluster.analyticsIndexes()
    const row = { DatasetName: 's', DataverseName: 'b/s', LinkName: 'Local', BucketName: 'b' }
    service.replies = [[200, { results: [row], ...DONE }]]
    const dataset = { name: 's', dataverseName: 'b/s', linkName: 'Local', bucketName: 'b' }
    assert.deepEqual(await manager.getAllDatasets(), [dataset])
    assert.equal(service.sent()['readonly'], true)
    service.replies = [[200, { results: [{ ...row, IndexName: 'i', IsPrimary: false }], ...DONE }]]
    const index = { name: 'i', datasetName: 's', dataverseName: 'b/s', isPrimary: false }
    assert.deepEqual(await manager.getAllIndexes(), [index])
    for (const wrong of [null, 1, {}, { ...row, BucketName: 1 }]) {
      service.replies = [[200, { results: [wrong], ...DONE }]]
      await assert.rejects(manager.getAllDatasets(), nacre.DecodingFailureError)
    }
  }))

test('pending mutations are read', () =>
  withAnalytics(async (cluster, service) => {
    const manager = cluster.analyticsIndexes()
    const pending = { Default: { s: 3 }, 'b/s': { c: 12, d: 0 } }
    service.replies = [[200, pending]]
    assert.deepEqual(await manager.getPendingMutations(), pending)
    assert.equal(service.asked[0]!.line, 'GET /analytics/node/agg/stats/remaining')
    for (const wrong of [[1], { d: 1 }, { d: { s: 'x' } }, 'x', 'null']) {
      service.replies = [[200, wrong]]
      await assert.rejects(manager.getPendingMutations(), nacre.DecodingFailureError)
    }
  }))

test('links are forms', () =>
  withAnalytics(async (cluster, service) => {
    service.replies = [[200, '']]
    const manager = cluster.analyticsIndexes()
    const there = { dataverse: 'd', name: 'l' }
    const deep = { dataverse: 'b/s', name: 'l' }
    const login = { username: 'u', password: 'p' }
    const certificate = Buffer.from('C')
    const { Full, Half } = nacre.AnalyticsEncryptionLevel
    const identity = new nacre.CouchbaseAnalyticsEncryptionSettings({
      encryptionLevel: Full,
      certificate,
      clientCertificate: Buffer.from('CC'),
      clientKey: Buffer.from('K'),
    })
    const s3 = { accessKeyId: 'A', secretAccessKey: 'K', region: 'r' }
    const azure = { accountName: 'n', sharedAccessSignature: 'x', blobEndpoint: 'e', endpointSuffix: 'f' }
    const remote = { type: 'couchbase', hostname: 'h:1' }
    const cases: [Link, object][] = [
      [
        new nacre.CouchbaseRemoteAnalyticsLink({ ...there, hostname: 'h:1', ...login }),
        { ...there, ...remote, encryption: 'none', ...login },
      ],
      [
        { linkType: 'couchbase', ...deep, hostname: 'h:1', ...login, encryption: { encryptionLevel: Half } },
        { ...remote, encryption: 'half', ...login },
      ],
      [
        new nacre.CouchbaseRemoteAnalyticsLink({ ...there, hostname: 'h:1', encryption: identity }),
        { ...there, ...remote, encryption: 'full', certificate: 'C', clientCertificate: 'CC', clientKey: 'K' },
      ],
      [
        new nacre.CouchbaseRemoteAnalyticsLink({
          ...deep,
          hostname: 'h:1',
          encryption: { encryptionLevel: Full, certificate },
          ...login,
        }),
        { ...remote, encryption: 'full', certificate: 'C', ...login },
      ],
      [new nacre.S3ExternalAnalyticsLink({ ...there, ...s3 }), { ...there, type: 's3', ...s3 }],
      [
        { linkType: nacre.AnalyticsLinkType.S3External, ...deep, ...s3, sessionToken: 'T', serviceEndpoint: 'http://e' },
        { type: 's3', ...s3, sessionToken: 'T', serviceEndpoint: 'http://e' },
      ],
      [
        new nacre.AzureExternalAnalyticsLink({ ...there, connectionString: 'a=b;c=d' }),
        { ...there, type: 'azureblob', connectionString: 'a=b;c=d' },
      ],
      [new nacre.AzureExternalAnalyticsLink({ ...deep, ...azure }), { type: 'azureblob', ...azure }],
    ]
    for (const [link, fields] of cases) {
      const path = link.dataverse === 'b/s' ? '/analytics/link/b%2Fs/l' : '/analytics/link'
      await manager.createLink(link)
      await manager.replaceLink(link)
      const lines = service.asked.map(({ line }) => line)
      assert.deepEqual(lines, [`POST ${path}`, `PUT ${path}`])
      for (const { body, headers } of service.asked) {
        assert.deepEqual(Object.fromEntries(new URLSearchParams(body)), fields)
        assert.equal(headers['content-type'], FORM)
      }
      service.asked.length = 0
    }
  }))

test('links are dropped by their names, and listed', () =>
  withAnalytics(async (cluster, service) => {
    const manager = cluster.analyticsIndexes()
    await manager.dropLink('l', 'd')
    await manager.dropLink('l/l', 'b/s')
    assert.deepEqual(service.asked.map(({ line, body }) => [line, body]), [
      ['DELETE /analytics/link', 'dataverse=d&name=l'],
      ['DELETE /analytics/link/b%2Fs/l%2Fl', ''],
    ])
    assert.equal(service.asked[0]!.headers['content-length'], '18')
    service.asked.length = 0
    const s3 = { type: 's3', scope: 'd', name: 's', accessKeyId: 'A', region: 'r', serviceEndpoint: '' }
    const remote = { type: 'couchbase', dataverse: 'b/s', name: 'c', activeHostname: 'h', encryption: 'full', certificate: 'C' }
    const azure = { type: 'azureblob', dataverse: 'd', name: 'a', accountName: 'n' }
    service.replies = [[200, [s3, remote, azure, { type: 'newer', dataverse: 'd', name: 'n' }]]]
    const links = await manager.getAllLinks()
    assert.deepEqual(links, [
      new nacre.S3ExternalAnalyticsLink({ dataverse: 'd', name: 's', accessKeyId: 'A', region: 'r' }),
      new nacre.CouchbaseRemoteAnalyticsLink({
        dataverse: 'b/s',
        name: 'c',
        hostname: 'h',
        encryption: new nacre.CouchbaseAnalyticsEncryptionSettings({
          encryptionLevel: 'full',
          certificate: Buffer.from('C'),
        }),
      }),
      new nacre.AzureExternalAnalyticsLink({ dataverse: 'd', name: 'a', accountName: 'n' }),
    ])
    const linkType = nacre.AnalyticsLinkType.S3External
    await manager.getAllLinks({ dataverse: 'd', name: 'l', linkType })
    await manager.getAllLinks({ dataverse: 'b/s', linkType })
    await manager.getAllLinks({ dataverse: 'b/s', name: 'l' })
    await manager.getAllLinks({ linkType })
    assert.deepEqual(
      service.asked.map(({ line }) => line),
      ['', '?dataverse=d&name=l&type=s3', '/b%2Fs?type=s3', '/b%2Fs/l', '?type=s3'].map(
        (place) => `GET /analytics/link${place}`,
      ),
    )
    for (const wrong of [{}, [1], [null], [{ type: 's3' }]]) {
      service.replies = [[200, wrong]]
      await assert.rejects(manager.getAllLinks(), nacre.DecodingFailureError)
    }
  }))

test('what is incomplete is refused before', () =>
  withAnalytics(async (cluster, service) => {
    const manager = cluster.analyticsIndexes()
    const there = { dataverse: 'd', name: 'l' }
    const full = { encryptionLevel: nacre.AnalyticsEncryptionLevel.Full }
    const certificate = Buffer.from('C')
    const links: any[] = [
      { ...there, linkType: 'couchbase', hostname: '', username: 'u', password: 'p' },
      { ...there, linkType: 'couchbase', hostname: 'h' },
      { ...there, linkType: 'couchbase', hostname: 'h', username: 'u', password: 'p', encryption: full },
      { ...there, linkType: 'couchbase', hostname: 'h', encryption: { ...full, certificate } },
      { ...there, linkType: 's3', accessKeyId: 'A', region: 'r' },
      { linkType: 's3', dataverse: '', name: 'l', accessKeyId: 'A', secretAccessKey: 'K', region: 'r' },
      { linkType: 's3', dataverse: 'd', name: '', accessKeyId: 'A', secretAccessKey: 'K', region: 'r' },
      { ...there, linkType: 'azureblob', accountName: 'n' },
      { ...there, linkType: 'azureblob', accountKey: 'k' },
      { ...there, linkType: 'other' },
      undefined,
    ]
    const cases: (() => unknown)[] = [
      ...links.flatMap((link) => [() => manager.createLink(link), () => manager.replaceLink(link)]),
      () => manager.createDataverse(''),
      () => manager.createDataverse('b//s'),
      () => manager.createDataverse(undefined as any),
      () => manager.createDataset('b', ''),
      () => manager.createIndex('s', 'i', {}),
      () => manager.dropLink('', 'd'),
      () => manager.dropLink('l', ''),
      () => manager.getAllLinks({ name: 'l' }),
      () => cluster.analyticsQuery('SELECT 1', { timeout: -1 }).then(),
    ]
    for (const ask of cases) await assert.rejects(async () => ask(), nacre.InvalidArgumentError)
    assert.throws(() => cluster.analyticsQuery(''), nacre.InvalidArgumentError)
    assert.throws(() => cluster.analyticsQuery('SELECT 1', { metrics: true } as any), nacre.InvalidArgumentError)
    assert.deepEqual(service.asked, [])
  }))

test('refused links have the classes of their codes', () =>
  withAnalytics(async (cluster, service) => {
    const s3 = { accessKeyId: 'A', secretAccessKey: 'secret', region: 'r' }
    const link = new nacre.S3ExternalAnalyticsLink({ dataverse: 'd', name: 'l', ...s3 })
    const cases: [unknown, typeof nacre.CouchbaseError][] = [
      [failure(24055), nacre.LinkExistsError],
      ['24055: Link d.l already exists', nacre.LinkExistsError],
      ['24006: Link d.l does not exist', nacre.LinkNotFoundError],
      [failure(24034), nacre.DataverseNotFoundError],
      [failure(20001), nacre.AuthenticationFailureError],
      ['port 240550 is no code', nacre.CouchbaseError],
    ]
    for (const [answer, Kind] of cases) {
      service.replies = [[400, answer]]
      await assert.rejects(
        cluster.analyticsIndexes().createLink(link),
        (error: Error) => error.constructor === Kind && !JSON.stringify([error, String(error)]).includes('secret'),
      )
    }
  }))
