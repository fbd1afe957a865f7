// Parts of documents, extended attributes, macros.

import { LookupInMacro, LookupInSpec, MutateInMacro, MutateInSpec, StoreSemantics } from 'couchbase'

const values = ({ content }) => content.map(({ value, error }) => (error ? error.constructor.name : (value ?? null)))

const PERSON = { name: 'Ada', tags: ['x', 'y'], address: { city: 'Ulm', zip: '89073' }, visits: 3 }

export async function lookup_of_a_path({ collection, key }) {
  await collection.upsert(key, PERSON)
  return values(await collection.lookupIn(key, [LookupInSpec.get('address.city')]))
}

export async function lookup_of_several({ collection, key }) {
  await collection.upsert(key, PERSON)
  const specs = [LookupInSpec.get('name'), LookupInSpec.exists('visits'), LookupInSpec.count('tags'), LookupInSpec.get('tags[-1]')]
  return values(await collection.lookupIn(key, specs))
}

export async function lookup_of_what_is_not_there({ collection, key }) {
  await collection.upsert(key, PERSON)
  return values(await collection.lookupIn(key, [LookupInSpec.get('none'), LookupInSpec.exists('none'), LookupInSpec.get('name')]))
}

export async function lookup_of_a_mismatch({ collection, key }) {
  await collection.upsert(key, PERSON)
  return values(await collection.lookupIn(key, [LookupInSpec.get('name.first'), LookupInSpec.count('name')]))
}

export async function lookup_of_a_bad_path({ collection, key }) {
  await collection.upsert(key, PERSON)
  return values(await collection.lookupIn(key, [LookupInSpec.get('a..b'), LookupInSpec.get('tags[')]))
}

export async function lookup_of_the_whole({ collection, key }) {
  await collection.upsert(key, { a: [1] })
  return values(await collection.lookupIn(key, [LookupInSpec.get('')]))
}

export async function lookup_in_nothing({ collection, key, fails }) {
  return await fails(collection.lookupIn(key, [LookupInSpec.get('a')]))
}

export async function lookup_in_what_is_no_json({ collection, key }) {
  await collection.upsert(key, Buffer.from('no json'))
  return values(await collection.lookupIn(key, [LookupInSpec.get('a')]))
}

export async function lookup_has_a_cas({ collection, key }) {
  const { cas } = await collection.upsert(key, PERSON)
  const found = await collection.lookupIn(key, [LookupInSpec.get('name')])
  return String(found.cas) === String(cas)
}

export async function lookup_of_xattrs({ collection, key }) {
  await collection.upsert(key, PERSON)
  await collection.mutateIn(key, [MutateInSpec.upsert('audit.by', 'me', { xattr: true, createPath: true })])
  return values(await collection.lookupIn(key, [LookupInSpec.get('audit', { xattr: true }), LookupInSpec.get('name')]))
}

export async function lookup_of_macros({ collection, key }) {
  const { cas } = await collection.upsert(key, PERSON)
  const found = await collection.lookupIn(key, [
    LookupInSpec.get(LookupInMacro.IsDeleted),
    LookupInSpec.get(LookupInMacro.ValueSizeBytes),
    LookupInSpec.get(LookupInMacro.Cas),
    LookupInSpec.get(LookupInMacro.Expiry),
  ])
  const [deleted, size, hex, expiry] = found.content.map(({ value }) => value)
  const swapped = Buffer.from(hex.slice(2), 'hex').readBigUInt64BE()
  return [deleted, size > 0, typeof hex, swapped === BigInt(cas.toString()) || swapped > 0n, expiry]
}

export async function lookup_of_the_document_macro({ collection, key }) {
  await collection.upsert(key, PERSON)
  const found = await collection.lookupIn(key, [LookupInSpec.get(LookupInMacro.Document)])
  return Object.keys(found.content[0].value).includes('CAS')
}

export async function lookup_in_replicas({ collection, key }) {
  await collection.upsert(key, PERSON)
  const specs = [LookupInSpec.get('name'), LookupInSpec.count('tags')]
  const any = await collection.lookupInAnyReplica(key, specs)
  const all = await collection.lookupInAllReplicas(key, specs)
  return [values(any), typeof any.isReplica, all.map(values)]
}

export async function mutate_one({ collection, key }) {
  await collection.upsert(key, PERSON)
  await collection.mutateIn(key, [MutateInSpec.upsert('name', 'Bob')])
  return (await collection.get(key)).content
}

export async function mutate_several({ collection, key }) {
  await collection.upsert(key, PERSON)
  await collection.mutateIn(key, [
    MutateInSpec.replace('address.city', 'Bonn'),
    MutateInSpec.insert('address.street', 'A'),
    MutateInSpec.remove('tags[0]'),
    MutateInSpec.increment('visits', 2),
    MutateInSpec.decrement('visits', 1),
  ])
  return (await collection.get(key)).content
}

export async function mutate_arrays({ collection, key }) {
  await collection.upsert(key, { list: [2] })
  await collection.mutateIn(key, [
    MutateInSpec.arrayAppend('list', 3),
    MutateInSpec.arrayPrepend('list', 1),
    MutateInSpec.arrayInsert('list[1]', 'between'),
    MutateInSpec.arrayAddUnique('list', 9),
  ])
  return (await collection.get(key)).content
}

export async function mutate_arrays_by_many({ collection, key }) {
  await collection.upsert(key, { list: ['m'] })
  await collection.mutateIn(key, [
    MutateInSpec.arrayAppend('list', ['x', 'y'], { multi: true }),
    MutateInSpec.arrayPrepend('list', ['a', 'b'], { multi: true }),
    MutateInSpec.arrayAppend('list', ['as', 'one']),
  ])
  return (await collection.get(key)).content
}

export async function mutate_with_new_paths({ collection, key }) {
  await collection.upsert(key, {})
  await collection.mutateIn(key, [
    MutateInSpec.upsert('a.b.c', 1, { createPath: true }),
    MutateInSpec.arrayAppend('x.list', 1, { createPath: true }),
    MutateInSpec.increment('n.count', 5, { createPath: true }),
  ])
  return (await collection.get(key)).content
}

export async function mutate_without_new_paths({ collection, key, fails }) {
  await collection.upsert(key, {})
  return await fails(collection.mutateIn(key, [MutateInSpec.upsert('a.b.c', 1)]))
}

export async function mutate_existing_paths({ collection, key, fails }) {
  await collection.upsert(key, PERSON)
  const existing = await fails(collection.mutateIn(key, [MutateInSpec.insert('name', 'x')]))
  const unique = await fails(collection.mutateIn(key, [MutateInSpec.arrayAddUnique('tags', 'x')]))
  const missing = await fails(collection.mutateIn(key, [MutateInSpec.replace('none', 1)]))
  const removed = await fails(collection.mutateIn(key, [MutateInSpec.remove('none')]))
  return { existing, unique, missing, removed }
}

export async function mutate_what_does_not_fit({ collection, key, fails }) {
  await collection.upsert(key, PERSON)
  return [
    await fails(collection.mutateIn(key, [MutateInSpec.increment('name', 1)])),
    await fails(collection.mutateIn(key, [MutateInSpec.arrayAppend('name', 1)])),
    await fails(collection.mutateIn(key, [MutateInSpec.upsert('name.first', 1)])),
  ]
}

export async function mutations_are_all_or_nothing({ collection, key, fails }) {
  await collection.upsert(key, PERSON)
  const error = await fails(collection.mutateIn(key, [MutateInSpec.upsert('name', 'Bob'), MutateInSpec.replace('none', 1)]))
  return { error, content: (await collection.get(key)).content }
}

export async function counters_give_their_value({ collection, key }) {
  await collection.upsert(key, { n: 40 })
  const result = await collection.mutateIn(key, [MutateInSpec.increment('n', 2), MutateInSpec.upsert('a', 1)])
  return result.content.map((entry) => entry?.value ?? null)
}

export async function mutate_with_a_cas({ collection, key, fails }) {
  const { cas } = await collection.upsert(key, PERSON)
  await collection.mutateIn(key, [MutateInSpec.upsert('name', 'B')], { cas })
  return await fails(collection.mutateIn(key, [MutateInSpec.upsert('name', 'C')], { cas }))
}

export async function mutate_nothing({ collection, key, fails }) {
  return await fails(collection.mutateIn(key, [MutateInSpec.upsert('a', 1)]))
}

export async function mutate_and_upsert({ collection, key }) {
  await collection.mutateIn(key, [MutateInSpec.upsert('a', 1)], { storeSemantics: StoreSemantics.Upsert })
  await collection.mutateIn(key, [MutateInSpec.upsert('b', 2)], { storeSemantics: StoreSemantics.Upsert })
  return (await collection.get(key)).content
}

export async function mutate_and_insert({ collection, key, fails }) {
  await collection.mutateIn(key, [MutateInSpec.upsert('a', 1)], { storeSemantics: StoreSemantics.Insert })
  const again = await fails(
    collection.mutateIn(key, [MutateInSpec.upsert('a', 2)], { storeSemantics: StoreSemantics.Insert }),
  )
  return { again, content: (await collection.get(key)).content }
}

export async function mutate_with_an_expiry({ collection, key }) {
  await collection.upsert(key, PERSON)
  await collection.mutateIn(key, [MutateInSpec.upsert('a', 1)], { expiry: 1000 })
  const first = await collection.get(key, { withExpiry: true })
  await collection.mutateIn(key, [MutateInSpec.upsert('a', 2)], { preserveExpiry: true })
  const second = await collection.get(key, { withExpiry: true })
  return [first.expiryTime > 0, second.expiryTime === first.expiryTime]
}

export async function mutate_with_macros({ collection, key }) {
  await collection.upsert(key, {})
  await collection.mutateIn(key, [
    MutateInSpec.upsert('audit.cas', MutateInMacro.Cas, { createPath: true }),
    MutateInSpec.upsert('audit.seqno', MutateInMacro.SeqNo, { createPath: true }),
    MutateInSpec.upsert('audit.crc', MutateInMacro.ValueCrc32c, { createPath: true }),
  ])
  const found = await collection.lookupIn(key, [LookupInSpec.get('audit', { xattr: true })])
  const { cas, seqno, crc } = found.content[0].value
  return [cas, seqno, crc].map((text) => /^0x[0-9a-f]+$/.test(text))
}

export async function xattrs_stay_out_of_the_value({ collection, key }) {
  await collection.upsert(key, { a: 1 })
  await collection.mutateIn(key, [MutateInSpec.upsert('meta', { by: 'x' }, { xattr: true })])
  return (await collection.get(key)).content
}

export async function a_whole_document_by_path({ collection, key }) {
  await collection.mutateIn(
    key,
    [MutateInSpec.upsert('made', { by: 'x' }, { xattr: true }), MutateInSpec.replace('', { whole: true })],
    { storeSemantics: StoreSemantics.Upsert },
  )
  return (await collection.get(key)).content
}

export async function remove_by_path({ collection, key, fails }) {
  await collection.upsert(key, { a: 1 })
  await collection.mutateIn(key, [MutateInSpec.remove('')])
  return await fails(collection.get(key))
}

export async function lookup_by_callback({ collection, key }) {
  await collection.upsert(key, PERSON)
  return await new Promise((resolve, reject) => {
    collection.lookupIn(key, [LookupInSpec.get('name')], (error, result) => (error ? reject(error) : resolve(values(result))))
  })
}

export async function names_with_dots_and_quotes({ collection, key }) {
  await collection.upsert(key, { 'a.b': 1, 'c`d': 2, 'é': 3, '': 4 })
  return values(await collection.lookupIn(key, [LookupInSpec.get('`a.b`'), LookupInSpec.get('`c``d`'), LookupInSpec.get('é')]))
}

export async function deep_paths({ collection, key }) {
  let document = { end: true }
  const path = []
  for (let depth = 0; depth < 25; depth += 1) {
    document = { [`l${depth}`]: document }
    path.unshift(`l${depth}`)
  }
  await collection.upsert(key, document)
  return values(await collection.lookupIn(key, [LookupInSpec.get([...path, 'end'].join('.'))]))
}

export async function sixteen_specs_are_the_most({ collection, key, fails }) {
  await collection.upsert(key, PERSON)
  const specs = Array.from({ length: 16 }, () => LookupInSpec.get('name'))
  const found = await collection.lookupIn(key, specs)
  return [found.content.length, (await fails(collection.lookupIn(key, [...specs, ...specs]))) !== null]
}
