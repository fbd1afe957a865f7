/** Parts of documents and extended attributes. */

import assert from 'node:assert/strict'

import * as nacre from '../../src/index.js'
import { LookupInSpec as Lookup, MutateInSpec as Mutate } from '../../src/index.js'
import { nodeTest } from './node.js'

nodeTest('parts are found in the order asked', async ({ collection, key }) => {
  await collection.upsert(key, { a: { b: [1, 2] }, s: 'é' })
  await collection.mutateIn(key, [Mutate.upsert('meta', { x: 1 }, { xattr: true })])
  const { content } = await collection.lookupIn(key, [
    Lookup.get('a.b[-1]'),
    Lookup.exists('s'),
    Lookup.get('meta.x', { xattr: true }),
    Lookup.count('a.b'),
    Lookup.get('none'),
    Lookup.exists('none'),
    Lookup.get(''),
  ])
  const values = [2, true, 1, 2, undefined, false, { a: { b: [1, 2] }, s: 'é' }]
  assert.deepEqual(content.map(({ value }) => value), values)
  const { error } = content[4]!
  assert(error instanceof nacre.PathNotFoundError)
  assert.equal(error.context.key, key)
})

nodeTest('paths that do not fit the document have their own errors', async ({ collection, key }) => {
  await collection.upsert(key, { a: 1 })
  const { content } = await collection.lookupIn(key, [Lookup.get('a.b'), Lookup.get('a[')])
  assert(content[0]!.error instanceof nacre.PathMismatchError)
  assert(content[1]!.error instanceof nacre.PathInvalidError)
})

nodeTest('every kind of change is made', async ({ collection, key }) => {
  await collection.upsert(key, { list: [2], old: 1, gone: 1, n: 5 })
  const result = await collection.mutateIn(key, [
    Mutate.insert('new', 'x'),
    Mutate.upsert('deep.er', 1, { createPath: true }),
    Mutate.replace('old', 2),
    Mutate.remove('gone'),
    Mutate.arrayAppend('list', [4, 5], { multi: true }),
    Mutate.arrayPrepend('list', 1),
    Mutate.arrayInsert('list[2]', 3),
    Mutate.arrayAddUnique('list', 6),
    Mutate.increment('n', 10),
    Mutate.decrement('m', 3),
  ])
  assert.deepEqual((await collection.get(key)).content, {
    list: [1, 2, 3, 4, 5, 6],
    old: 2,
    n: 15,
    m: -3,
    new: 'x',
    deep: { er: 1 },
  })
  assert.deepEqual(result.content.slice(7), [undefined, { value: 15 }, { value: -3 }])
  assert(result.token)
})

nodeTest('a spec that fails is named, and nothing changes', async ({ collection, key }) => {
  await collection.upsert(key, { list: [1], s: 'x' })
  const cases: [Mutate, Function][] = [
    [Mutate.replace('none', 1), nacre.PathNotFoundError],
    [Mutate.insert('s', 1), nacre.PathExistsError],
    [Mutate.arrayAppend('s', 1), nacre.PathMismatchError],
    [Mutate.arrayAddUnique('list', 1), nacre.PathExistsError],
    [Mutate.upsert('no.parents', 1), nacre.PathNotFoundError],
    [Mutate.increment('s', 1), nacre.PathMismatchError],
  ]
  for (const [spec, kind] of cases) {
    await assert.rejects(collection.mutateIn(key, [Mutate.upsert('first', 1), spec]), (error) => {
      assert(error instanceof nacre.CouchbaseError && error instanceof kind, String(error))
      assert(error.context.detail?.includes(spec.path))
      return true
    })
  }
  assert.deepEqual((await collection.get(key)).content, { list: [1], s: 'x' })
})

nodeTest('counters come back where they were asked for', async ({ collection, key }) => {
  await collection.upsert(key, {})
  const specs = [Mutate.upsert('a', 1), Mutate.increment('c', 7), Mutate.upsert('x', 1, { xattr: true })]
  assert.deepEqual((await collection.mutateIn(key, specs)).content, [undefined, { value: 7 }, undefined])
})

nodeTest('semantics say whether the document may exist', async ({ collection, key }) => {
  const specs = [Mutate.upsert('a', 1)]
  await assert.rejects(collection.mutateIn(key, specs), nacre.DocumentNotFoundError)
  await collection.mutateIn(key, specs, { storeSemantics: nacre.StoreSemantics.Upsert })
  assert.deepEqual((await collection.get(key)).content, { a: 1 })
  const insert = collection.mutateIn(key, specs, { storeSemantics: nacre.StoreSemantics.Insert })
  await assert.rejects(insert, nacre.DocumentExistsError)
})

nodeTest('a stale cas is refused', async ({ collection, key }) => {
  const { cas } = await collection.upsert(key, {})
  await collection.mutateIn(key, [Mutate.upsert('a', 1)], { cas })
  await assert.rejects(collection.mutateIn(key, [Mutate.upsert('a', 2)], { cas }), nacre.CasMismatchError)
})

nodeTest('the expiry is set and preserved', async ({ collection, key }) => {
  await collection.upsert(key, {})
  await collection.mutateIn(key, [Mutate.upsert('a', 1)], { expiry: 3600 })
  await collection.mutateIn(key, [Mutate.upsert('b', 1)], { preserveExpiry: true })
  const { content, expiryTime } = await collection.get(key, { withExpiry: true })
  assert.deepEqual(content, { a: 1, b: 1 })
  assert(expiryTime)
})

nodeTest('attributes expand macros and stay out of the document', async ({ collection, key }) => {
  await collection.upsert(key, {})
  const specs = [Mutate.upsert('own.cas', '${Mutation.CAS}', { createPath: true, xattr: true })]
  const { cas } = await collection.mutateIn(key, specs)
  const { content } = await collection.lookupIn(key, [Lookup.get('own.cas', { xattr: true })])
  const swapped = Buffer.alloc(8)
  swapped.writeBigUInt64LE(cas)
  assert.equal(content[0]!.value, `0x${swapped.toString('hex')}`)
  assert.deepEqual((await collection.get(key)).content, {})
})

nodeTest('a document that is not JSON is refused', async ({ collection, key }) => {
  await collection.upsert(key, Buffer.from('{'))
  await assert.rejects(collection.mutateIn(key, [Mutate.upsert('a', 1)]), nacre.DocumentNotJsonError)
})
