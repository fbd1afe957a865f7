// Counters, bytes, transcoders, data structures, scans.

import * as couchbase from 'couchbase'

const { DefaultTranscoder, MutationState, PrefixScan, RangeScan, SamplingScan, ScanTerm } = couchbase

export async function counter_begins({ collection, key }) {
  const result = await collection.binary().increment(key, 5, { initial: 10 })
  return [result.value, String(result.cas) !== '0']
}

export async function counter_goes_up_and_down({ collection, key }) {
  const binary = collection.binary()
  await binary.increment(key, 1, { initial: 10 })
  const up = await binary.increment(key, 5)
  const down = await binary.decrement(key, 3)
  return [up.value, down.value, (await collection.get(key)).content]
}

export async function counter_stops_at_zero({ collection, key }) {
  await collection.binary().increment(key, 1, { initial: 2 })
  return (await collection.binary().decrement(key, 100)).value
}

export async function counter_without_a_beginning({ collection, key, fails }) {
  return await fails(collection.binary().increment(key, 1))
}

export async function counter_of_text({ collection, key, fails }) {
  await collection.upsert(key, { no: 'number' })
  return await fails(collection.binary().increment(key, 1))
}

export async function counter_expires({ collection, key }) {
  await collection.binary().increment(key, 1, { initial: 1, expiry: 1000 })
  return (await collection.get(key, { withExpiry: true })).expiryTime > 0
}

export async function append_and_prepend({ collection, key }) {
  const transcoder = { encode: (value) => [Buffer.from(value), 0], decode: (bytes) => bytes.toString() }
  await collection.upsert(key, 'b', { transcoder })
  await collection.binary().append(key, 'c')
  await collection.binary().prepend(key, Buffer.from('a'))
  return (await collection.get(key, { transcoder })).content
}

export async function append_to_nothing({ collection, key, fails }) {
  return await fails(collection.binary().append(key, 'x'))
}

export async function append_with_an_old_cas({ collection, key, fails }) {
  const { cas } = await collection.upsert(key, Buffer.from('a'))
  await collection.binary().append(key, 'b', { cas })
  return await fails(collection.binary().append(key, 'c', { cas }))
}

export async function transcoder_of_ones_own({ collection, key }) {
  class Reversed {
    encode(value) {
      return [Buffer.from([...JSON.stringify(value)].reverse().join('')), 1234]
    }
    decode(bytes, flags) {
      return [JSON.parse([...bytes.toString()].reverse().join('')), flags]
    }
  }
  await collection.upsert(key, { a: 1 }, { transcoder: new Reversed() })
  return (await collection.get(key, { transcoder: new Reversed() })).content
}

export async function default_transcoder_alone() {
  const transcoder = new DefaultTranscoder()
  const [bytes, flags] = transcoder.encode({ a: 1 })
  const [text, textFlags] = transcoder.encode('hello')
  const [raw, rawFlags] = transcoder.encode(Buffer.from('x'))
  return [bytes.toString(), flags, text.toString(), textFlags, raw.toString(), rawFlags, transcoder.decode(bytes, flags)]
}

// The packages differ in the error class.
const isCouchbaseError = (promise) => promise.then(() => false, (error) => error instanceof couchbase.CouchbaseError)

export async function lists({ collection, key }) {
  const list = collection.list(key)
  await list.push('b')
  await list.push('c')
  await list.unshift('a')
  const seen = []
  await list.forEach((value, index) => seen.push([value, index]))
  const iterated = []
  for await (const value of list) iterated.push(value)
  return [await list.getAll(), await list.getAt(1), await list.size(), await list.indexOf('c'), await list.indexOf('z'), seen, iterated]
}

export async function lists_lose_entries({ collection, key, fails }) {
  const list = collection.list(key)
  for (const value of [1, 2, 3]) await list.push(value)
  await list.removeAt(1)
  return [await list.getAll(), await fails(list.getAt(9)), await fails(list.removeAt(9))]
}

export async function maps({ collection, key, fails }) {
  const map = collection.map(key)
  await map.set('a', 1)
  await map.set('b', { c: 2 })
  const seen = []
  await map.forEach((value, name) => seen.push([name, value]))
  const found = [await map.get('b'), await map.size(), await map.exists('a'), await map.exists('z'), await map.keys(), await map.values()]
  await map.remove('a')
  return [found, seen, await map.getAll(), await fails(map.get('a')), await fails(map.remove('a'))]
}

export async function maps_are_iterated({ collection, key }) {
  const map = collection.map(key)
  await map.set('x', 1)
  const entries = []
  for await (const entry of map) entries.push(entry)
  return entries
}

export async function queues({ collection, key }) {
  const queue = collection.queue(key)
  for (const value of [1, 2, 3]) await queue.push(value)
  const size = await queue.size()
  const popped = [await queue.pop(), await queue.pop(), await queue.pop()]
  return [size, popped, await isCouchbaseError(queue.pop())]
}

export async function sets({ collection, key }) {
  const set = collection.set(key)
  const added = [await set.add('a'), await set.add('b'), await set.add('a')]
  const found = [await set.contains('a'), await set.contains('z'), await set.size()]
  await set.remove('a')
  return [added, found, await set.values(), await isCouchbaseError(set.remove('zzz'))]
}

export async function structures_of_nothing({ collection, key, fails }) {
  return [await fails(collection.list(key).getAll()), await fails(collection.map(key).get('a')), await isCouchbaseError(collection.queue(key).pop())]
}

async function filled(scope, key) {
  const collection = scope.collection('scanned')
  for (let index = 0; index < 12; index += 1) {
    await collection.upsert(`${key}-${String(index).padStart(2, '0')}`, { index })
  }
  return collection
}

const consistent = (results) => ({ consistentWith: new MutationState(...results.map(({ token }) => token)) })

export async function scan_of_a_prefix({ scope, key }) {
  const collection = await filled(scope, key)
  const found = await collection.scan(new PrefixScan(`${key}-`), { timeout: 50_000 })
  return found.map(({ id, content }) => [id.slice(key.length), content.index]).sort()
}

export async function scan_of_a_range({ scope, key }) {
  const collection = await filled(scope, key)
  const scan = new RangeScan(new ScanTerm(`${key}-03`), new ScanTerm(`${key}-06`, true))
  const found = await collection.scan(scan, { timeout: 50_000 })
  return found.map(({ id }) => id.slice(key.length)).sort()
}

export async function scan_of_keys_alone({ scope, key }) {
  const collection = await filled(scope, key)
  const found = await collection.scan(new PrefixScan(`${key}-0`), { idsOnly: true, timeout: 50_000 })
  return found.map(({ id, content }) => [id.slice(key.length), content ?? null]).sort()
}

export async function scan_of_a_sample({ scope, key }) {
  const collection = await filled(scope, key)
  const found = await collection.scan(new SamplingScan(5, 42), { timeout: 50_000 })
  return found.length
}

export async function scan_of_nothing({ scope, key }) {
  return (await scope.collection('scanned').scan(new PrefixScan(`${key}-none`), { timeout: 50_000 })).length
}

export async function scan_by_events({ scope, key }) {
  const collection = await filled(scope, key)
  const stream = collection.scan(new PrefixScan(`${key}-`), { timeout: 50_000 })
  let count = 0
  return await new Promise((resolve, reject) => {
    stream.on('result', () => (count += 1))
    stream.on('error', reject)
    stream.on('end', () => resolve(count))
  })
}

export async function scan_after_writes({ scope, key }) {
  const collection = scope.collection('scanned')
  const written = await Promise.all([1, 2, 3].map((each) => collection.upsert(`${key}-${each}`, each)))
  const { consistentWith } = consistent(written)
  return (await collection.scan(new PrefixScan(`${key}-`), { consistentWith, timeout: 50_000 })).length
}

export async function sample_of_less_than_one({ scope, fails }) {
  const outcome = async () => await scope.collection('scanned').scan(new SamplingScan(0), { timeout: 5000 })
  return await fails(outcome())
}

export async function mutation_states_are_json({ collection, key }) {
  const one = await collection.upsert(`${key}-1`, 1)
  const two = await collection.upsert(`${key}-2`, 2)
  const text = JSON.stringify(new MutationState(one.token, two.token))
  return [text.includes('default'), JSON.parse(JSON.stringify(one.token)).bucket_name]
}
