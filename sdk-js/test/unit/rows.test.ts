/** Rows of answers that arrive in any pieces. */

import assert from 'node:assert/strict'
import { test } from 'node:test'

import { DecodingFailureError } from '../../src/errors.js'
import { RowScanner } from '../../src/rows.js'

function scan(text: string, size: number): { rows: unknown[]; rest: unknown } {
  const scanner = new RowScanner('results')
  const bytes = Buffer.from(text)
  const rows: unknown[] = []
  for (let at = 0; at < bytes.length; at += size) rows.push(...scanner.feed(bytes.subarray(at, at + size)))
  return { rows, rest: scanner.rest() }
}

const ROWS = [{ a: [1, { b: ']' }] }, 'te"x,t]\\', 1.5, null, [], [[]], {}, { results: [1] }, 'é']

test('rows are found whatever the pieces', () => {
  const rest = {
    id: 'results',
    signature: { results: [7] },
    list: [['results'], [1]],
    results: [],
    status: 'x',
    after: [1, 2],
  }
  const text = JSON.stringify({ ...rest, results: '@' }).replace(
    '"@"',
    `\n[\n ${ROWS.map((row) => JSON.stringify(row)).join(' , ')} ]`,
  )
  for (let size = 1; size < text.length + 1; size++) assert.deepEqual(scan(text, size), { rows: ROWS, rest })
})

test('answers without rows are read', () => {
  for (const size of [1, 5, 100]) {
    assert.deepEqual(scan('{"results": [ \n ], "a": 1}', size), { rows: [], rest: { results: [], a: 1 } })
    assert.deepEqual(scan('{"a": "results", "b": [1]}', size), { rows: [], rest: { a: 'results', b: [1] } })
    assert.deepEqual(scan(' {"results" : [1]} ', size), { rows: [1], rest: { results: [] } })
  }
})

test('what is no JSON is refused', () => {
  for (const text of ['', '{', '{"results": [1', '{"results": [1]', 'x', '{"results": [1] "a"}', '}{', ']']) {
    assert.throws(() => scan(text, 100), DecodingFailureError, text)
  }
  assert.throws(() => scan('{"results": [{a}]}', 100), DecodingFailureError)
})
