// Connections, their diagnosis, options of clusters.

import * as couchbase from 'couchbase'

const { Cluster, ServiceType, PingState, EndpointState, ClusterState, PasswordAuthenticator } = couchbase

export async function connect_and_close({ url, user, password, bucket, key }) {
  const cluster = await couchbase.connect(url, { username: user, password })
  try {
    await cluster.bucket(bucket.name).defaultCollection().upsert(key, 1)
    return (await cluster.bucket(bucket.name).defaultCollection().get(key)).content
  } finally {
    await cluster.close()
  }
}

export async function connect_by_class({ url, user, password }) {
  const cluster = await Cluster.connect(url, { username: user, password })
  const { rows } = await cluster.query('SELECT RAW 1')
  await cluster.close()
  return rows
}

export async function connect_by_authenticator({ url, user, password }) {
  const cluster = await couchbase.connect(url, { authenticator: new PasswordAuthenticator(user, password) })
  const { rows } = await cluster.query('SELECT RAW 1')
  await cluster.close()
  return rows
}

export async function connect_by_callback({ url, user, password }) {
  return await new Promise((resolve, reject) => {
    couchbase.connect(url, { username: user, password }, (error, cluster) => {
      if (error) return reject(error)
      cluster.close().then(() => resolve(true), reject)
    })
  })
}

export async function a_wrong_password({ url, user, fails }) {
  return await fails(couchbase.connect(url, { username: user, password: 'wrong' }))
}

export async function a_profile_for_far_clusters({ url, user, password }) {
  const cluster = await couchbase.connect(url, { username: user, password, configProfile: 'wanDevelopment' })
  await cluster.close()
  return true
}

export async function timeouts_of_a_cluster({ url, user, password }) {
  const cluster = await couchbase.connect(url, { username: user, password, timeouts: { kvTimeout: 3000, queryTimeout: 4000 } })
  const found = [cluster.kvTimeout, cluster.queryTimeout]
  await cluster.close()
  return found
}

export async function a_closed_cluster({ url, user, password, bucket, fails, key }) {
  const cluster = await couchbase.connect(url, { username: user, password })
  const collection = cluster.bucket(bucket.name).defaultCollection()
  await collection.upsert(key, 1)
  await cluster.close()
  return (await fails(collection.get(key))) !== null
}

export async function closing_twice({ url, user, password }) {
  const cluster = await couchbase.connect(url, { username: user, password })
  await cluster.close()
  await cluster.close()
  return true
}

export async function ping_of_a_cluster({ cluster }) {
  const report = await cluster.ping({ serviceTypes: [ServiceType.KeyValue, ServiceType.Query] })
  const states = Object.values(report.services).flat().map(({ state }) => state === PingState.Ok)
  return [typeof report.id, typeof report.sdk, typeof report.version, Object.keys(report.services).sort(), states.every(Boolean)]
}

export async function ping_of_a_bucket({ bucket }) {
  const report = await bucket.ping({ serviceTypes: [ServiceType.KeyValue], reportId: 'mine' })
  return [report.id, Object.keys(report.services), report.services.kv.length > 0]
}

export async function diagnostics_of_a_cluster({ cluster, collection, key }) {
  await collection.upsert(key, 1)
  const report = await cluster.diagnostics({ reportId: 'mine' })
  return [report.id, typeof report.version, report.services.kv.some(({ state }) => state === EndpointState.Connected)]
}

export async function constants_of_diagnostics() {
  return { ServiceType, PingState, EndpointState, ClusterState }
}

export async function a_transcoder_for_all({ url, user, password, bucket, key }) {
  const transcoder = { encode: (value) => [Buffer.from(`<${value}>`), 0], decode: (bytes) => bytes.toString() }
  const cluster = await couchbase.connect(url, { username: user, password, transcoder })
  const collection = cluster.bucket(bucket.name).defaultCollection()
  await collection.upsert(key, 'x')
  const { content } = await collection.get(key)
  await cluster.close()
  return content
}

export async function a_bad_address({ fails }) {
  const options = { username: 'u', password: 'p', timeouts: { connectTimeout: 1000, bootstrapTimeout: 1000 } }
  return (await fails(couchbase.connect('couchbase://127.0.0.1:1', options))) !== null
}

export async function names_of_errors() {
  const names = ['AmbiguousTimeoutError', 'AuthenticationFailureError', 'BucketExistsError', 'BucketNotFoundError', 'CasMismatchError', 'CollectionExistsError', 'CollectionNotFoundError', 'CouchbaseError', 'DecodingFailureError', 'DesignDocumentNotFoundError', 'DocumentExistsError', 'DocumentLockedError', 'DocumentNotFoundError', 'DurabilityAmbiguousError', 'DurabilityImpossibleError', 'FeatureNotAvailableError', 'GroupNotFoundError', 'IndexExistsError', 'IndexNotFoundError', 'InvalidArgumentError', 'ParsingFailureError', 'PathExistsError', 'PathNotFoundError', 'PlanningFailureError', 'RateLimitedError', 'ScopeExistsError', 'ScopeNotFoundError', 'TemporaryFailureError', 'TimeoutError', 'TransactionExpiredError', 'TransactionFailedError', 'UnambiguousTimeoutError', 'UserNotFoundError', 'ValueTooLargeError', 'ViewNotFoundError']
  return names.map((name) => [name, typeof couchbase[name], couchbase[name]?.prototype instanceof Error])
}

export async function errors_inherit() {
  const pairs = [['AmbiguousTimeoutError', 'TimeoutError'], ['UnambiguousTimeoutError', 'TimeoutError'], ['DocumentNotFoundError', 'CouchbaseError'], ['TimeoutError', 'CouchbaseError'], ['TransactionFailedError', 'CouchbaseError']]
  return pairs.map(([name, base]) => couchbase[name].prototype instanceof couchbase[base])
}

export async function credentials_change({ url, user, password, bucket, key }) {
  const cluster = await couchbase.connect(url, { username: user, password })
  cluster.updateCredentials(new PasswordAuthenticator(user, password))
  await cluster.bucket(bucket.name).defaultCollection().upsert(key, 1)
  const { rows } = await cluster.query('SELECT RAW 1')
  await cluster.close()
  return rows
}
