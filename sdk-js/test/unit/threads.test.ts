/** Event loops that end while a cluster is open: those of worker threads, and that of a process. */

import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { test } from 'node:test'
import { setImmediate as turn } from 'node:timers/promises'
import { Worker } from 'node:worker_threads'

import { FakeNode } from './fake-node.js'

const ENTRY = new URL('../../src/index.js', import.meta.url).href
const OUTSTANDING = 100

/** A program that leaves requests under way; `then` is what it does after that. */
const program = (url: string, then: string): string => `
  import(${JSON.stringify(ENTRY)}).then(async ({ connect }) => {
    const cluster = await connect(${JSON.stringify(url)}, { username: 'user', password: 'password' })
    const collection = cluster.bucket('b').defaultCollection()
    const names = []
    for (let index = 0; index < ${OUTSTANDING}; index++) {
      collection.get('k' + index, { timeout: 600000 }).catch((error) => names.push(error.name))
    }
    ${then}
  })`

/** Waits until a condition holds. */
async function until(condition: () => boolean): Promise<void> {
  const end = Date.now() + 20_000
  while (!condition()) {
    assert(Date.now() < end, 'nothing happened for 20 s')
    await turn()
  }
}

/** A node that answers no read, and forgets sockets that have ended. */
async function silent(): Promise<FakeNode> {
  const node = await FakeNode.start()
  node.on.set(0x00, () => undefined)
  return node
}

const open = (node: FakeNode): number => [...node.sockets].filter((socket) => !socket.destroyed).length

test('a thread that is ended under requests leaves no connection', async () => {
  await using node = await silent()
  for (let round = 0; round < 3; round++) {
    const worker = new Worker(program(node.url, ''), { eval: true })
    const errors: unknown[] = []
    worker.on('error', (error) => errors.push(error))
    await until(() => node.count(0x00) >= OUTSTANDING * (round + 1))
    await worker.terminate()
    await until(() => open(node) === 0)
    assert.deepEqual(errors, [])
  }
})

test('a process ends by itself once its cluster is closed, with an error for each request', async () => {
  await using node = await silent()
  const close = `
    process.on('exit', () => console.log(names.length, [...new Set(names)].join()))
    await cluster.close()`
  const child = spawn(process.execPath, ['--unhandled-rejections=strict', '-e', program(node.url, close)])
  let [text, complaints] = ['', '']
  child.stdout.on('data', (data) => (text += data))
  child.stderr.on('data', (data) => (complaints += data))
  const [code] = await once(child, 'close')
  assert.deepEqual([code, text.trim(), complaints], [0, `${OUTSTANDING} RequestCanceledError`, ''])
  await until(() => open(node) === 0)
})
