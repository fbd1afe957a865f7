/** What the client tells of connections and maps. */

import assert from 'node:assert/strict'
import { test } from 'node:test'

import * as nacre from '../../src/index.js'
import { FakeNode } from './fake-node.js'

test('connections, maps and failures are told, at their levels', async () => {
  await using node = await FakeNode.start()
  node.on.set(0x00, () => [0, Buffer.alloc(4), Buffer.from('1')])
  const told: string[] = []
  const logger: nacre.Logger = {
    debug: (message) => told.push(`debug ${message}`),
    warn: (message) => told.push(`warn ${message}`),
  }
  const options = { username: 'user', password: 'password', logger }
  const cluster = await nacre.connect(`${node.url},127.0.0.1:1`, options)
  await cluster.bucket('b').defaultCollection().get('k')
  assert(told.includes(`debug connected to 127.0.0.1:${node.port}`))
  assert(told.some((message) => /^debug map \d+\.1 of b, 1 nodes$/.test(message)))
  await cluster.close()
  assert(told.includes(`debug the connection to 127.0.0.1:${node.port} ended`))
  const unreachable = nacre.connect('couchbase://127.0.0.1:1', { ...options, timeouts: { connectTimeout: 50 } })
  await assert.rejects(unreachable, nacre.UnambiguousTimeoutError)
  assert(told.some((message) => /^warn the connection to 127.0.0.1:1 ended: .*ECONNREFUSED/.test(message)))
  cluster.logger.info('not taken')
})

test('the console takes a level and what is above it', (context) => {
  const told: string[] = []
  for (const method of ['debug', 'info', 'warn', 'error'] as const) {
    context.mock.method(console, method, (message: string) => told.push(`${method} ${message}`))
  }
  const logger = nacre.createConsoleLogger(nacre.LogLevel.INFO, 'nacre: ')
  for (const method of ['trace', 'debug', 'info', 'warn', 'error'] as const) logger[method]('x')
  assert.deepEqual(told, ['info nacre: x', 'warn nacre: x', 'error nacre: x'])
  assert.deepEqual(
    ['warn', 'TRACE', 'none', 4, 9].map((level) => nacre.parseLogLevel(level)),
    [nacre.LogLevel.WARN, nacre.LogLevel.TRACE, undefined, nacre.LogLevel.ERROR, undefined],
  )
  const silent = new nacre.NoOpLogger()
  for (const method of ['trace', 'debug', 'info', 'warn', 'error'] as const) silent[method]()
})
