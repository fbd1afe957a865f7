/** Values by the numbers that they get. */

import assert from 'node:assert/strict'
import { test } from 'node:test'

import { Slots } from '../../src/slots.js'

test('random values are found by their numbers, as in a map', () => {
  const [slots, expected] = [new Slots<{ value: number }>(), new Map<number, { value: number }>()]
  let state = 1
  const dice = (end: number): number => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0
    return Math.floor((state / 2 ** 32) * end)
  }
  let last = 0
  for (let step = 0; step < 50_000; step++) {
    // Phases in which values become more and fewer, down to none.
    const grows = Math.floor(step / 5_000) % 2 === 0
    if (dice(10) < (grows ? 7 : 2)) {
      const value = { value: step }
      const number = slots.add(value)
      assert(number > last)
      last = number
      expected.set(number, value)
    } else if (expected.size) {
      const numbers = [...expected.keys()]
      const number = numbers[dice(2) ? 0 : dice(numbers.length)]!
      slots.delete(number)
      slots.delete(number)
      expected.delete(number)
      assert.equal(slots.get(number), undefined)
    }
    assert.equal(slots.size, expected.size)
    const some = dice(last + 2)
    assert.equal(slots.get(some), expected.get(some))
  }
  assert.deepEqual(
    slots.values().sort((a, b) => a.value - b.value),
    [...expected.values()].sort((a, b) => a.value - b.value),
  )
})

test('100,000 values fit, and one that stays does not stop the others', () => {
  const slots = new Slots<object>()
  const first = {}
  const stays = slots.add(first)
  const numbers = Array.from({ length: 100_000 }, () => slots.add({}))
  assert.equal(new Set(numbers).size, 100_000)
  assert.equal(slots.size, 100_001)
  for (const number of numbers) slots.delete(number)
  for (let step = 0; step < 300_000; step++) slots.delete(slots.add({}))
  assert.equal(slots.get(stays), first)
  slots.delete(stays)
  assert.equal(slots.size, 0)
  assert.deepEqual(slots.values(), [])
  assert.notEqual(slots.get(slots.add(first)), undefined)
})

test('no value has the number 0 or one that was never given out', () => {
  const slots = new Slots<object>()
  assert.equal(slots.get(0), undefined)
  slots.delete(0)
  slots.add({})
  assert.equal(slots.get(0xffffffff), undefined)
  assert.equal(slots.get(17), undefined)
  assert.equal(slots.size, 1)
})
