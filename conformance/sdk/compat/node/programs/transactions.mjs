// Changes of several documents that take effect together.

import * as couchbase from 'couchbase'

const { TransactionFailedError, TransactionGetMultiSpec, DocumentNotFoundError, DurabilityLevel } = couchbase

// A single node without replicas is enough.
const config = { durabilityLevel: DurabilityLevel.None, timeout: 20_000 }

export async function documents_are_inserted({ cluster, collection, key }) {
  await cluster.transactions().run(async (attempt) => {
    await attempt.insert(collection, `${key}-1`, { n: 1 })
    await attempt.insert(collection, `${key}-2`, { n: 2 })
  }, config)
  return [(await collection.get(`${key}-1`)).content, (await collection.get(`${key}-2`)).content]
}

export async function documents_are_replaced({ cluster, collection, key }) {
  await collection.upsert(key, { n: 1 })
  await cluster.transactions().run(async (attempt) => {
    const document = await attempt.get(collection, key)
    await attempt.replace(document, { n: document.content.n + 1 })
  }, config)
  return (await collection.get(key)).content
}

export async function documents_are_removed({ cluster, collection, key, fails }) {
  await collection.upsert(key, { n: 1 })
  await cluster.transactions().run(async (attempt) => {
    await attempt.remove(await attempt.get(collection, key))
  }, config)
  return await fails(collection.get(key))
}

export async function a_failure_changes_nothing({ cluster, collection, key }) {
  await collection.upsert(key, { n: 1 })
  try {
    await cluster.transactions().run(async (attempt) => {
      const document = await attempt.get(collection, key)
      await attempt.replace(document, { n: 2 })
      throw new Error('not today')
    }, config)
  } catch (error) {
    return [error instanceof TransactionFailedError, error.constructor.name, (await collection.get(key)).content]
  }
}

export async function money_moves({ cluster, collection, key }) {
  await collection.upsert(`${key}-a`, { balance: 100 })
  await collection.upsert(`${key}-b`, { balance: 0 })
  await cluster.transactions().run(async (attempt) => {
    const a = await attempt.get(collection, `${key}-a`)
    const b = await attempt.get(collection, `${key}-b`)
    await attempt.replace(a, { balance: a.content.balance - 30 })
    await attempt.replace(b, { balance: b.content.balance + 30 })
  }, config)
  return [(await collection.get(`${key}-a`)).content, (await collection.get(`${key}-b`)).content]
}

export async function own_writes_are_read({ cluster, collection, key }) {
  let read
  await cluster.transactions().run(async (attempt) => {
    await attempt.insert(collection, key, { n: 1 })
    read = (await attempt.get(collection, key)).content
  }, config)
  return read
}

export async function writes_are_not_seen_before_the_end({ cluster, collection, key }) {
  const seen = []
  await collection.upsert(key, { n: 1 })
  await cluster.transactions().run(async (attempt) => {
    await attempt.replace(await attempt.get(collection, key), { n: 2 })
    seen.push((await collection.get(key)).content.n)
  }, config)
  seen.push((await collection.get(key)).content.n)
  return seen
}

export async function documents_that_are_not_there({ cluster, collection, key }) {
  let found
  await cluster.transactions().run(async (attempt) => {
    try {
      await attempt.get(collection, key)
    } catch (error) {
      found = [error instanceof DocumentNotFoundError, error.constructor.name]
    }
  }, config)
  return found
}

export async function inserts_that_collide({ cluster, collection, key }) {
  await collection.upsert(key, 1)
  try {
    await cluster.transactions().run(async (attempt) => {
      await attempt.insert(collection, key, 2)
    }, config)
  } catch (error) {
    return [error.constructor.name, error.cause?.constructor.name, (await collection.get(key)).content]
  }
}

export async function a_counter_turn_by_turn({ cluster, collection, key }) {
  await collection.upsert(key, { n: 0 })
  const add = () =>
    cluster.transactions().run(async (attempt) => {
      const document = await attempt.get(collection, key)
      await attempt.replace(document, { n: document.content.n + 1 })
    }, config)
  for (let turn = 0; turn < 3; turn++) await add()
  return (await collection.get(key)).content
}

export async function statements_in_a_transaction({ cluster, bucket, scope, key }) {
  const people = `\`${bucket.name}\`.\`${scope.name}\`.people`
  const collection = scope.collection('people')
  await cluster.transactions().run(async (attempt) => {
    await attempt.query(`INSERT INTO ${people} (KEY, VALUE) VALUES ($1, {"n": 5})`, { parameters: [key] })
    await attempt.query(`UPDATE ${people} USE KEYS [$1] SET n = n + 1`, { parameters: [key] })
  }, config)
  return (await collection.get(key)).content
}

export async function a_statement_that_fails({ cluster, scope, fails }) {
  return await fails(
    cluster.transactions().run(async (attempt) => {
      await attempt.query('SELEKT', { scope })
    }, config),
  )
}

export async function results_say_how_it_went({ cluster, collection, key }) {
  const result = await cluster.transactions().run(async (attempt) => {
    await attempt.insert(collection, key, { a: 1 })
  }, config)
  return [typeof result.transactionId, result.unstagingComplete]
}

export async function several_documents_at_once({ cluster, collection, key }) {
  await collection.upsert(`${key}-1`, { n: 1 })
  let found
  await cluster.transactions().run(async (attempt) => {
    const specs = [`${key}-1`, `${key}-2`].map((id) => new TransactionGetMultiSpec(collection, id))
    const result = await attempt.getMulti(specs)
    found = [result.exists(0), result.contentAt(0), result.exists(1)]
  }, config)
  return found
}

export async function fields_of_documents({ cluster, collection, key }) {
  await collection.upsert(key, { n: 1 })
  let found
  await cluster.transactions().run(async (attempt) => {
    const { content, cas, id } = await attempt.get(collection, key)
    found = [content, typeof cas.toString(), id.key === key || id.id === key]
  }, config)
  return found
}

export async function near_copies_of_documents_are_read({ cluster, collection, key }) {
  const { DocumentUnretrievableError, TransactionGetMultiReplicasFromPreferredServerGroupSpec: Spec } = couchbase
  await collection.upsert(key, { n: 1 })
  let seen
  await cluster.transactions().run(async (attempt) => {
    const none = await attempt.getReplicaFromPreferredServerGroup(collection, `${key}-none`).catch((error) => error)
    const document = await attempt.getReplicaFromPreferredServerGroup(collection, key)
    await attempt.replace(document, { n: 2 })
    const specs = [new Spec(collection, key), new Spec(collection, `${key}-none`)]
    const several = await attempt.getMultiReplicasFromPreferredServerGroup(specs)
    const found = [several.exists(0), several.exists(1), several.contentAt(0)]
    seen = [none instanceof DocumentUnretrievableError, document.content, ...found]
  }, config)
  return [...seen, (await collection.get(key)).content]
}
