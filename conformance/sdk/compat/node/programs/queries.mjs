// SQL++ statements, their options and errors, and indexes.

import * as couchbase from 'couchbase'

const { MutationState, QueryProfileMode, QueryScanConsistency, QueryStatus } = couchbase

async function people(scope, key) {
  const collection = scope.collection('people')
  const written = []
  for (const [index, name] of ['Ada', 'Bob', 'Eve'].entries()) {
    written.push(await collection.upsert(`${key}-${name}`, { kind: key, name, age: 30 + index, tags: [name[0]] }))
  }
  return written.map(({ token }) => token)
}

export async function a_constant({ cluster }) {
  const { rows } = await cluster.query('SELECT 1 + 1 AS two, "x" AS text, NULL AS nothing')
  return rows
}

export async function raw_rows({ cluster }) {
  return (await cluster.query('SELECT RAW n FROM [3, 1, 2] AS n ORDER BY n')).rows
}

export async function named_parameters({ cluster }) {
  return (await cluster.query('SELECT $a || $b AS joined', { parameters: { a: 'x', b: 'y' } })).rows
}

export async function positional_parameters({ cluster }) {
  return (await cluster.query('SELECT $1 + $2 AS total', { parameters: [20, 22] })).rows
}

export async function parameters_of_every_kind({ cluster }) {
  const parameters = [null, true, 1.5, 'ü', [1, [2]], { a: { b: 1 } }]
  return (await cluster.query('SELECT RAW [$1, $2, $3, $4, $5, $6]', { parameters })).rows
}

export async function prepared_statements({ cluster }) {
  const found = []
  for (const n of [1, 2, 3]) {
    const { rows } = await cluster.query('SELECT RAW $n * 2', { parameters: { n }, adhoc: false })
    found.push(...rows)
  }
  return found
}

export async function rows_of_a_collection({ scope, key }) {
  await people(scope, key)
  const { rows } = await scope.query('SELECT p.name, p.age FROM people AS p WHERE p.kind = $kind ORDER BY p.name', {
    parameters: { kind: key },
    scanConsistency: QueryScanConsistency.RequestPlus,
  })
  return rows
}

export async function rows_of_a_whole_name({ cluster, bucket, scope, key }) {
  await people(scope, key)
  const statement = `SELECT RAW COUNT(*) FROM \`${bucket.name}\`.\`${scope.name}\`.people WHERE kind = $1`
  const { rows } = await cluster.query(statement, {
    parameters: [key],
    scanConsistency: QueryScanConsistency.RequestPlus,
  })
  return rows
}

export async function rows_by_keys({ scope, key }) {
  await people(scope, key)
  const { rows } = await scope.query('SELECT META().id AS id, name FROM people USE KEYS [$1, $2]', {
    parameters: [`${key}-Ada`, `${key}-Eve`],
  })
  return rows.map(({ id, name }) => [id.slice(key.length), name])
}

export async function consistent_with_a_state({ scope, key }) {
  const written = await people(scope, key)
  const { rows } = await scope.query('SELECT RAW name FROM people WHERE kind = $1 ORDER BY name', {
    parameters: [key],
    consistentWith: new MutationState(...written),
  })
  return rows
}

export async function a_context_by_option({ cluster, bucket, scope, key }) {
  await people(scope, key)
  const { rows } = await cluster.query('SELECT RAW COUNT(*) FROM people WHERE kind = $1', {
    parameters: [key],
    queryContext: `default:\`${bucket.name}\`.\`${scope.name}\``,
    scanConsistency: QueryScanConsistency.RequestPlus,
  })
  return rows
}

export async function metrics({ cluster }) {
  const { meta } = await cluster.query('SELECT RAW 1', { metrics: true })
  const { metrics } = meta
  return [metrics.resultCount, metrics.resultSize > 0, metrics.errorCount, metrics.warningCount, metrics.mutationCount, typeof metrics.elapsedTime]
}

export async function meta_of_a_result({ cluster }) {
  const { meta } = await cluster.query('SELECT 1 AS a', { clientContextId: 'my-id' })
  return [meta.status === QueryStatus.Success, meta.clientContextId, typeof meta.requestId, meta.signature, meta.warnings]
}

export async function a_profile({ cluster }) {
  const { meta } = await cluster.query('SELECT RAW 1', { profile: QueryProfileMode.Timings })
  return typeof meta.profile
}

export async function writes_count({ scope, key }) {
  const { meta, rows } = await scope.query(
    'INSERT INTO people (KEY, VALUE) VALUES ($1, {"kind": $2}) RETURNING META().id AS id',
    { parameters: [`${key}-1`, `${key}-made`], metrics: true },
  )
  return [meta.metrics.mutationCount, rows.length]
}

export async function updates_and_deletes({ scope, key }) {
  await people(scope, key)
  const options = { parameters: [key], scanConsistency: QueryScanConsistency.RequestPlus, metrics: true }
  const updated = await scope.query('UPDATE people SET seen = TRUE WHERE kind = $1 RETURNING RAW seen', options)
  const deleted = await scope.query('DELETE FROM people WHERE kind = $1 AND age > 30', options)
  const left = await scope.query('SELECT RAW name FROM people WHERE kind = $1', options)
  return [updated.rows, deleted.meta.metrics.mutationCount, left.rows]
}

export async function read_only_refuses_writes({ scope, key, fails }) {
  const outcome = await fails(
    scope.query('UPSERT INTO people (KEY, VALUE) VALUES ($1, {})', { parameters: [key], readOnly: true }),
  )
  return outcome !== null
}

export async function a_syntax_error({ cluster, fails }) {
  return await fails(cluster.query('SELEKT 1'))
}

export async function errors_of_statements_have_a_context({ cluster }) {
  try {
    await cluster.query('SELECT FROM', { parameters: [1] })
  } catch (error) {
    const { context } = error
    return [error.constructor.name, context.statement, context.first_error_code, context.http_status_code]
  }
}

export async function an_unknown_keyspace({ cluster, fails }) {
  const error = await fails(cluster.query('SELECT * FROM no_such_bucket_at_all'))
  return error !== null
}

export async function rows_by_events({ cluster }) {
  const stream = cluster.query('SELECT RAW n FROM [1, 2, 3] AS n')
  const rows = []
  let status
  return await new Promise((resolve, reject) => {
    stream.on('row', (row) => rows.push(row))
    stream.on('meta', (meta) => (status = meta.status))
    stream.on('error', reject)
    stream.on('end', () => resolve([rows, status]))
  })
}

export async function errors_by_events({ cluster }) {
  const stream = cluster.query('SELEKT')
  return await new Promise((resolve) => {
    stream.on('row', () => resolve('a row'))
    stream.on('error', (error) => resolve(error.constructor.name))
  })
}

export async function rows_by_callback({ cluster }) {
  return await new Promise((resolve, reject) => {
    cluster.query('SELECT RAW 7', (error, result) => (error ? reject(error) : resolve(result.rows)))
  })
}

export async function many_rows({ cluster }) {
  const { rows } = await cluster.query('SELECT RAW n FROM ARRAY_RANGE(0, 5000) AS n')
  return [rows.length, rows[4999]]
}

export async function queries_side_by_side({ cluster }) {
  const asked = Array.from({ length: 20 }, (_, n) => cluster.query('SELECT RAW $n', { parameters: { n } }))
  return (await Promise.all(asked)).map(({ rows }) => rows[0])
}

export async function raw_options({ cluster }) {
  const { rows } = await cluster.query('SELECT RAW $x', { raw: { $x: 5 } })
  return rows
}

export async function pretty_and_others({ cluster }) {
  const { rows } = await cluster.query('SELECT RAW 1', {
    maxParallelism: 1,
    pipelineBatch: 10,
    pipelineCap: 10,
    scanCap: 10,
    scanWait: 10,
    flexIndex: false,
    preserveExpiry: false,
    timeout: 5000,
  })
  return rows
}

export async function explained({ cluster }) {
  const { rows } = await cluster.query('EXPLAIN SELECT RAW 1')
  return [rows.length, typeof rows[0].plan]
}

export async function indexes_of_a_collection({ scope, key, fails }) {
  const indexes = scope.collection('indexed').queryIndexes()
  const name = `ix_${key.replace(/\W/g, '_')}`
  await indexes.createIndex(name, ['a', 'b'])
  const again = await fails(indexes.createIndex(name, ['a', 'b']))
  await indexes.createIndex(name, ['a', 'b'], { ignoreIfExists: true })
  const found = (await indexes.getAllIndexes()).find((index) => index.name === name)
  await indexes.dropIndex(name)
  const gone = await fails(indexes.dropIndex(name))
  await indexes.dropIndex(name, { ignoreIfNotExists: true })
  return [again, gone, found.isPrimary, found.state, found.indexKey]
}

export async function indexes_that_are_built_later({ scope, key }) {
  const indexes = scope.collection('indexed').queryIndexes()
  const name = `later_${key.replace(/\W/g, '_')}`
  await indexes.createIndex(name, ['c'], { deferred: true })
  const find = async () => (await indexes.getAllIndexes()).find((index) => index.name === name).state
  const before = await find()
  await indexes.buildDeferredIndexes()
  await indexes.watchIndexes([name], 20_000)
  const after = await find()
  await indexes.dropIndex(name)
  return [before, after]
}

export async function primary_indexes({ bucket, cluster, scope, fails }) {
  const keyspace = { scopeName: scope.name, collectionName: 'primary' }
  const indexes = cluster.queryIndexes()
  await indexes.createPrimaryIndex(bucket.name, keyspace)
  const again = await fails(indexes.createPrimaryIndex(bucket.name, keyspace))
  const found = await indexes.getAllIndexes(bucket.name, keyspace)
  await indexes.dropPrimaryIndex(bucket.name, keyspace)
  const gone = await fails(indexes.dropPrimaryIndex(bucket.name, keyspace))
  return [again, gone, found.map(({ isPrimary, name, type }) => [isPrimary, name, type])]
}
