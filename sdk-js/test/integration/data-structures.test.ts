/** Lists, maps, queues and sets. */

import assert from 'node:assert/strict'

import * as nacre from '../../src/index.js'
import { nodeTest } from './node.js'

nodeTest('a list', async ({ collection, key }) => {
  const list = collection.list(key)
  await assert.rejects(list.getAll(), nacre.DocumentNotFoundError)
  await list.push('b')
  await list.push({ c: 1 })
  await list.unshift('a')
  assert.deepEqual(await list.getAll(), ['a', 'b', { c: 1 }])
  assert.equal(await list.size(), 3)
  assert.equal(await list.getAt(0), 'a')
  assert.deepEqual(await list.getAt(-1), { c: 1 })
  await assert.rejects(list.getAt(9), nacre.PathNotFoundError)
  assert.deepEqual([await list.indexOf('b'), await list.indexOf('z')], [1, -1])
  await list.removeAt(1)
  const seen: unknown[] = []
  await list.forEach((value, index) => seen.push(index, value))
  for await (const item of list) seen.push(item)
  assert.deepEqual(seen, [0, 'a', 1, { c: 1 }, 'a', { c: 1 }])
})

nodeTest('a map', async ({ collection, key }) => {
  const map = collection.map(key)
  await map.set('a', 1)
  await map.set('dotted.name', 2)
  await map.set('tick`ed', 3)
  assert.deepEqual(await map.getAll(), { a: 1, 'dotted.name': 2, 'tick`ed': 3 })
  assert.equal(await map.get('dotted.name'), 2)
  assert.equal(await map.get('tick`ed'), 3)
  assert.deepEqual([await map.exists('a'), await map.exists('b')], [true, false])
  await assert.rejects(map.get('b'), nacre.PathNotFoundError)
  await map.remove('a')
  assert.equal(await map.size(), 2)
  assert.deepEqual(await map.keys(), ['dotted.name', 'tick`ed'])
  assert.deepEqual(await map.values(), [2, 3])
  const seen: unknown[] = []
  for await (const [value, name] of map) seen.push(name, value)
  await map.forEach((value, name) => seen.push(name, value))
  assert.deepEqual(seen, ['dotted.name', 2, 'tick`ed', 3, 'dotted.name', 2, 'tick`ed', 3])
})

nodeTest('a queue', async ({ collection, key }) => {
  const queue = collection.queue(key)
  for (let number = 0; number < 20; number++) await queue.push(number)
  assert.equal(await queue.size(), 20)
  const popped: number[] = []
  while (popped.length < 20) popped.push(...(await Promise.all([queue.pop(), queue.pop()])))
  assert.deepEqual(
    popped.sort((a, b) => a - b),
    Array.from({ length: 20 }, (_, number) => number),
  )
  await assert.rejects(queue.pop(), nacre.PathNotFoundError)
})

nodeTest('a set', async ({ collection, key }) => {
  const set = collection.set(key)
  assert.deepEqual([await set.add('a'), await set.add('a'), await set.add(1)], [true, false, true])
  assert.deepEqual([await set.contains('a'), await set.contains('1')], [true, false])
  assert.equal(await set.size(), 2)
  await Promise.all([set.remove('a'), set.add('b')])
  await assert.rejects(set.remove('a'), nacre.PathNotFoundError)
  assert.deepEqual((await set.values()).sort(), [1, 'b'])
})

nodeTest('a document of another structure is refused', async ({ collection, key }) => {
  await collection.upsert(key, { a: 1 })
  await assert.rejects(collection.list(key).getAll(), nacre.CouchbaseError)
  await assert.rejects(collection.set(key).add(1), nacre.PathMismatchError)
  await assert.rejects(collection.list(key).getAt(0.5), nacre.InvalidArgumentError)
  await assert.rejects(collection.map(key).get(1 as any), nacre.InvalidArgumentError)
})
