/** The entry for browsers: what it asks of `fetch`, and what it makes of answers. */

import assert from 'node:assert/strict'
import { test } from 'node:test'

import {
  AuthenticationFailureError,
  connect,
  type ConnectOptions,
  DecodingFailureError,
  InvalidArgumentError,
  ParsingFailureError,
  RequestCanceledError,
  ServiceNotAvailableError,
  UnambiguousTimeoutError,
} from '../../src/web.js'

interface Asked {
  url: string
  init: RequestInit & { headers: Record<string, string> }
}

const SERVICES = { nodesExt: [{ thisNode: true, services: { n1ql: 8093, capi: 8092, n1qlSSL: 18093 } }] }

/** A cluster whose requests are answered by a function, and what it was asked. */
function answered(answer: (asked: Asked) => Response | Promise<Response>, options: ConnectOptions = {}, url = 'http://db') {
  const asked: Asked[] = []
  const cluster = connect(url, {
    username: 'user',
    password: 'pässword',
    ...options,
    fetch: async (input: any, init: any) => {
      const request = { url: String(input), init }
      asked.push(request)
      if (/nodeServices$/.test(request.url)) return Response.json(SERVICES)
      return await new Promise<Response>((resolve, reject) => {
        init.signal.addEventListener('abort', () => reject(init.signal.reason))
        Promise.resolve(answer(request)).then(resolve, reject)
      })
    },
  })
  return { cluster, asked }
}

const rows = (...results: unknown[]): Response =>
  Response.json({ requestID: 'r', results, status: 'success', metrics: { resultCount: results.length } })

test('a statement goes to the port of the query service, in the name of the user', async () => {
  const { cluster, asked } = answered(() => rows(1, { a: 'ü' }))
  const { rows: found, meta } = await cluster.query('SELECT RAW $1', { parameters: [1] })
  assert.deepEqual(found, [1, { a: 'ü' }])
  assert.equal(meta.status, 'success')
  assert.deepEqual(
    asked.map(({ url }) => url),
    ['http://db:8091/pools/default/nodeServices', 'http://db:8093/query/service'],
  )
  const { headers, body } = asked[1]!.init
  assert.equal(headers['authorization'], `Basic ${Buffer.from('user:pässword').toString('base64')}`)
  assert.deepEqual(JSON.parse(String(body)).args, [1])
})

test('over TLS the ports are those of TLS, and the list of services is kept', async () => {
  const { cluster, asked } = answered(() => rows(1), {}, 'https://db:9999')
  await cluster.query('SELECT 1')
  await cluster.query('SELECT 1')
  assert.deepEqual(
    asked.map(({ url }) => url),
    ['https://db:9999/pools/default/nodeServices', 'https://db:18093/query/service', 'https://db:18093/query/service'],
  )
})

test('a token is asked for with each request', async () => {
  let count = 0
  const { cluster, asked } = answered(() => rows(), {
    token: async () => `t${++count}`,
    services: { query: 'https://proxy/' },
  })
  await cluster.query('SELECT 1')
  await cluster.query('SELECT 1')
  const found = asked.map(({ init }) => init.headers['authorization'])
  assert.deepEqual(found, ['Bearer t1', 'Bearer t2'])
})

test('rows are read one by one, and leaving the loop ends the answer', async () => {
  let cancelled = false
  const parts = ['{"results": [1, ', '2, ', '3']
  const { cluster } = answered(
    () =>
      new Response(
        new ReadableStream({
          pull: (controller) => controller.enqueue(new TextEncoder().encode(parts.shift() ?? ', 4')),
          cancel: () => {
            cancelled = true
          },
        }),
      ),
  )
  const found = []
  for await (const row of cluster.query('SELECT RAW 1')) {
    found.push(row)
    if (found.length === 2) break
  }
  assert.deepEqual(found, [1, 2])
  assert.equal(cancelled, true)
})

test('errors are those of the other entry', async () => {
  const refused = answered(() => Response.json({ errors: [{ code: 3000, msg: 'syntax error' }], status: 'fatal' }))
  await assert.rejects(refused.cluster.query('SELEKT'), ParsingFailureError)
  const unknown = answered(() => new Response('', { status: 401 }))
  await assert.rejects(unknown.cluster.query('SELECT 1'), AuthenticationFailureError)
  const garbage = answered(() => new Response('garbage'))
  await assert.rejects(garbage.cluster.query('SELECT 1'), DecodingFailureError)
  const without = connect('http://db', { fetch: async () => Response.json({ nodesExt: [{ services: {} }] }) })
  await assert.rejects(without.query('SELECT 1'), ServiceNotAvailableError)
})

test('a request that changes nothing is sent again, another one is not', async () => {
  let failures = 2
  const { cluster } = answered(() => {
    if (failures-- > 0) throw new TypeError('network')
    return rows('after all')
  })
  assert.deepEqual((await cluster.query('SELECT 1', { readOnly: true })).rows, ['after all'])
  failures = 1
  await assert.rejects(cluster.query('UPDATE x SET a = 1'), RequestCanceledError)
})

test('no answer in time, and a cluster that is closed, are errors', async () => {
  const { cluster } = answered(() => new Promise(() => {}))
  await assert.rejects(cluster.query('SELECT 1', { readOnly: true, timeout: 20 }), UnambiguousTimeoutError)
  const asked = cluster.query('SELECT 1', { readOnly: true }).then()
  setImmediate(() => cluster.close())
  await assert.rejects(asked, RequestCanceledError)
  await assert.rejects(cluster.query('SELECT 1'), RequestCanceledError)
})

test('changes come as events, from the last token on after a connection that ends', async () => {
  const event = (seqno: number): string =>
    `data: {"id":"k${seqno}","vbucket":1,"seqno":${seqno},"rev":"1-0a","base64":"aGk="}\nid: t${seqno}\n\n`
  const { cluster, asked } = answered(({ init }) => {
    const { since } = JSON.parse(String(init.body))
    return new Response(since === '0' ? event(1) : event(2))
  })
  const changes = cluster.bucket('b').scope('s').collection('c').changes()
  const found = []
  for await (const { id, content, cas } of changes) {
    found.push([id, Buffer.from(content).toString(), cas])
    if (found.length === 2) break
  }
  assert.deepEqual(found, [
    ['k1', 'hi', 10n],
    ['k2', 'hi', 10n],
  ])
  assert.equal(changes.token, 't1')
  assert.equal(asked[1]!.url, 'http://db:8092/b/s/c/_changes')
})

test('a URL that means nothing is refused', () => {
  for (const url of ['', 'db', 'couchbase://db', 'http://user:password@db']) {
    assert.throws(() => connect(url), InvalidArgumentError, url)
  }
})
