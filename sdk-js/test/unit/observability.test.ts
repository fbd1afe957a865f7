/** Spans, durations and reports of operations. */

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { setImmediate as turn } from 'node:timers/promises'

import {
  type Cluster,
  connect,
  getOTelMeter,
  getOTelTracer,
  LookupInSpec,
  type Meter,
  type RequestSpan,
  type RequestTracer,
} from '../../src/index.js'
import { Durations, Histogram, Orphans, SlowOperations } from '../../src/observability.js'
import { type Answer, FakeNode, FakeService } from './fake-node.js'

const NONE = Buffer.alloc(0)
const FOUND: Answer = [0, Buffer.from([2, 0, 0, 0]), Buffer.from('{"a":1}')]
const MISSING: Answer = [1, NONE, NONE]
const [GET, UPSERT] = [0x00, 0x01]

class Span implements RequestSpan {
  readonly attributes: Record<string, any> = {}
  status: { code: number } | undefined
  ends = 0

  constructor(
    readonly name: string,
    readonly parent: RequestSpan | undefined,
    readonly began: number | undefined,
  ) {}

  setAttribute(key: string, value: unknown): void {
    this.attributes[key] = value
  }

  setStatus(status: { code: number }): void {
    this.status = status
  }

  end(): void {
    this.ends += 1
  }
}

class Tracer implements RequestTracer {
  readonly spans: Span[] = []

  requestSpan(name: string, parent?: RequestSpan, began?: number): Span {
    const span = new Span(name, parent, began)
    this.spans.push(span)
    return span
  }

  named(name: string): Span[] {
    return this.spans.filter((span) => span.name === name)
  }

  below(parent: RequestSpan): string[] {
    return this.spans.filter((span) => span.parent === parent).map(({ name }) => name)
  }
}

class OwnMeter implements Meter {
  readonly taken: { name: string; tags: Record<string, any>; value: number }[] = []

  valueRecorder(name: string, tags: Record<string, any>): { recordValue(value: number): void } {
    return { recordValue: (value) => this.taken.push({ name, tags, value }) }
  }

  of(operation: string): { name: string; tags: Record<string, any>; value: number }[] {
    return this.taken.filter(({ tags }) => tags['db.operation.name'] === operation)
  }
}

async function withNode(options: object, body: (cluster: Cluster, node: FakeNode) => Promise<void>): Promise<void> {
  await using node = await FakeNode.start()
  node.on.set(GET, () => FOUND).set(UPSERT, () => [0, NONE, NONE])
  await using cluster = await connect(node.url, { username: 'user', password: 'password', ...options })
  await body(cluster, node)
}

test('an operation has a span with its requests below, and a duration', async () => {
  const [tracer, meter] = [new Tracer(), new OwnMeter()]
  const parent = new Span('mine', undefined, undefined)
  await withNode({ tracer, meter }, async (cluster, node) => {
    await cluster.bucket('b').defaultCollection().upsert('k', { a: 1 }, { parentSpan: parent })
    const [span] = tracer.named('upsert')
    assert.equal(span!.parent, parent)
    assert.deepEqual(tracer.below(span!), ['request_encoding', 'dispatch_to_server'])
    assert.deepEqual(span!.attributes, {
      'db.system.name': 'couchbase',
      'couchbase.service': 'kv',
      'db.operation.name': 'upsert',
      'db.namespace': 'b',
      'couchbase.scope.name': '_default',
      'couchbase.collection.name': '_default',
      'couchbase.retries': 0,
    })
    const [dispatch] = tracer.named('dispatch_to_server').slice(-1)
    assert.equal(dispatch!.attributes['server.address'], '127.0.0.1')
    assert.equal(dispatch!.attributes['server.port'], node.port)
    assert.match(dispatch!.attributes['couchbase.operation_id'], /^0x[0-9a-f]+$/)
    const [taken] = meter.of('upsert')
    assert.equal(taken!.name, 'db.client.operation.duration')
    assert.equal(taken!.tags['__unit'], 's')
    assert(taken!.value > 0 && Number.isInteger(taken!.value))
  })
  assert(tracer.spans.every(({ ends }) => ends === 1))
})

test('spans and durations say what failed, and how often it was tried again', async () => {
  const [tracer, meter] = [new Tracer(), new OwnMeter()]
  await withNode({ tracer, meter }, async (cluster, node) => {
    const collection = cluster.bucket('b').defaultCollection()
    const busy: Answer = [0x86, NONE, NONE]
    const answers = [busy, busy, MISSING]
    node.on.set(GET, () => answers.shift() ?? MISSING)
    await assert.rejects(collection.get('k'), { name: 'DocumentNotFoundError' })
    const [span] = tracer.named('get')
    assert.equal(span!.attributes['error.type'], 'DocumentNotFoundError')
    assert.equal(span!.attributes['couchbase.retries'], 2)
    assert.equal(span!.status!.code, 2)
    assert.deepEqual(tracer.below(span!), Array(3).fill('dispatch_to_server'))
    assert.equal(meter.of('get')[0]!.tags['error.type'], 'DocumentNotFoundError')
    // Time that runs out ends the span of the request too.
    node.on.set(GET, () => undefined)
    await assert.rejects(collection.get('k', { timeout: 20 }), { name: 'UnambiguousTimeoutError' })
  })
  assert(tracer.spans.every(({ ends }) => ends === 1))
})

test('a span that is not recorded has no spans below', async () => {
  const tracer = new Tracer()
  const silent = {
    requestSpan: (name: string, parent?: RequestSpan) =>
      Object.assign(tracer.requestSpan(name, parent), { isRecording: () => false }),
  }
  await withNode({ tracer: silent }, async (cluster) => {
    await cluster.bucket('b').defaultCollection().upsert('k', 1)
  })
  assert.deepEqual(tracer.named('dispatch_to_server'), [])
})

test('services over HTTP have spans, whose names hold no names of users or buckets', async () => {
  const [tracer, meter] = [new Tracer(), new OwnMeter()]
  await using service = await FakeService.start()
  await withNode({ tracer, meter }, async (cluster, node) => {
    const ports = { mgmt: service.port, capi: service.port, n1ql: service.port, fts: service.port }
    node.rev += 1
    node.neighbours = [ports]
    const asked = async (work: () => PromiseLike<unknown>): Promise<void> => void (await work())
    service.onRequest = (response) => response.end('{"results": [1], "status": "success", "rows": [], "hits": [], "scopes": []}')
    await asked(() => cluster.bucket('b').defaultCollection().get('k'))
    await asked(() => cluster.bucket('b').viewQuery('d', 'v'))
    await asked(() => cluster.bucket('b').collections().getAllScopes())
    await asked(() => cluster.bucket('b').collections().dropScope('secret'))
  })
  assert.equal(tracer.named('view_query').length, 1)
  const [dropped] = tracer.named('DELETE /pools/default/buckets/{name}/scopes/{name}')
  assert.equal(dropped!.attributes['couchbase.service'], 'management')
  assert.deepEqual(tracer.below(dropped!), ['dispatch_to_server'])
  assert(tracer.spans.every(({ ends }) => ends === 1))
  assert.equal(meter.of('view_query')[0]!.tags['couchbase.service'], 'views')
  assert(!JSON.stringify(meter.taken).includes('secret'))
})

/** Lines that a cluster with the options tells, by their headings. */
async function reportsOf(
  options: object,
  body: (cluster: Cluster, node: FakeNode) => Promise<void>,
): Promise<Record<string, any>> {
  const found: Record<string, any> = {}
  const take = (line: string): void => {
    const [, heading, text] = /^([^:]+): (\{.*\})$/.exec(line) ?? []
    if (heading) found[heading] = JSON.parse(text!)
  }
  await withNode({ logger: { warn: take, info: take }, ...options }, body)
  return found
}

test('slow operations are reported', async () => {
  const reports = await reportsOf({ tracingConfig: { kvThreshold: 10 } }, async (cluster, node) => {
    node.on.set(GET, () => {
      const begun = performance.now()
      while (performance.now() - begun < 20);
      return FOUND
    })
    await cluster.bucket('b').defaultCollection().get('k')
  })
  const { total_count, top_requests } = reports['Operations over threshold'].kv
  assert(total_count >= 1)
  const slow = top_requests.find((request: any) => request.operation_name === 'get')
  assert(slow.last_dispatch_duration_us > 19_000)
  assert(slow.total_duration_us >= slow.last_dispatch_duration_us)
  assert.match(slow.last_remote_socket, /^127\.0\.0\.1:\d+$/)
})

test('the slowest operations of each service are kept', () => {
  const tracer = new SlowOperations({ kvThreshold: 10, sampleSize: 2 })
  const end = (service: string, ms: number): void => {
    const span = tracer.requestSpan(`${service} ${ms}`, undefined, 1000)
    const part = tracer.requestSpan('dispatch_to_server', span, 1001)
    part.end(1002)
    span.setAttribute('couchbase.service', service)
    span.end(1000 + ms)
  }
  for (const ms of [12, 9, 40, 20]) end('kv', ms)
  end('query', 999)
  end('query', 1000)
  const found = (operation_name: string, ms: number) => ({
    operation_name,
    total_duration_us: ms * 1000,
    last_dispatch_duration_us: 1000,
    retries: 0,
  })
  assert.deepEqual(tracer.report(), {
    kv: { total_count: 3, top_requests: [found('kv 40', 40), found('kv 20', 20)] },
    query: { total_count: 1, top_requests: [found('query 1000', 1000)] },
  })
  assert.equal(tracer.report(), undefined)
})

test('durations are reported by service and operation, also at intervals', async () => {
  const reports = await reportsOf({ metricsConfig: {} }, async (cluster) => {
    const collection = cluster.bucket('b').defaultCollection()
    for (let round = 0; round < 3; round++) await collection.get('k')
    await assert.rejects(collection.lookupIn('k', [LookupInSpec.get('a')], { timeout: 10 }))
  })
  assert.equal(reports['Metrics'].kv.get.total_count, 3)
  assert.equal(reports['Metrics'].kv.lookup_in.total_count, 1)
  const line = new Promise<string>((resolve) => {
    const ended = withNode({ metricsConfig: { emitInterval: 5 }, logger: { info: resolve } }, async () => void (await line))
    ended.catch((error) => resolve(error.message))
  })
  assert.match(await line, /^Metrics: \{"kv":/)
})

test('answers that come too late are reported', async () => {
  const reports = await reportsOf({ orphanReporterConfig: { sampleSize: 1 } }, async (cluster, node) => {
    const collection = cluster.bucket('b').defaultCollection()
    const late: (() => void)[] = []
    // Connected before, as the times are short.
    await collection.get('a')
    node.on.set(GET, (asked) => {
      late.push(() => node.answer(asked, FOUND))
      return undefined
    })
    for (const key of ['a', 'b']) await assert.rejects(collection.get(key, { timeout: 20 }))
    while (late.length < 2) await turn()
    for (const answer of late) answer()
    // Answers on a connection come in order.
    node.on.set(GET, () => FOUND)
    await collection.get('c')
  })
  const { total_count, top_requests } = reports['Orphan responses'].kv
  assert.equal(total_count, 2)
  assert.equal(top_requests.length, 1)
  assert.equal(top_requests[0].operation_name, 'Get')
  assert.match(top_requests[0].last_remote_socket, /^127/)
})

test('nothing is reported that is switched off, and what means nothing is refused', async () => {
  const off = {
    tracingConfig: { enableTracing: false, kvThreshold: 0.001 },
    metricsConfig: { enableMetrics: false },
    orphanReporterConfig: { enableOrphanReporting: false },
  }
  const reports = await reportsOf(off, async (cluster) => {
    await cluster.bucket('b').defaultCollection().get('k')
  })
  assert.deepEqual(reports, {})
  const refusal = { name: 'InvalidArgumentError' }
  for (const options of [{ tracer: {} }, { meter: {} }, { tracingConfig: { kvThreshold: -1 } }, { metricsConfig: { emitInterval: 0 } }]) {
    await assert.rejects(
      withNode(options, async () => {}),
      refusal,
    )
  }
})

test('percentiles are within ten percent, and reports begin anew', () => {
  const histogram = new Histogram()
  for (let value = 1; value <= 100_000; value++) histogram.recordValue(value)
  for (const percent of [1, 50, 90, 99, 99.9]) {
    const exact = percent * 1000
    assert(Math.abs(histogram.percentile(percent) - exact) <= exact * 0.13, `${percent}`)
  }
  assert.equal(histogram.percentile(100), 100_000)
  assert.equal(new Histogram().percentile(50), 0)
  const durations = new Durations()
  durations.valueRecorder('m', { 'couchbase.service': 'kv', 'db.operation.name': 'get' }).recordValue(3)
  assert.deepEqual(Object.keys(durations.report()!), ['kv'])
  assert.equal(durations.report(), undefined)
  assert.equal(new SlowOperations({}).report(), undefined)
  const orphans = new Orphans(1)
  orphans.take('Get', 1, '', '')
  assert(orphans.report())
  assert.equal(orphans.report(), undefined)
})

test('spans and durations go to OpenTelemetry where it is registered, and nowhere else', async () => {
  const registry = Symbol.for('opentelemetry.js.api.1')
  const key = Symbol.for('OpenTelemetry Context Key SPAN')
  assert.throws(() => getOTelTracer(), { name: 'MeterError' })
  assert.throws(() => getOTelMeter(), { name: 'MeterError' })
  const began: any[] = []
  const recorded: any[] = []
  const span = (name: string) => ({
    name,
    attributes: {} as Record<string, unknown>,
    ended: 0,
    setAttribute(attribute: string, value: unknown) {
      this.attributes[attribute] = value
      return this
    },
    addEvent() {},
    setStatus() {},
    end() {
      this.ended++
    },
    isRecording: () => true,
  })
  const active = {
    getValue: (name: symbol) => (name === key ? 'the active span' : undefined),
    setValue: (_: symbol, parent: any) => ({ getValue: () => parent }),
  }
  const api = {
    trace: {
      getTracer: () => ({
        startSpan(name: string, options: any, context: any) {
          const made = { ...span(name), options, parent: context.getValue(key) }
          began.push(made)
          return made
        },
      }),
    },
    metrics: {
      getMeter: () => ({
        createHistogram: (name: string, { unit }: any) => ({
          record: (value: number, attributes: any) => recorded.push({ name, unit, value, attributes }),
        }),
      }),
    },
    context: { active: () => active },
  }
  Object.assign(globalThis, { [registry]: api })
  try {
    await withNode({ tracer: getOTelTracer(), meter: getOTelMeter() }, async (cluster) => {
      await cluster.bucket('b').defaultCollection().upsert('k', 1)
    })
  } finally {
    delete (globalThis as any)[registry]
  }
  const upsert = began.find(({ name }) => name === 'upsert')
  assert.equal(upsert.parent, 'the active span')
  assert.equal(upsert.options.kind, 2)
  const children = began.filter(({ parent }) => parent === upsert)
  assert.deepEqual(
    children.map(({ name }) => name),
    ['request_encoding', 'dispatch_to_server'],
  )
  assert(began.every(({ ended }) => ended === 1))
  const duration = recorded.find(({ attributes }) => attributes['db.operation.name'] === 'upsert')
  assert.equal(duration.unit, 's')
  assert(duration.value > 0 && duration.value < 5)
  assert(!('__unit' in duration.attributes))
})
