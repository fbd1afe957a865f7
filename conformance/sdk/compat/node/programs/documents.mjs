// Whole documents: reads, writes, CAS, expiry, locks.

import * as couchbase from 'couchbase'

const { DocumentExistsError, DocumentNotFoundError, CasMismatchError, DocumentLockedError } = couchbase

export async function upsert_and_get({ collection, key }) {
  await collection.upsert(key, { name: 'Ada', tags: ['a', 'b'] })
  const result = await collection.get(key)
  return result.content
}

export async function upsert_gives_a_cas({ collection, key }) {
  const result = await collection.upsert(key, 1)
  const { cas } = await collection.get(key)
  return { equal: String(result.cas) === String(cas), empty: String(cas) === '0' }
}

export async function upsert_gives_a_token({ collection, key }) {
  const { token } = await collection.upsert(key, 1)
  const json = JSON.parse(JSON.stringify(token))
  return { there: token !== undefined, bucket: json.bucket_name }
}

export async function upsert_overwrites({ collection, key }) {
  await collection.upsert(key, { a: 1 })
  await collection.upsert(key, { b: 2 })
  return (await collection.get(key)).content
}

export async function insert_is_refused_twice({ collection, key, fails }) {
  await collection.insert(key, { a: 1 })
  const error = await fails(collection.insert(key, { a: 2 }))
  return { error, content: (await collection.get(key)).content, kind: typeof DocumentExistsError }
}

export async function replace_needs_a_document({ collection, key, fails }) {
  return await fails(collection.replace(key, { a: 1 }))
}

export async function replace_with_its_cas({ collection, key }) {
  const { cas } = await collection.upsert(key, { n: 1 })
  const replaced = await collection.replace(key, { n: 2 }, { cas })
  return { content: (await collection.get(key)).content, moved: String(replaced.cas) !== String(cas) }
}

export async function replace_with_an_old_cas({ collection, key, fails }) {
  const { cas } = await collection.upsert(key, { n: 1 })
  await collection.upsert(key, { n: 2 })
  const error = await fails(collection.replace(key, { n: 3 }, { cas }))
  return { error, content: (await collection.get(key)).content }
}

export async function cas_mismatch_is_an_instance({ collection, key }) {
  const { cas } = await collection.upsert(key, { n: 1 })
  await collection.upsert(key, { n: 2 })
  try {
    await collection.replace(key, { n: 3 }, { cas })
  } catch (error) {
    return {
      mismatch: error instanceof CasMismatchError,
      base: error instanceof couchbase.CouchbaseError,
      plain: error instanceof Error,
    }
  }
}

export async function cas_goes_through_a_string({ collection, key }) {
  const { cas } = await collection.upsert(key, { n: 1 })
  await collection.replace(key, { n: 2 }, { cas: cas.toString() })
  return (await collection.get(key)).content
}

export async function remove_and_get({ collection, key, fails }) {
  await collection.insert(key, 'x')
  await collection.remove(key)
  return await fails(collection.get(key))
}

export async function remove_needs_a_document({ collection, key, fails }) {
  return await fails(collection.remove(key))
}

export async function remove_with_an_old_cas({ collection, key, fails }) {
  const { cas } = await collection.upsert(key, 1)
  await collection.upsert(key, 2)
  return [await fails(collection.remove(key, { cas })), (await collection.exists(key)).exists]
}

export async function get_of_nothing({ collection, key }) {
  try {
    await collection.get(key)
  } catch (error) {
    return { found: error instanceof DocumentNotFoundError, name: error.constructor.name }
  }
}

export async function errors_have_a_context({ collection, key }) {
  try {
    await collection.get(key)
  } catch (error) {
    const { context } = error
    return { context: context !== undefined, kind: typeof context }
  }
}

export async function exists_and_not({ collection, key }) {
  const before = await collection.exists(key)
  await collection.upsert(key, 1)
  const after = await collection.exists(key)
  return [before.exists, after.exists, after.cas !== undefined]
}

export async function exists_after_remove({ collection, key }) {
  await collection.upsert(key, 1)
  await collection.remove(key)
  return (await collection.exists(key)).exists
}

export async function get_with_expiry({ collection, key }) {
  const at = Math.floor(Date.now() / 1000) + 3600
  await collection.upsert(key, 1, { expiry: 3600 })
  const { expiryTime } = await collection.get(key, { withExpiry: true })
  return Math.abs(expiryTime - at) < 60
}

export async function get_without_expiry({ collection, key }) {
  await collection.upsert(key, { a: 1 })
  const result = await collection.get(key, { withExpiry: true })
  return { content: result.content, expiry: result.expiryTime ?? null }
}

export async function preserve_expiry({ collection, key }) {
  await collection.upsert(key, 1, { expiry: 3600 })
  await collection.upsert(key, 2, { preserveExpiry: true })
  const kept = await collection.get(key, { withExpiry: true })
  await collection.upsert(key, 3)
  const cleared = await collection.get(key, { withExpiry: true })
  return [kept.content, kept.expiryTime > 0, cleared.content, Boolean(cleared.expiryTime)]
}

export async function replace_preserves_expiry({ collection, key }) {
  await collection.upsert(key, 1, { expiry: 3600 })
  await collection.replace(key, 2, { preserveExpiry: true })
  const kept = await collection.get(key, { withExpiry: true })
  return [kept.content, kept.expiryTime > 0]
}

export async function get_with_a_projection({ collection, key }) {
  await collection.upsert(key, { name: { first: 'A', last: 'B' }, age: 3, tags: [1, 2] })
  return (await collection.get(key, { project: ['name.first', 'tags'] })).content
}

export async function get_with_one_projected_path({ collection, key }) {
  await collection.upsert(key, { a: 1, b: 2 })
  return (await collection.get(key, { project: ['b'] })).content
}

export async function get_projects_many_paths({ collection, key }) {
  const document = Object.fromEntries(Array.from({ length: 24 }, (_, index) => [`field${index}`, index]))
  await collection.upsert(key, document)
  const project = Object.keys(document).slice(0, 20)
  return (await collection.get(key, { project })).content
}

export async function get_projects_what_is_not_there({ collection, key }) {
  await collection.upsert(key, { a: 1 })
  return (await collection.get(key, { project: ['a', 'none'] })).content
}

export async function touch_sets_an_expiry({ collection, key }) {
  await collection.upsert(key, { a: 1 })
  const touched = await collection.touch(key, 1000)
  const { expiryTime, content } = await collection.get(key, { withExpiry: true })
  return [touched.cas !== undefined, expiryTime > 0, content]
}

export async function get_and_touch({ collection, key }) {
  await collection.upsert(key, { a: 1 })
  const result = await collection.getAndTouch(key, 1000)
  const { expiryTime } = await collection.get(key, { withExpiry: true })
  return [result.content, expiryTime > 0]
}

export async function touch_of_nothing({ collection, key, fails }) {
  return [await fails(collection.touch(key, 1)), await fails(collection.getAndTouch(key, 1))]
}

export async function lock_and_unlock({ collection, key }) {
  await collection.upsert(key, { a: 1 })
  const { cas, content } = await collection.getAndLock(key, 15)
  await collection.unlock(key, cas)
  await collection.upsert(key, { a: 2 })
  return [content, (await collection.get(key)).content]
}

export async function lock_and_replace({ collection, key }) {
  await collection.upsert(key, { a: 1 })
  const { cas } = await collection.getAndLock(key, 15)
  await collection.replace(key, { a: 2 }, { cas })
  return (await collection.get(key)).content
}

export async function unlock_with_another_cas({ collection, key, fails }) {
  const { cas: other } = await collection.upsert(`${key}-2`, 1)
  await collection.upsert(key, 1)
  const { cas } = await collection.getAndLock(key, 15)
  const error = await fails(collection.unlock(key, other))
  await collection.unlock(key, cas)
  return { error, kind: typeof DocumentLockedError }
}

export async function unlock_of_what_is_not_locked({ collection, key, fails }) {
  const { cas } = await collection.upsert(key, 1)
  return await fails(collection.unlock(key, cas))
}

export async function values_of_every_kind({ collection, key }) {
  const values = [null, true, false, 0, -1.5, 1e21, 'text', '', [], {}, [1, [2, [3]]], { a: { b: { c: null } } }, 'ümläut 💧']
  const read = []
  for (const [index, value] of values.entries()) {
    await collection.upsert(`${key}-${index}`, value)
    read.push((await collection.get(`${key}-${index}`)).content)
  }
  return read
}

export async function dates_become_text({ collection, key }) {
  await collection.upsert(key, { at: new Date(0) })
  return (await collection.get(key)).content
}

export async function undefined_members_are_left_out({ collection, key }) {
  await collection.upsert(key, { a: undefined, b: 1, c: [undefined] })
  return (await collection.get(key)).content
}

export async function buffers_stay_buffers({ collection, key }) {
  await collection.upsert(key, Buffer.from([0, 1, 254, 255]))
  const { content } = await collection.get(key)
  return { buffer: Buffer.isBuffer(content), bytes: [...content] }
}

export async function keys_in_every_script({ collection, key }) {
  const keys = [`${key}-é`, `${key}-日本`, `${key} with spaces`, `${key}/%2F?`]
  for (const each of keys) await collection.upsert(each, each.length)
  const read = await Promise.all(keys.map((each) => collection.get(each)))
  return read.map(({ content }) => content)
}

export async function keys_may_be_250_bytes({ collection, key }) {
  const long = key.padEnd(245, 'x')
  await collection.upsert(long, 1)
  return (await collection.get(long)).content
}

export async function large_documents({ collection, key }) {
  const content = { text: 'x'.repeat(2_000_000), list: Array.from({ length: 1000 }, (_, index) => index) }
  await collection.upsert(key, content, { timeout: 10_000 })
  const read = (await collection.get(key, { timeout: 10_000 })).content
  return [read.text.length, read.list.length, read.list[999]]
}

export async function a_hundred_at_once({ collection, key }) {
  const keys = Array.from({ length: 100 }, (_, index) => `${key}-${index}`)
  await Promise.all(keys.map((each, index) => collection.upsert(each, { index })))
  const read = await Promise.all(keys.map((each) => collection.get(each)))
  return read.reduce((sum, { content }) => sum + content.index, 0)
}

export async function settled_together({ collection, key }) {
  await collection.upsert(`${key}-1`, 1)
  const settled = await Promise.allSettled([collection.get(`${key}-1`), collection.get(`${key}-2`)])
  return settled.map(({ status, value, reason }) => [status, value?.content ?? reason.constructor.name])
}

export async function write_that_loses_a_race_is_repeated({ collection, key }) {
  await collection.upsert(key, { count: 0 })
  const add = async () => {
    for (;;) {
      const { content, cas } = await collection.get(key)
      try {
        return await collection.replace(key, { count: content.count + 1 }, { cas })
      } catch (error) {
        if (!(error instanceof CasMismatchError)) throw error
      }
    }
  }
  await Promise.all(Array.from({ length: 8 }, add))
  return (await collection.get(key)).content
}

export async function callback_of_get({ collection, key }) {
  await collection.upsert(key, { a: 1 })
  return await new Promise((resolve) => {
    collection.get(key, (error, result) => resolve([error, result.content]))
  })
}

export async function callback_of_an_error({ collection, key }) {
  return await new Promise((resolve) => {
    collection.get(key, (error, result) => resolve([error.constructor.name, result === null]))
  })
}

export async function callback_after_options({ collection, key }) {
  return await new Promise((resolve, reject) => {
    collection.upsert(key, { a: 1 }, { expiry: 100 }, (error) => {
      if (error) return reject(error)
      collection.exists(key, (failure, result) => (failure ? reject(failure) : resolve(result.exists)))
    })
  })
}

export async function names_on_the_way({ cluster, bucket, collection }) {
  return [bucket.name, collection.name, bucket.defaultScope().name, bucket.scope('s').collection('c').name, cluster.bucket('x').name]
}

export async function unknown_collection({ bucket, key, fails }) {
  const collection = bucket.scope('_default').collection('no_such_collection')
  const error = await fails(collection.get(key, { timeout: 1500 }))
  // The official package retries until its timeout.
  return ['CollectionNotFoundError', 'UnambiguousTimeoutError', 'AmbiguousTimeoutError'].includes(error)
}

export async function short_timeouts({ collection, key, fails }) {
  const error = await fails(collection.upsert(key, 'x'.repeat(5_000_000), { timeout: 1 }))
  return ['AmbiguousTimeoutError', 'UnambiguousTimeoutError'].includes(error)
}

export async function replicas_of_a_document({ collection, key, fails }) {
  await collection.upsert(key, { a: 1 })
  const any = await collection.getAnyReplica(key)
  const all = await collection.getAllReplicas(key)
  return [any.content, typeof any.isReplica, all.map(({ content }) => content)]
}

export async function replicas_as_a_stream({ collection, key }) {
  await collection.upsert(key, { a: 1 })
  const stream = collection.getAllReplicas(key)
  const found = []
  return await new Promise((resolve, reject) => {
    stream.on('replica', (replica) => found.push(replica.content))
    stream.on('error', reject)
    stream.on('end', () => resolve(found))
  })
}

export async function replicas_of_nothing({ collection, key, fails }) {
  return await fails(collection.getAnyReplica(key))
}

export async function durability_none({ collection, key }) {
  await collection.upsert(key, 1, { durabilityLevel: couchbase.DurabilityLevel.None })
  return (await collection.get(key)).content
}

export async function durability_majority({ collection, key }) {
  await collection.upsert(key, 1, { durabilityLevel: couchbase.DurabilityLevel.Majority, timeout: 10_000 })
  await collection.replace(key, 2, { durabilityLevel: couchbase.DurabilityLevel.PersistToMajority, timeout: 10_000 })
  return (await collection.get(key)).content
}

export async function durability_of_removes({ collection, key, fails }) {
  await collection.upsert(key, 1)
  await collection.remove(key, { durabilityLevel: couchbase.DurabilityLevel.MajorityAndPersistOnMaster, timeout: 10_000 })
  return await fails(collection.get(key))
}

export async function durability_persist_to({ collection, key }) {
  await collection.insert(key, 1, { durabilityPersistTo: 1, timeout: 10_000 })
  return (await collection.get(key)).content
}

export async function lists_of_constants() {
  const { DurabilityLevel, StoreSemantics, ServiceType } = couchbase
  return { DurabilityLevel, StoreSemantics, ServiceType }
}

export async function invalid_arguments({ collection, fails, key }) {
  const expiry = await fails((async () => collection.upsert(key, 1, { expiry: 'soon' }))())
  return { refused: expiry !== null }
}
