/** Differences between results. */

import assert from 'node:assert/strict'
import { test } from 'node:test'

import { applyChanges, difference } from '../../src/live.js'

test('the changes make one result of the other, whatever both are', () => {
  let seed = 7
  const random = (below: number): number => (seed = (seed * 48271) % 0x7fffffff) % below
  for (let round = 0; round < 10_000; round++) {
    const before = Array.from({ length: random(9) }, () => random(4))
    const after = Array.from({ length: random(9) }, () => random(4))
    const changes = difference(before.map(String), after.map(String), after)
    assert.deepEqual(applyChanges(before, changes), after)
    if (JSON.stringify(before) === JSON.stringify(after)) assert.deepEqual(changes, [])
  }
})

test('what stays is not touched', () => {
  const before = ['a', 'b', 'c', 'd', 'e']
  assert.deepEqual(difference(before, ['a', 'c', 'd', 'x', 'e', 'f'], ['a', 'c', 'd', 'x', 'e', 'f']), [
    { at: 1, removed: 1, added: [] },
    { at: 3, removed: 0, added: ['x'] },
    { at: 5, removed: 0, added: ['f'] },
  ])
  const many = Array.from({ length: 5000 }, (_, n) => `${n}`)
  const others = many.map((text) => `x${text}`)
  assert.deepEqual(difference(many, others, others), [{ at: 0, removed: 5000, added: others }])
})
