/** Results that are awaited, read one by one, listened to, or that nobody asks for. */

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { setImmediate as turn } from 'node:timers/promises'

import { InvalidArgumentError } from '../../src/errors.js'
import { StreamablePromise } from '../../src/streamable.js'

interface Setting {
  sent: number
  ended: number
  make: (repeats?: boolean, failure?: Error) => StreamablePromise<number[], number, string>
}

function setting(): Setting {
  const state: Setting = {
    sent: 0,
    ended: 0,
    make: (repeats = false, failure) => {
      async function* source(): AsyncGenerator<number, string, void> {
        state.sent++
        try {
          yield* [1, 2, 3]
          if (failure) throw failure
          return 'meta'
        } finally {
          state.ended++
        }
      }
      return new StreamablePromise(source, (items) => items, { item: 'row', meta: 'meta', repeats })
    },
  }
  return state
}

test('a result is sent once however often it is awaited', async () => {
  const state = setting()
  const result = state.make()
  assert.deepEqual(
    [await result, await result.then((rows) => rows.length), await result.catch(() => [])],
    [[1, 2, 3], 3, [1, 2, 3]],
  )
  let calls = 0
  await result.finally(() => calls++)
  assert.deepEqual([state.sent, calls], [1, 1])
})

test('leaving the loop ends the request, and what was read is not sent again unless it only reads', async () => {
  const state = setting()
  for (const repeats of [false, true]) {
    const result = state.make(repeats)
    for await (const row of result) if (row === 2) break
    assert.equal(state.ended, state.sent)
    if (repeats) assert.deepEqual(await result, [1, 2, 3])
    else await assert.rejects(result.then(), InvalidArgumentError)
  }
  assert.equal(state.sent, 3)
})

test('listeners hear every row, what the server says, and the end or the failure', async () => {
  const state = setting()
  const heard: unknown[] = []
  const listen = (failure?: Error): Promise<void> =>
    new Promise((resolve) => {
      const result = state.make(false, failure)
      result.once('row', (row) => heard.push(`first ${row}`))
      result.addListener('row', (row) => heard.push(row)).on('meta', (meta) => heard.push(meta))
      result.on('end', () => resolve()).on('error', (error) => resolve(void heard.push(error.message)))
    })
  await listen()
  await listen(new Error('broken'))
  assert.deepEqual(heard, ['first 1', 1, 2, 3, 'meta', 'first 1', 1, 2, 3, 'broken'])
})

test('what may change something is sent also if nobody asks, and its failure is nobody else’s', async () => {
  const state = setting()
  state.make(false, new Error('nobody hears this'))
  state.make(true)
  for (let turns = 0; turns < 3; turns++) await turn()
  assert.equal(state.sent, 1)
})

test('a result that is heard can be cancelled', async () => {
  const state = setting()
  const result = state.make()
  const heard: number[] = []
  result.on('row', (row) => {
    heard.push(row)
    result.cancelStreaming()
  })
  await result
  assert.deepEqual([heard, result.cancelRequested, state.ended], [[1], true, 1])
})
