/** Objects that are made with their first call. */

import assert from 'node:assert/strict'
import { test } from 'node:test'

import { lazy } from '../../src/lazy.js'

class Counter {
  #count = 0

  async add(amount: number): Promise<number> {
    return (this.#count += amount)
  }

  async fail(): Promise<void> {
    throw new RangeError('on purpose')
  }
}

test('the object is made once, with the first call', async () => {
  let made = 0
  const counter = lazy(async () => (made++, new Counter()))
  assert.equal(made, 0)
  assert.deepEqual(await Promise.all([counter.add(1), counter.add(2)]), [1, 3])
  assert.equal(made, 1)
})

test('failures are those of the object', async () => {
  await assert.rejects(
    lazy(async () => new Counter()).fail(),
    new RangeError('on purpose'),
  )
})

test('a method that there is not rejects', async () => {
  const counter: any = lazy(async () => new Counter())
  await assert.rejects(counter.none(), TypeError)
})

test('it is no promise', async () => {
  const counter = lazy(async () => new Counter())
  assert.equal(await counter, counter)
})
