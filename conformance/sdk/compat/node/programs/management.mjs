// Buckets, scopes, collections, users, design documents, views, eventing functions.

import * as couchbase from 'couchbase'

const { BucketType, CompressionMode, DesignDocument, DesignDocumentNamespace, ViewScanConsistency, ViewOrdering } = couchbase

export async function buckets_are_listed({ cluster, bucket }) {
  const found = (await cluster.buckets().getAllBuckets()).find(({ name }) => name === bucket.name)
  return [found.name, typeof found.ramQuotaMB, typeof found.numReplicas, found.bucketType]
}

export async function a_bucket_by_name({ cluster, bucket }) {
  const found = await cluster.buckets().getBucket(bucket.name)
  return [found.name, found.bucketType === BucketType.Couchbase, typeof found.flushEnabled, typeof found.maxExpiry]
}

export async function an_unknown_bucket({ cluster, fails }) {
  const buckets = cluster.buckets()
  return [await fails(buckets.getBucket('no_such')), await fails(buckets.dropBucket('no_such'))]
}

export async function buckets_come_and_go({ cluster, key, fails }) {
  const name = key.replace(/\W/g, '-').slice(-60)
  const buckets = cluster.buckets()
  await buckets.createBucket({ name, ramQuotaMB: 100, numReplicas: 0, flushEnabled: true, maxExpiry: 100 })
  try {
    const made = await buckets.getBucket(name)
    const again = await fails(buckets.createBucket({ name, ramQuotaMB: 100 }))
    return [made.flushEnabled, made.maxExpiry, made.numReplicas, again]
  } finally {
    await buckets.dropBucket(name)
  }
}

export async function buckets_change({ cluster, key }) {
  const name = key.replace(/\W/g, '-').slice(-60)
  const buckets = cluster.buckets()
  await buckets.createBucket({ name, ramQuotaMB: 100, numReplicas: 0, compressionMode: CompressionMode.Passive })
  try {
    const settings = await buckets.getBucket(name)
    await buckets.updateBucket({ ...settings, maxExpiry: 77 })
    return (await buckets.getBucket(name)).maxExpiry
  } finally {
    await buckets.dropBucket(name)
  }
}

export async function flush_has_to_be_allowed({ cluster, key, fails }) {
  const name = key.replace(/\W/g, '-').slice(-60)
  const buckets = cluster.buckets()
  await buckets.createBucket({ name, ramQuotaMB: 100, numReplicas: 0, flushEnabled: false })
  try {
    return await fails(buckets.flushBucket(name))
  } finally {
    await buckets.dropBucket(name)
  }
}

export async function scopes_come_and_go({ bucket, key, fails }) {
  const name = key.replace(/\W/g, '').slice(-25)
  const collections = bucket.collections()
  await collections.createScope(name)
  const again = await fails(collections.createScope(name))
  const there = (await collections.getAllScopes()).some((scope) => scope.name === name)
  await collections.dropScope(name)
  return [again, there, await fails(collections.dropScope(name))]
}

export async function collections_come_and_go({ bucket, scope, key, fails }) {
  const name = key.replace(/\W/g, '').slice(-25)
  const collections = bucket.collections()
  await collections.createCollection(name, scope.name)
  const again = await fails(collections.createCollection(name, scope.name))
  const found = (await collections.getAllScopes()).find((each) => each.name === scope.name)
  const listed = found.collections.some((collection) => collection.name === name)
  await collections.dropCollection(name, scope.name)
  return [again, listed, await fails(collections.dropCollection(name, scope.name)), await fails(collections.createCollection(name, 'none'))]
}

export async function collections_have_a_longest_life({ bucket, scope, key }) {
  const name = key.replace(/\W/g, '').slice(-25)
  const collections = bucket.collections()
  await collections.createCollection(name, scope.name, { maxExpiry: 500 })
  const find = async () => {
    const found = (await collections.getAllScopes()).find((each) => each.name === scope.name)
    return found.collections.find((collection) => collection.name === name).maxExpiry
  }
  const first = await find()
  await collections.dropCollection(name, scope.name)
  return first
}

export async function documents_of_a_new_collection({ bucket, scope, key }) {
  const name = key.replace(/\W/g, '').slice(-25)
  await bucket.collections().createCollection(name, scope.name)
  await scope.collection(name).upsert('k', { in: 'new' })
  const { content } = await scope.collection(name).get('k')
  await bucket.collections().dropCollection(name, scope.name)
  return content
}

export async function users_come_and_go({ cluster, key, fails }) {
  const username = key.replace(/\W/g, '-').slice(-60)
  const users = cluster.users()
  await users.upsertUser({
    username,
    displayName: 'A User',
    password: 'password',
    roles: [{ name: 'data_reader', bucket: '*' }, { name: 'ro_admin' }],
  })
  const { displayName, domain, roles } = await users.getUser(username)
  const listed = (await users.getAllUsers()).some((user) => user.username === username)
  await users.dropUser(username)
  const gone = await fails(users.getUser(username))
  return [displayName, domain, roles.map(({ name, bucket }) => [name, bucket ?? null]).sort(), listed, gone]
}

export async function users_log_in({ cluster, key, url, bucket }) {
  const username = key.replace(/\W/g, '-').slice(-60)
  await cluster.users().upsertUser({ username, password: 'password', roles: [{ name: 'admin' }] })
  const mine = await couchbase.connect(url, { username, password: 'password' })
  try {
    await mine.bucket(bucket.name).defaultCollection().upsert(key, 1)
    return (await mine.bucket(bucket.name).defaultCollection().get(key)).content
  } finally {
    await mine.close()
    await cluster.users().dropUser(username)
  }
}

export async function users_of_nothing({ cluster, fails }) {
  return [await fails(cluster.users().getUser('nobody-at-all')), await fails(cluster.users().dropUser('nobody-at-all'))]
}

export async function groups_come_and_go({ cluster, key, fails }) {
  const name = key.replace(/\W/g, '-').slice(-60)
  const users = cluster.users()
  await users.upsertGroup({ name, description: 'Some', roles: [{ name: 'ro_admin' }] })
  const group = await users.getGroup(name)
  const listed = (await users.getAllGroups()).some((each) => each.name === name)
  await users.dropGroup(name)
  return [group.description, group.roles.map((role) => role.name), listed, await fails(users.getGroup(name))]
}

export async function roles_are_listed({ cluster }) {
  const roles = await cluster.users().getRoles()
  return roles.some(({ name }) => name === 'admin')
}

const MAP = 'function (doc, meta) { if (doc.viewed) emit(doc.viewed, doc.n); }'

async function view(bucket, key, reduce) {
  const name = key.replace(/\W/g, '_').slice(-40)
  const document = new DesignDocument({ name, views: { by: new DesignDocument.View({ map: MAP, reduce }) } })
  await bucket.viewIndexes().upsertDesignDocument(document, DesignDocumentNamespace.Production)
  const collection = bucket.defaultCollection()
  for (const n of [1, 2, 3, 4]) await collection.upsert(`${key}-${n}`, { viewed: [key, n], n })
  return name
}

const ALL = { scanConsistency: ViewScanConsistency.RequestPlus, timeout: 30_000 }

export async function design_documents_come_and_go({ bucket, key, fails }) {
  const name = await view(bucket, key)
  const indexes = bucket.viewIndexes()
  const { views } = await indexes.getDesignDocument(name, DesignDocumentNamespace.Production)
  const listed = (await indexes.getAllDesignDocuments(DesignDocumentNamespace.Production)).some((each) => each.name === name)
  await indexes.dropDesignDocument(name, DesignDocumentNamespace.Production)
  const gone = await fails(indexes.getDesignDocument(name, DesignDocumentNamespace.Production))
  return [Object.keys(views), views.by.map === MAP, listed, gone]
}

async function viewed({ bucket, key }, options, reduce) {
  const name = await view(bucket, key, reduce)
  try {
    const { rows } = await bucket.viewQuery(name, 'by', { ...ALL, ...options })
    return rows.map(({ key: found, value }) => [found?.[1] ?? null, value])
  } finally {
    await bucket.viewIndexes().dropDesignDocument(name, DesignDocumentNamespace.Production)
  }
}

export async function rows_of_a_view(context) {
  const { key } = context
  return await viewed(context, { range: { start: [key], end: [key, {}] } })
}

export async function rows_backwards(context) {
  const { key } = context
  return await viewed(context, { range: { start: [key, {}], end: [key] }, order: ViewOrdering.Descending, limit: 3 })
}

export async function rows_of_some_keys(context) {
  const { key } = context
  return await viewed(context, { keys: [[key, 2], [key, 4]] })
}

export async function rows_after_skipping(context) {
  const { key } = context
  return await viewed(context, { range: { start: [key], end: [key, {}] }, skip: 1, limit: 2 })
}

export async function reduced_rows(context) {
  const { key } = context
  return await viewed(context, { range: { start: [key], end: [key, {}] }, reduce: true }, '_sum')
}

export async function grouped_rows(context) {
  const { key } = context
  return await viewed(context, { range: { start: [key], end: [key, {}] }, group_level: 1 }, '_count')
}

export async function an_unknown_view({ bucket }) {
  try {
    await bucket.viewQuery('none', 'none', { timeout: 5000 })
  } catch (error) {
    return error instanceof couchbase.DesignDocumentNotFoundError
  }
}

export async function eventing_functions_are_listed({ cluster }) {
  return Array.isArray(await cluster.eventingFunctions().getAllFunctions())
}

export async function an_unknown_function({ cluster, fails }) {
  const functions = cluster.eventingFunctions()
  return [await fails(functions.getFunction('none')), await fails(functions.deployFunction('none')), await fails(functions.dropFunction('none'))]
}
