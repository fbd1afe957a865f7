/** Feeds of changes, and results that are kept up to date. */

import assert from 'node:assert/strict'
import { connect as connectTo, createServer, type Server, type Socket } from 'node:net'
import { once } from 'node:events'

import { nodesWith } from '../../src/cluster-map.js'
import * as nacre from '../../src/index.js'
import { nodeTest, unique } from './node.js'

async function withCollection(
  bucket: nacre.Bucket,
  body: (collection: nacre.Collection) => Promise<void>,
): Promise<void> {
  const name = unique('live')
  await bucket.collections().createCollection(name, '_default')
  await body(bucket.collection(name))
}

nodeTest('what is there comes first, then what happens', ({ bucket }) =>
  withCollection(bucket, async (collection) => {
    const { cas } = await collection.upsert('a', { n: 1 })
    await collection.upsert('b', Buffer.from([255]))
    await collection.upsert('c', 1)
    await collection.remove('c')
    const found = new Map<string, nacre.Change>()
    for await (const change of collection.changes({ live: false })) found.set(change.id!, change)
    assert.deepEqual(found.get('a')!.content, { n: 1 })
    assert.equal(found.get('a')!.cas, cas)
    assert.equal(found.get('a')!.revision, 1n)
    assert.deepEqual(found.get('b')!.content, Buffer.from([255]))
    assert.deepEqual([found.get('c')!.deleted, found.get('c')!.content], [true, undefined])

    const seen: string[] = []
    let writing: Promise<unknown> | undefined
    for await (const { id, content } of collection.changes<{ n: number }>()) {
      seen.push(id!)
      if (seen.length === 3) writing = collection.upsert('d', { n: 4 })
      if (id === 'd') {
        assert.equal(content!.n, 4)
        break
      }
    }
    await writing
    assert.deepEqual(seen.slice(0, 3).sort(), ['a', 'b', 'c'])
  }),
)

nodeTest('the differences of random steps make the result of the statement', ({ bucket, cluster }) =>
  withCollection(bucket, async (collection) => {
    // As many steps as NACRE_TEST_STEPS says; the chore that takes long has 10,000.
    const steps = Number(process.env['NACRE_TEST_STEPS'] ?? 150)
    let seed = steps
    const dice = (below: number): number => (seed = (seed * 48271) % 0x7fffffff) % below
    const keyspace = `\`${bucket.name}\`._default.\`${collection.name}\``
    await collection.queryIndexes().createPrimaryIndex()
    const statement = `SELECT META(c).id, c.n, c.m FROM ${keyspace} AS c WHERE c.n < 5 ORDER BY c.n, META(c).id`
    const controller = new AbortController()
    let known: any[] = []
    let wake: () => void = () => {}
    const following = (async () => {
      for await (const { rows, changes } of cluster.live(statement, { interval: 1, signal: controller.signal })) {
        known = nacre.applyChanges(known, changes)
        assert.deepEqual(known, rows)
        wake()
      }
    })()
    const failed = following.then(() => assert.fail('the result has ended'))
    failed.catch(() => {})
    try {
      for (let step = 0; step < steps; step++) {
        const key = `k${dice(20)}`
        if (dice(10) < 3) await collection.remove(key).catch((error) => assert.equal(error.name, 'DocumentNotFoundError'))
        else await collection.upsert(key, { n: dice(10), m: step })
        if (step % 50 !== 49) continue
        const { rows } = await cluster.query(statement, { scanConsistency: nacre.QueryScanConsistency.RequestPlus })
        for (const end = Date.now() + 20_000; JSON.stringify(known) !== JSON.stringify(rows); ) {
          assert(Date.now() < end, `${JSON.stringify(known)} is not ${JSON.stringify(rows)}`)
          const next = new Promise<void>((resolve) => (wake = resolve))
          let timer: ReturnType<typeof setTimeout> | undefined
          const late = new Promise<void>((resolve) => (timer = setTimeout(resolve, 100)))
          await Promise.race([next, late, failed])
          clearTimeout(timer)
        }
      }
    } finally {
      controller.abort()
      await following.catch(() => {})
    }
  }),
)

nodeTest('a feed goes on from its token, and from now', ({ bucket }) =>
  withCollection(bucket, async (collection) => {
    await collection.upsert('old', 1)
    const first = collection.changes({ live: false })
    assert.equal(first.token, undefined)
    for await (const { id } of first) assert.equal(id, 'old')
    await collection.upsert('new', 2)
    const next = collection.changes({ live: false, since: first.token! })
    for await (const { id, content } of next) assert.deepEqual([id, content], ['new', 2])

    const live = collection.changes({ since: 'now', includeDocs: false })
    await live.prepare()
    await collection.upsert('newest', 3)
    for await (const { id, content } of live) {
      assert.deepEqual([id, content], ['newest', undefined])
      break
    }
    const some: string[] = []
    for await (const { id } of collection.changes({ live: false, keys: ['old', 'none'] })) some.push(id!)
    assert.deepEqual(some, ['old'])
  }),
)

nodeTest('a feed ends with its signal, and is read once', ({ bucket }) =>
  withCollection(bucket, async (collection) => {
    await collection.upsert('a', 1)
    const controller = new AbortController()
    const feed = collection.changes({ signal: controller.signal })
    for await (const _ of feed) controller.abort()
    await assert.rejects(feed[Symbol.asyncIterator]().next(), nacre.InvalidArgumentError)
    for await (const _ of collection.changes({ signal: AbortSignal.abort() })) assert.fail()
  }),
)

nodeTest('what cannot be told is a failure with a name', async ({ bucket }) => {
  const next = (collection: nacre.Collection, options: nacre.ChangesOptions) =>
    collection.changes(options)[Symbol.asyncIterator]().next()
  await assert.rejects(next(bucket.collection(unique('none')), {}), nacre.CollectionNotFoundError)
  await assert.rejects(next(bucket.defaultCollection(), { since: 'bogus' }), nacre.InvalidArgumentError)
  assert.throws(() => bucket.defaultCollection().changes({ since: 7 as any }), nacre.InvalidArgumentError)
  await withCollection(bucket, async (collection) => {
    const feed = collection.changes({ live: false })
    for await (const _ of feed) assert.fail()
    await bucket.collections().dropCollection(collection.name, '_default')
    await bucket.collections().createCollection(collection.name, '_default')
    await assert.rejects(next(collection, { since: feed.token! }), nacre.ChangesLostError)
  })
})

/** Something between the client and a port of the node, whose connections can be broken. */
async function relay(port: number): Promise<{ server: Server; port: number; cut: () => void }> {
  const sockets = new Set<Socket>()
  const server = createServer((socket) => {
    const other = connectTo(port, '127.0.0.1')
    for (const [from, to] of [
      [socket, other],
      [other, socket],
    ] as const) {
      sockets.add(from)
      from.on('error', () => {}).on('close', () => to.destroy())
      from.pipe(to)
    }
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  const cut = (): void => sockets.forEach((socket) => socket.destroy())
  return { server, port: (server.address() as { port: number }).port, cut }
}

nodeTest('a feed whose connections break misses nothing', ({ cluster, bucket }) =>
  withCollection(bucket, async (collection) => {
    const [capi] = nodesWith(cluster.client.map!, 'capi')
    await collection.exists('k')
    const between = await relay(capi!.port)
    for (const [name, address] of bucket.client.map!.services) if (name === 'capi') address.port = between.port
    const feed = collection.changes<{ n: number }>({ since: 'now' })
    await feed.prepare()
    const last = new Map<string, number>()
    const count = 300
    const writing = (async () => {
      for (let n = 0; n < count; n++) {
        await collection.upsert(`k${n % 50}`, { n })
        if (n % 40 === 20) between.cut()
      }
      await collection.upsert('end', { n: count })
    })()
    for await (const { id, content } of feed) {
      if (id === 'end') break
      last.set(id!, Math.max(last.get(id!) ?? -1, content!.n))
    }
    await writing
    // What came behind `end` on other vBuckets, if that overtook it.
    for await (const { id, content } of collection.changes<{ n: number }>({ since: feed.token!, live: false })) {
      if (id !== 'end') last.set(id!, Math.max(last.get(id!) ?? -1, content!.n))
    }
    assert.deepEqual(
      [...last.values()].sort((a, b) => a - b),
      Array.from({ length: 50 }, (_, n) => count - 50 + n),
    )
    between.cut()
    between.server.close()
  }),
)

nodeTest('a result is kept up to date', ({ cluster, bucket }) =>
  withCollection(bucket, async (collection) => {
    for (let n = 0; n < 5; n++) await collection.upsert(`k${n}`, { n })
    const scope = bucket.scope('_default')
    const statement = `SELECT META(d).id, d.n FROM \`${collection.name}\` AS d WHERE d.n >= $1 ORDER BY d.n, META(d).id`
    let held: { id: string; n: number }[] = []
    let steps = 0
    const once = async (): Promise<void> => {
      const key = `k${Math.floor(Math.random() * 12)}`
      if (Math.random() < 0.3) await collection.remove(key).catch(() => {})
      else await collection.upsert(key, { n: Math.floor(Math.random() * 10) })
    }
    for await (const { rows, changes } of scope.live<{ id: string; n: number }>(statement, {
      parameters: [2],
      interval: 5,
    })) {
      held = nacre.applyChanges(held, changes)
      assert.deepEqual(held, rows)
      if (steps++ === 0)
        assert.deepEqual(
          rows.map(({ n }) => n),
          [2, 3, 4],
        )
      if (held.some(({ id }) => id === 'end')) break
      if (steps < 20) for (let left = 3; left; left--) await once()
      // Every step changes the result, or else nothing would come.
      await collection.upsert(steps < 20 ? `step${steps}` : 'end', { n: 100 + steps })
    }
    const { rows } = await cluster.query(
      statement.replace(`\`${collection.name}\``, `\`${bucket.name}\`._default.\`${collection.name}\``),
      {
        parameters: [2],
        scanConsistency: nacre.QueryScanConsistency.RequestPlus,
      },
    )
    assert.deepEqual(held, rows)
  }),
)

nodeTest('a result ends with its signal, its collection or its statement', ({ cluster, bucket }) =>
  withCollection(bucket, async (collection) => {
    const statement = `SELECT RAW 1 FROM \`${bucket.name}\`._default.\`${collection.name}\` AS d`
    const controller = new AbortController()
    for await (const { rows, changes } of cluster.live(statement, { signal: controller.signal })) {
      assert.deepEqual([rows, changes], [[], []])
      setImmediate(() => controller.abort())
    }
    const next = (text: string, options: nacre.LiveOptions = {}) =>
      cluster.live(text, options)[Symbol.asyncIterator]().next()
    await assert.rejects(next('SELECT FROM'), nacre.ParsingFailureError)
    await assert.rejects(next('SELECT 1'), nacre.InvalidArgumentError)
    const nested = `SELECT (SELECT RAW COUNT(*) FROM \`${bucket.name}\` AS x) AS c FROM \`${bucket.name}\`._default.\`${collection.name}\` AS d`
    await assert.rejects(next(nested), nacre.InvalidArgumentError)
    for await (const { rows } of cluster.live(nested, { collections: [collection] })) {
      assert.deepEqual(rows, [])
      break
    }
    await assert.rejects(async () => {
      for await (const _ of cluster.live(statement))
        await bucket.collections().dropCollection(collection.name, '_default')
    }, nacre.CouchbaseError)
  }),
)
