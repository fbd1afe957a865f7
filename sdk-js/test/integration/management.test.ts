/** Buckets, collections, users, groups, indexes and functions. */

import assert from 'node:assert/strict'
import { setTimeout as sleep } from 'node:timers/promises'

import * as nacre from '../../src/index.js'
import { nodeTest, unique } from './node.js'

nodeTest('a bucket has every setting, which can be changed', async ({ cluster, key }) => {
  const manager = cluster.buckets()
  const name = unique('bucket')
  const settings: nacre.BucketSettings = {
    name,
    ramQuotaMB: 128,
    bucketType: nacre.BucketType.Couchbase,
    numReplicas: 0,
    flushEnabled: true,
    maxExpiry: 3600,
    storageBackend: nacre.StorageBackend.Couchstore,
    evictionPolicy: nacre.EvictionPolicy.FullEviction,
    compressionMode: nacre.CompressionMode.Active,
    minimumDurabilityLevel: nacre.DurabilityLevel.Majority,
    conflictResolutionType: nacre.ConflictResolutionType.Timestamp,
  }
  await manager.createBucket(settings)
  try {
    const read = await manager.getBucket(name)
    for (const [member, value] of Object.entries(settings)) {
      assert.deepEqual([member, read[member as keyof nacre.BucketSettings]], [member, value])
    }
    await manager.updateBucket({
      name,
      flushEnabled: false,
      ramQuotaMB: 160,
      compressionMode: nacre.CompressionMode.Off,
    })
    const changed = await manager.getBucket(name)
    assert.deepEqual([changed.flushEnabled, changed.ramQuotaMB, changed.compressionMode], [false, 160, 'off'])
    const collection = cluster.bucket(name).defaultCollection()
    await collection.upsert(key, 1)
    await assert.rejects(manager.flushBucket(name), nacre.BucketNotFlushableError)
    await manager.updateBucket({ name, flushEnabled: true })
    await manager.flushBucket(name)
    assert.equal((await collection.exists(key)).exists, false)
  } finally {
    await manager.dropBucket(name)
  }
  await assert.rejects(manager.updateBucket({ name, ramQuotaMB: 200 }), nacre.BucketNotFoundError)
  await assert.rejects(manager.flushBucket(name), nacre.BucketNotFoundError)
})

nodeTest('collections are changed', async ({ bucket }) => {
  const manager = bucket.collections()
  const name = unique('c')
  await manager.createCollection({ name, scopeName: '_default', maxExpiry: 60 })
  await manager.updateCollection(name, '_default', { maxExpiry: 120 })
  const scopes = await manager.getAllScopes()
  const found = scopes.flatMap(({ collections }) => collections).find((collection) => collection.name === name)
  assert.equal(found?.maxExpiry, 120)
  await manager.dropCollection(name, '_default')
  await assert.rejects(manager.updateCollection(name, '_default', { maxExpiry: 1 }), nacre.CollectionNotFoundError)
})

nodeTest('users and groups are created, changed, read and dropped', async ({ node, cluster, bucket }) => {
  const users = cluster.users()
  const [username, group] = [unique('user'), unique('group')]
  await assert.rejects(users.getUser(username), nacre.UserNotFoundError)
  await assert.rejects(users.getGroup(group), nacre.GroupNotFoundError)
  await users.upsertGroup({
    name: group,
    description: 'readers',
    roles: [new nacre.Role({ name: 'data_reader', bucket: bucket.name })],
  })
  const read = await users.getGroup(group)
  assert.deepEqual(
    [read.name, read.description, read.roles],
    [group, 'readers', [new nacre.Role({ name: 'data_reader', bucket: bucket.name })]],
  )
  assert((await users.getAllGroups()).some(({ name }) => name === group))

  const own = new nacre.Role({ name: 'data_writer', bucket: bucket.name, scope: '_default', collection: '_default' })
  await users.upsertUser({
    username,
    displayName: 'A user',
    password: 'first password',
    groups: [group],
    roles: ['query_select[*]', own],
  })
  const user = await users.getUser(username)
  assert.deepEqual([user.username, user.displayName, user.domain, user.groups], [username, 'A user', 'local', [group]])
  assert.deepEqual(
    user.roles.find(({ name }) => name === 'data_writer'),
    own,
  )
  const effective = user.effectiveRoles.find(({ name }) => name === 'data_reader')
  assert.deepEqual(effective?.origins, [{ type: 'group', name: group }])
  assert(user.passwordChanged instanceof Date)
  assert((await users.getAllUsers()).some((it) => it.username === username))
  assert((await users.getRoles()).some(({ name, description }) => name === 'admin' && description))

  await using other = await nacre.connect(node.url, username, 'first password')
  await other.users().changePassword('second password')
  other.updateCredentials(new nacre.PasswordAuthenticator(username, 'second password'))
  await other.bucket(bucket.name).defaultCollection().exists('k')
  await assert.rejects(nacre.connect(node.url, username, 'first password'), nacre.AuthenticationFailureError)
  await assert.rejects(other.buckets().createBucket({ name: 'x' }), nacre.CouchbaseError)

  await users.dropUser(username)
  await users.dropGroup(group)
  await assert.rejects(users.dropUser(username), nacre.UserNotFoundError)
  await assert.rejects(users.dropGroup(group), nacre.GroupNotFoundError)
  await assert.rejects(users.getUser(''), nacre.InvalidArgumentError)
})

nodeTest('indexes are created, built, watched, listed and dropped', async ({ cluster, bucket }) => {
  const name = unique('indexed')
  await bucket.collections().createCollection(name, '_default')
  const collection = bucket.collection(name)
  const indexes = collection.queryIndexes()
  await indexes.createPrimaryIndex({ deferred: true })
  await indexes.createIndex('by_n', ['n', 'm DESC'], { deferred: true })
  assert.deepEqual((await indexes.buildDeferredIndexes()).sort(), ['#primary', 'by_n'])
  await indexes.watchIndexes(['by_n'], 60_000, { watchPrimary: true })
  const listed = await indexes.getAllIndexes()
  assert.deepEqual(
    listed.map((index) => `${index.name} ${index.state} ${index.isPrimary}`),
    ['#primary online true', 'by_n online false'],
  )
  assert.deepEqual(
    [listed[1]!.bucketName, listed[1]!.scopeName, listed[1]!.collectionName],
    [bucket.name, '_default', name],
  )
  assert.equal(listed[1]!.indexKey.length, 2)
  await assert.rejects(indexes.createIndex('by_n', ['n']), nacre.IndexExistsError)
  await indexes.createIndex('by_n', ['n'], { ignoreIfExists: true })
  await assert.rejects(indexes.watchIndexes(['none'], 1000), nacre.IndexNotFoundError)
  await indexes.dropIndex('by_n')
  await assert.rejects(indexes.dropIndex('by_n'), nacre.IndexNotFoundError)
  await indexes.dropIndex('by_n', { ignoreIfNotExists: true })
  await indexes.dropPrimaryIndex()
  assert.deepEqual(await indexes.buildDeferredIndexes(), [])

  const manager = cluster.queryIndexes()
  const place = { scopeName: '_default', collectionName: name }
  await manager.createPrimaryIndex(bucket.name, { name: 'all', ...place })
  assert((await manager.getAllIndexes(bucket.name)).some((index) => index.name === 'all'))
  await manager.dropPrimaryIndex(bucket.name, { name: 'all', ...place })
  await assert.rejects(manager.createIndex(bucket.name, 'i', [], place), nacre.InvalidArgumentError)
})

nodeTest('functions are defined, deployed, paused and dropped', async ({ cluster, bucket, key }) => {
  const manager = cluster.eventingFunctions()
  const name = `f${unique('').slice(1)}`
  const [source, target, metadata] = [unique('source'), unique('target'), unique('metadata')]
  for (const collection of [source, target, metadata])
    await bucket.collections().createCollection(collection, '_default')
  const place = (collection: string) => new nacre.EventingFunctionKeyspace({ bucket: bucket.name, collection })
  const definition = new nacre.EventingFunction({
    name,
    code: 'function OnUpdate(doc, meta) { out[meta.id] = { seen: doc.n, by: me }; }',
    sourceKeyspace: place(source),
    metadataKeyspace: place(metadata),
    bucketBindings: [
      new nacre.EventingFunctionBucketBinding({
        alias: 'out',
        name: place(target),
        access: nacre.EventingFunctionBucketAccess.ReadWrite,
      }),
    ],
    constantBindings: [new nacre.EventingFunctionConstantBinding({ alias: 'me', literal: '"f"' })],
    urlBindings: [
      new nacre.EventingFunctionUrlBinding({
        alias: 'web',
        hostname: 'http://a.example',
        auth: new nacre.EventingFunctionUrlAuthBasic({ username: 'u', password: 'p' }),
      }),
    ],
    settings: new nacre.EventingFunctionSettings({
      description: 'copies',
      workerCount: 1,
      logLevel: nacre.EventingFunctionLogLevel.Debug,
      dcpStreamBoundary: nacre.EventingFunctionDcpBoundary.Everything,
      queryConsistency: nacre.QueryScanConsistency.RequestPlus,
    }),
  })
  const status = async () => (await manager.functionsStatus()).functions.find((it) => it.name === name)
  const becomes = async (wanted: nacre.EventingFunctionStatus): Promise<void> => {
    const end = Date.now() + 60_000
    while ((await status())?.status !== wanted) {
      assert(Date.now() < end, `not ${wanted} in time`)
      await sleep(50)
    }
  }
  await manager.upsertFunction(definition)
  const read = await manager.getFunction(name)
  assert.equal(read.code, definition.code)
  assert.deepEqual(
    [read.sourceKeyspace, read.bucketBindings, read.constantBindings],
    [definition.sourceKeyspace, definition.bucketBindings, definition.constantBindings],
  )
  assert.equal(read.urlBindings[0]!.auth!.username, 'u')
  for (const [setting, value] of Object.entries(definition.settings)) {
    assert.deepEqual([setting, read.settings[setting as keyof nacre.EventingFunctionSettings]], [setting, value])
  }
  assert((await manager.getAllFunctions()).some((it) => it.name === name))
  await assert.rejects(manager.undeployFunction(name), nacre.EventingFunctionNotDeployedError)
  await assert.rejects(manager.pauseFunction(name), nacre.EventingFunctionNotBootstrappedError)

  await bucket.collection(source).upsert(key, { n: 7 })
  await manager.deployFunction(name)
  await becomes(nacre.EventingFunctionStatus.Deployed)
  const end = Date.now() + 30_000
  while (!(await bucket.collection(target).exists(key)).exists) assert(Date.now() < end)
  assert.deepEqual((await bucket.collection(target).get(key)).content, { seen: 7, by: 'f' })
  await assert.rejects(manager.dropFunction(name), nacre.EventingFunctionDeployedError)
  await manager.pauseFunction(name)
  await becomes(nacre.EventingFunctionStatus.Paused)
  await manager.resumeFunction(name)
  await becomes(nacre.EventingFunctionStatus.Deployed)
  await manager.undeployFunction(name)
  await becomes(nacre.EventingFunctionStatus.Undeployed)
  await manager.dropFunction(name)
  await assert.rejects(manager.getFunction(name), nacre.EventingFunctionNotFoundError)
  const broken = new nacre.EventingFunction({ ...definition, code: 'function (' })
  await assert.rejects(manager.upsertFunction(broken), nacre.EventingFunctionCompilationFailureError)
})

nodeTest('functions of a scope are apart from those of the cluster', async ({ cluster, bucket }) => {
  const manager = bucket.scope('_default').eventingFunctions()
  const name = `f${unique('').slice(1)}`
  const metadata = unique('metadata')
  await bucket.collections().createCollection(metadata, '_default')
  const place = (collection: string) => new nacre.EventingFunctionKeyspace({ bucket: bucket.name, collection })
  const definition = new nacre.EventingFunction({
    name,
    code: 'function OnUpdate(doc, meta) {}',
    sourceKeyspace: place('_default'),
    metadataKeyspace: place(metadata),
  })
  await manager.upsertFunction(definition)
  assert((await manager.getAllFunctions()).some((it) => it.name === name))
  assert(!(await cluster.eventingFunctions().getAllFunctions()).some((it) => it.name === name))
  assert.equal((await manager.functionsStatus()).functions.find((it) => it.name === name)?.status, 'undeployed')
  await manager.dropFunction(name)
})
