/** No operation drops an option without a word. */

import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createServer } from 'node:net'
import { after, before, test } from 'node:test'

import * as nacre from '../../src/index.js'
import { LookupInSpec, MutateInSpec } from '../../src/index.js'
import { OFFICIAL_NAMES, OPTION_NAMES } from '../../src/option-names.js'
import { connect as connectByHttp } from '../../src/web.js'
import { FakeNode, FakeService } from './fake-node.js'

let node: FakeNode
let service: FakeService
let cluster: nacre.Cluster

before(async () => {
  node = await FakeNode.start()
  service = await FakeService.start()
  node.neighbours = [{ mgmt: service.port, capi: service.port }]
  cluster = await nacre.connect(node.url, 'user', 'password')
})

after(async () => {
  await cluster.close()
  await node[Symbol.asyncDispose]()
  await service[Symbol.asyncDispose]()
})

type Call = (options: any) => unknown

const user = { username: 'user', password: 'password' }
const bucket = (): nacre.Bucket => cluster.bucket('b')
const documents = (): nacre.Collection => bucket().defaultCollection()
const byHttp = () => connectByHttp(`http://127.0.0.1:${service.port}`).bucket('b').defaultCollection()
const views = (): nacre.ViewIndexManager => bucket().viewIndexes()
const scopes = (): nacre.CollectionManager => bucket().collections()
const analytics = (): nacre.AnalyticsIndexManager => cluster.analyticsIndexes()

const aLink: nacre.IAnalyticsLink = { linkType: 's3', dataverse: 'd', name: 'l' }
const keyspace = new nacre.EventingFunctionKeyspace({ bucket: 'b' })
const aFunction = new nacre.EventingFunction({ name: 'f', code: '', metadataKeyspace: keyspace, sourceKeyspace: keyspace })

/** A call of each operation, with options. */
const CALLS: Record<string, Call> = {
  connect: (options) => nacre.connect(node.url, { ...user, ...options }),
  security: (security) => nacre.connect(node.url, { ...user, security }),
  transactions: (transactions) => nacre.connect(node.url, { ...user, transactions }),
  'transactions.run': (options) => cluster.transactions().run(async () => {}, options),
  tracingConfig: (tracingConfig) => nacre.connect(node.url, { ...user, tracingConfig }),
  metricsConfig: (metricsConfig) => nacre.connect(node.url, { ...user, metricsConfig }),
  orphanReporterConfig: (orphanReporterConfig) => nacre.connect(node.url, { ...user, orphanReporterConfig }),
  timeouts: (timeouts) => nacre.connect(node.url, 'user', 'password', timeouts),
  ping: (options) => cluster.ping(options),
  diagnostics: (options) => cluster.diagnostics(options),
  waitUntilReady: (options) => cluster.waitUntilReady(100, options),
  get: (options) => documents().get('k', options),
  httpGet: (options) => byHttp().get('k', options),
  httpInsert: (options) => byHttp().insert('k', 1, options),
  httpUpsert: (options) => byHttp().upsert('k', 1, options),
  httpReplace: (options) => byHttp().replace('k', 1, options),
  httpRemove: (options) => byHttp().remove('k', options),
  getAndTouch: (options) => documents().getAndTouch('k', 1, options),
  getAndLock: (options) => documents().getAndLock('k', 1, options),
  unlock: (options) => documents().unlock('k', 1n, options),
  exists: (options) => documents().exists('k', options),
  touch: (options) => documents().touch('k', 1, options),
  getAnyReplica: (options) => documents().getAnyReplica('k', options),
  getAllReplicas: (options) => documents().getAllReplicas('k', options),
  lookupInAnyReplica: (options) => documents().lookupInAnyReplica('k', [LookupInSpec.get('a')], options),
  lookupInAllReplicas: (options) => documents().lookupInAllReplicas('k', [LookupInSpec.get('a')], options),
  scan: (options) => documents().scan(new nacre.RangeScan(), options),
  insert: (options) => documents().insert('k', 1, options),
  upsert: (options) => documents().upsert('k', 1, options),
  replace: (options) => documents().replace('k', 1, options),
  remove: (options) => documents().remove('k', options),
  removeMulti: (options) => documents().removeMulti(['k'], options),
  lookupIn: (options) => documents().lookupIn('k', [LookupInSpec.get('a')], options),
  mutateIn: (options) => documents().mutateIn('k', [MutateInSpec.upsert('a', 1)], options),
  increment: (options) => documents().binary().increment('k', 1, options),
  decrement: (options) => documents().binary().decrement('k', 1, options),
  append: (options) => documents().binary().append('k', 'x', options),
  prepend: (options) => documents().binary().prepend('k', 'x', options),
  'LookupInSpec.get': (options) => LookupInSpec.get('a', options),
  'LookupInSpec.exists': (options) => LookupInSpec.exists('a', options),
  'LookupInSpec.count': (options) => LookupInSpec.count('a', options),
  'MutateInSpec.upsert': (options) => MutateInSpec.upsert('a', 1, options),
  'MutateInSpec.insert': (options) => MutateInSpec.insert('a', 1, options),
  'MutateInSpec.replace': (options) => MutateInSpec.replace('a', 1, options),
  'MutateInSpec.remove': (options) => MutateInSpec.remove('a', options),
  'MutateInSpec.arrayAppend': (options) => MutateInSpec.arrayAppend('a', 1, options),
  'MutateInSpec.arrayPrepend': (options) => MutateInSpec.arrayPrepend('a', 1, options),
  'MutateInSpec.arrayInsert': (options) => MutateInSpec.arrayInsert('a[0]', 1, options),
  'MutateInSpec.arrayAddUnique': (options) => MutateInSpec.arrayAddUnique('a', 1, options),
  'MutateInSpec.increment': (options) => MutateInSpec.increment('a', 1, options),
  'MutateInSpec.decrement': (options) => MutateInSpec.decrement('a', 1, options),
  changes: (options) => documents().changes(options),
  live: (options) => cluster.live('SELECT 1', options),
  query: (options) => cluster.query('SELECT 1', options),
  analyticsQuery: (options) => cluster.analyticsQuery('SELECT 1', options),
  createDataverse: (options) => analytics().createDataverse('d', options),
  dropDataverse: (options) => analytics().dropDataverse('d', options),
  createDataset: (options) => analytics().createDataset('b', 's', options),
  dropDataset: (options) => analytics().dropDataset('s', options),
  getAllDatasets: (options) => analytics().getAllDatasets(options),
  createAnalyticsIndex: (options) => analytics().createIndex('s', 'i', { f: 'string' }, options),
  dropAnalyticsIndex: (options) => analytics().dropIndex('s', 'i', options),
  getAllAnalyticsIndexes: (options) => analytics().getAllIndexes(options),
  connectLink: (options) => analytics().connectLink(options),
  disconnectLink: (options) => analytics().disconnectLink('`l`', options),
  getPendingMutations: (options) => analytics().getPendingMutations(options),
  createLink: (options) => analytics().createLink(aLink, options),
  replaceLink: (options) => analytics().replaceLink(aLink, options),
  dropLink: (options) => analytics().dropLink('l', 'd', options),
  getAllLinks: (options) => analytics().getAllLinks(options),
  search: (options) => cluster.searchQuery('i', nacre.SearchQuery.matchAll(), options),
  'search highlight': (highlight) => cluster.searchQuery('i', nacre.SearchQuery.matchAll(), { highlight }),
  viewQuery: (options) => bucket().viewQuery('d', 'v', options),
  'viewQuery range': (range) => bucket().viewQuery('d', 'v', { range }),
  'viewQuery idRange': (idRange) => bucket().viewQuery('d', 'v', { idRange }),
  getAllDesignDocuments: (options) => views().getAllDesignDocuments(undefined, options),
  publishDesignDocument: (options) => views().publishDesignDocument('d', options),
  getDesignDocument: (options) => views().getDesignDocument('d', undefined, options),
  upsertDesignDocument: (options) =>
    views().upsertDesignDocument(new nacre.DesignDocument({ name: 'd' }), undefined, options),
  dropDesignDocument: (options) => views().dropDesignDocument('d', undefined, options),
  createBucket: (options) => cluster.buckets().createBucket({ name: 'n' }, options),
  'createBucket settings': (settings) => cluster.buckets().createBucket({ name: 'n', ...settings }),
  dropBucket: (options) => cluster.buckets().dropBucket('n', options),
  getBucket: (options) => cluster.buckets().getBucket('n', options),
  getAllBuckets: (options) => cluster.buckets().getAllBuckets(options),
  createScope: (options) => scopes().createScope('s', options),
  dropScope: (options) => scopes().dropScope('s', options),
  getAllScopes: (options) => scopes().getAllScopes(options),
  createCollection: (options) => scopes().createCollection('c', 's', {}, options),
  'createCollection settings': (settings) => scopes().createCollection('c', 's', settings),
  dropCollection: (options) => scopes().dropCollection('c', 's', options),
  updateBucket: (options) => cluster.buckets().updateBucket({ name: 'n' }, options),
  'updateBucket settings': (settings) => cluster.buckets().updateBucket({ name: 'n', ...settings }),
  flushBucket: (options) => cluster.buckets().flushBucket('n', options),
  updateCollection: (options) => scopes().updateCollection('c', 's', {}, options),
  'updateCollection settings': (settings) => scopes().updateCollection('c', 's', settings),
  getUser: (options) => cluster.users().getUser('u', options),
  getAllUsers: (options) => cluster.users().getAllUsers(options),
  upsertUser: (options) => cluster.users().upsertUser({ username: 'u' }, options),
  dropUser: (options) => cluster.users().dropUser('u', options),
  changePassword: (options) => cluster.users().changePassword('p', options),
  getRoles: (options) => cluster.users().getRoles(options),
  getGroup: (options) => cluster.users().getGroup('g', options),
  getAllGroups: (options) => cluster.users().getAllGroups(options),
  upsertGroup: (options) => cluster.users().upsertGroup({ name: 'g' }, options),
  dropGroup: (options) => cluster.users().dropGroup('g', options),
  createIndex: (options) => cluster.queryIndexes().createIndex('b', 'i', ['a'], options),
  createPrimaryIndex: (options) => cluster.queryIndexes().createPrimaryIndex('b', options),
  dropIndex: (options) => cluster.queryIndexes().dropIndex('b', 'i', options),
  dropPrimaryIndex: (options) => cluster.queryIndexes().dropPrimaryIndex('b', options),
  getAllIndexes: (options) => cluster.queryIndexes().getAllIndexes('b', options),
  buildDeferredIndexes: (options) => cluster.queryIndexes().buildDeferredIndexes('b', options),
  watchIndexes: (options) => cluster.queryIndexes().watchIndexes('b', [], 1, options),
  getIndex: (options) => cluster.searchIndexes().getIndex('i', options),
  getAllSearchIndexes: (options) => cluster.searchIndexes().getAllIndexes(options),
  upsertIndex: (options) => cluster.searchIndexes().upsertIndex({ name: 'i' }, options),
  dropSearchIndex: (options) => cluster.searchIndexes().dropIndex('i', options),
  getIndexedDocumentsCount: (options) => cluster.searchIndexes().getIndexedDocumentsCount('i', options),
  controlIndex: (options) => cluster.searchIndexes().pauseIngest('i', options),
  analyzeDocument: (options) => cluster.searchIndexes().analyzeDocument('i', {}, options),
  upsertFunction: (options) => cluster.eventingFunctions().upsertFunction(aFunction, options),
  dropFunction: (options) => cluster.eventingFunctions().dropFunction('f', options),
  getAllFunctions: (options) => cluster.eventingFunctions().getAllFunctions(options),
  getFunction: (options) => cluster.eventingFunctions().getFunction('f', options),
  deployFunction: (options) => cluster.eventingFunctions().deployFunction('f', options),
  undeployFunction: (options) => cluster.eventingFunctions().undeployFunction('f', options),
  pauseFunction: (options) => cluster.eventingFunctions().pauseFunction('f', options),
  resumeFunction: (options) => cluster.eventingFunctions().resumeFunction('f', options),
  functionsStatus: (options) => cluster.eventingFunctions().functionsStatus(options),
}

/** Throws what the call throws or rejects with. */
async function outcome(call: Call, options: unknown): Promise<void> {
  await call(options)
}

test('every operation is called here', () => {
  assert.deepEqual(Object.keys(CALLS).sort(), Object.keys(OPTION_NAMES).sort())
})

for (const [operation, call] of Object.entries(CALLS)) {
  test(`${operation} refuses an option that nobody has`, async () => {
    const refusal = { name: 'InvalidArgumentError', message: /no option "bogus"/ }
    await assert.rejects(outcome(call, { bogus: true }), refusal)
    await assert.rejects(outcome(call, { bogus: null }), refusal)
  })

  test(`${operation} refuses the options of the official SDK that it lacks`, async () => {
    for (const name of OFFICIAL_NAMES) {
      if (Object.hasOwn(OPTION_NAMES[operation]!, name)) continue
      const refusal = { name: 'FeatureNotAvailableError', message: new RegExp(`the option ${name} yet`) }
      await assert.rejects(outcome(call, { [name]: 1 }), refusal)
    }
  })
}

test('nothing was sent for options that were refused', () => {
  assert.deepEqual(service.asked, [])
})

test('a durability level of 0 asks for nothing, and an undefined option is not given', async () => {
  node.on.set(0x01, () => [0, Buffer.alloc(0), Buffer.alloc(0)])
  await documents().upsert('k', 1, { durabilityLevel: 0, bogus: undefined } as any)
})

test('the error of a connection names the address and its cause', async () => {
  const listening = createServer().listen(0, '127.0.0.1')
  await once(listening, 'listening')
  const { port } = listening.address() as { port: number }
  listening.close()
  await once(listening, 'close')
  const options = { ...user, timeouts: { connectTimeout: 200 } }
  const closed = await nacre.connect(`couchbase://127.0.0.1:${port}`, options).catch((error) => error)
  assert.equal(closed.name, 'UnambiguousTimeoutError')
  assert.match(closed.message, new RegExp(`No connection to 127.0.0.1:${port} .connect ECONNREFUSED`))
  assert.equal(closed.cause.code, 'ECONNREFUSED')
  assert.equal(closed.context.endpoint, `127.0.0.1:${port}`)
  const unknown = await nacre.connect('couchbase://no-such-host.invalid', options).catch((error) => error)
  assert.match(unknown.message, /No connection to no-such-host.invalid:11210 .*(ENOTFOUND|EAI_AGAIN)/)
})

test('a port of HTTP is named as no key-value port', async () => {
  const http = createServer((socket) => {
    socket.on('error', () => {})
    socket.on('data', () => socket.write('HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n'))
  }).listen(0, '127.0.0.1')
  await once(http, 'listening')
  const { port } = http.address() as { port: number }
  const options = { ...user, timeouts: { connectTimeout: 200 } }
  const error = await nacre.connect(`couchbase://127.0.0.1:${port}`, options).catch((failure) => failure)
  http.close()
  assert.match(error.message, /may not be a key-value port/)
})
