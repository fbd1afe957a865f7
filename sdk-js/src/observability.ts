/**
 * Reports of slow operations, of durations and of answers that came too late, as JSON lines to the logger. This part is
 * loaded by programs that ask for reports, and by no others.
 */

import type { OrphanSink } from './access.js'
import { InvalidArgumentError } from './errors.js'
import type { CouchbaseLogger } from './logger.js'
import { checkOptions } from './option-names.js'
import type { Meter, RequestSpan, RequestTracer, ValueRecorder } from './tracing.js'
import { unixTime } from './tracing.js'

/** How slow operations are reported; durations are milliseconds. */
export interface TracingConfig {
  /** False to report none. */
  enableTracing?: boolean
  /** Time between reports: 10,000 if not given. */
  emitInterval?: number
  /** How many operations of a service a report names: 64 if not given. */
  sampleSize?: number
  /** How long an operation on a document may take: 500 if not given. */
  kvThreshold?: number
  /** How long a statement may take: 1,000 if not given, as for the others. */
  queryThreshold?: number
  searchThreshold?: number
  analyticsThreshold?: number
  managementThreshold?: number
  eventingThreshold?: number
  viewsThreshold?: number
}

/** How durations are reported. */
export interface MetricsConfig {
  /** False to report none. */
  enableMetrics?: boolean
  /** Milliseconds between reports: 600,000 if not given. */
  emitInterval?: number
}

/** How answers are reported that came when nobody waited for them any more. */
export interface OrphanReporterConfig {
  /** False to report none. */
  enableOrphanReporting?: boolean
  /** Milliseconds between reports: 10,000 if not given. */
  emitInterval?: number
  /** How many of the answers a report names: 64 if not given. */
  sampleSize?: number
}

/** What is reported, and how. */
export interface ReportConfigs {
  tracingConfig?: TracingConfig | undefined
  metricsConfig?: MetricsConfig | undefined
  orphanReporterConfig?: OrphanReporterConfig | undefined
}

/** Source of a report; undefined if there is nothing to say. */
interface Source {
  report(): object | undefined
}

const REPORT_MS = 10_000
const METRICS_MS = 600_000
const SAMPLE_SIZE = 64

/** Reports of a cluster, from `start` to `close`. */
export class Reports {
  tracer: SlowOperations | undefined
  meter: Durations | undefined
  orphans: Orphans | undefined
  readonly #logger: CouchbaseLogger
  readonly #writes: (() => void)[] = []
  readonly #timers: ReturnType<typeof setInterval>[] = []

  /** @throws InvalidArgumentError a setting means nothing. */
  constructor({ tracingConfig, metricsConfig, orphanReporterConfig }: ReportConfigs, logger: CouchbaseLogger) {
    this.#logger = logger
    checkOptions('tracingConfig', tracingConfig)
    checkOptions('metricsConfig', metricsConfig)
    checkOptions('orphanReporterConfig', orphanReporterConfig)
    if (tracingConfig && tracingConfig.enableTracing !== false) {
      this.tracer = new SlowOperations(tracingConfig)
      this.#begin('Operations over threshold', 'warn', this.tracer, tracingConfig.emitInterval ?? REPORT_MS)
    }
    if (metricsConfig && metricsConfig.enableMetrics !== false) {
      this.meter = new Durations()
      this.#begin('Metrics', 'info', this.meter, metricsConfig.emitInterval ?? METRICS_MS)
    }
    if (orphanReporterConfig && orphanReporterConfig.enableOrphanReporting !== false) {
      this.orphans = new Orphans(positive('sampleSize', orphanReporterConfig.sampleSize ?? SAMPLE_SIZE))
      this.#begin('Orphan responses', 'warn', this.orphans, orphanReporterConfig.emitInterval ?? REPORT_MS)
    }
  }

  /** Reports what there is, and ends. */
  close(): void {
    for (const timer of this.#timers.splice(0)) clearInterval(timer)
    for (const write of this.#writes.splice(0)) write()
  }

  #begin(heading: string, level: 'warn' | 'info', source: Source, intervalMs: number): void {
    const write = (): void => {
      const found = source.report()
      if (found) this.#logger[level](`${heading}: ${JSON.stringify(found)}`)
    }
    this.#writes.push(write)
    const timer = setInterval(write, Math.min(positive('emitInterval', intervalMs), 0x7fffffff))
    // A program may end between two reports.
    timer.unref?.()
    this.#timers.push(timer)
  }
}

function positive(name: string, value: number): number {
  if (typeof value !== 'number' || !(value > 0)) throw new InvalidArgumentError(`${name} is a positive number`)
  return value
}

/** What a report says of a slow operation. */
interface SlowOperation {
  operation_name: string
  total_duration_us: number
  last_dispatch_duration_us?: number
  encode_duration_us?: number
  last_remote_socket?: string
  retries?: number
}

/** A tracer that keeps the slowest operations of each service, from one report to the next. */
export class SlowOperations implements RequestTracer {
  readonly #thresholdsUs: Record<string, number> = {}
  readonly #sampleSize: number
  #counts = new Map<string, number>()
  #slowest = new Map<string, SlowOperation[]>()

  constructor(config: TracingConfig) {
    this.#sampleSize = positive('sampleSize', config.sampleSize ?? SAMPLE_SIZE)
    for (const service of ['kv', 'query', 'search', 'views', 'analytics', 'eventing', 'management'] as const) {
      const ms = config[`${service}Threshold`] ?? (service === 'kv' ? 500 : 1000)
      this.#thresholdsUs[service] = positive(`${service}Threshold`, ms) * 1000
    }
  }

  requestSpan(name: string, parentSpan?: RequestSpan, startTime: number = unixTime()): RequestSpan {
    return new TimedSpan(this, name, parentSpan instanceof TimedSpan ? parentSpan : undefined, startTime)
  }

  /** Takes an operation that has ended, if it was slow. */
  take(service: string, operation: SlowOperation): void {
    if (operation.total_duration_us < (this.#thresholdsUs[service] ?? 1_000_000)) return
    this.#counts.set(service, (this.#counts.get(service) ?? 0) + 1)
    const kept = this.#slowest.get(service) ?? []
    this.#slowest.set(service, kept)
    const at = kept.findIndex(({ total_duration_us }) => total_duration_us < operation.total_duration_us)
    kept.splice(at < 0 ? kept.length : at, 0, operation)
    if (kept.length > this.#sampleSize) kept.pop()
  }

  report(): object | undefined {
    if (!this.#counts.size) return undefined
    const entries = [...this.#counts].map(([service, total_count]) => {
      return [service, { total_count, top_requests: this.#slowest.get(service) }]
    })
    this.#counts = new Map()
    this.#slowest = new Map()
    return Object.fromEntries(entries)
  }
}

/** A span of an operation, or of a part of one. */
class TimedSpan implements RequestSpan {
  readonly name: string
  readonly #tracer: SlowOperations
  readonly #parent: TimedSpan | undefined
  readonly #began: number
  readonly #attributes: Record<string, any> = {}
  /** Microseconds that the parts took, by their names. */
  readonly #parts: Record<string, number> = {}
  #remote: string | undefined

  constructor(tracer: SlowOperations, name: string, parent: TimedSpan | undefined, began: number) {
    this.name = name
    this.#tracer = tracer
    this.#parent = parent
    this.#began = began
  }

  setAttribute(key: string, value: any): void {
    this.#attributes[key] = value
  }

  end(endTime: number = unixTime()): void {
    const micros = Math.max(0, Math.round((endTime - this.#began) * 1000))
    const { 'couchbase.service': service, 'server.address': host, 'server.port': port } = this.#attributes
    if (this.#parent) {
      this.#parent.#parts[this.name] = micros
      if (host !== undefined) this.#parent.#remote = `${host}:${port}`
    }
    if (service === undefined) return
    const { dispatch_to_server: dispatched, request_encoding: encoded } = this.#parts
    this.#tracer.take(service, {
      operation_name: this.name,
      total_duration_us: micros,
      ...(dispatched === undefined ? {} : { last_dispatch_duration_us: dispatched }),
      ...(encoded === undefined ? {} : { encode_duration_us: encoded }),
      ...(this.#remote === undefined ? {} : { last_remote_socket: this.#remote }),
      retries: this.#attributes['couchbase.retries'] ?? 0,
    })
  }
}

/** Durations are counted in ranges, each about 9 % wider than the one before. */
const RANGES_PER_OCTAVE = 8

/** Counts of values by range, in bounded memory: percentiles are within 10 %. */
export class Histogram implements ValueRecorder {
  count = 0
  maximum = 0
  readonly #ranges = new Map<number, number>()

  recordValue(value: number): void {
    const whole = Math.max(0, Math.floor(value))
    this.count++
    this.maximum = Math.max(this.maximum, whole)
    const range = rangeOf(whole)
    this.#ranges.set(range, (this.#ranges.get(range) ?? 0) + 1)
  }

  /** The value that `percent` of 100 values do not exceed; 0 if there are none. */
  percentile(percent: number): number {
    const wanted = (this.count * percent) / 100
    let seen = 0
    for (const [range, count] of [...this.#ranges].sort(([a], [b]) => a - b)) {
      seen += count
      if (seen >= wanted) return Math.min(endOf(range), this.maximum)
    }
    return this.maximum
  }
}

function rangeOf(value: number): number {
  if (value < RANGES_PER_OCTAVE) return value
  const octave = Math.floor(Math.log2(value)) - Math.log2(RANGES_PER_OCTAVE)
  return octave * RANGES_PER_OCTAVE + Math.floor(value / 2 ** octave)
}

function endOf(range: number): number {
  if (range < 2 * RANGES_PER_OCTAVE) return range
  const octave = Math.floor(range / RANGES_PER_OCTAVE) - 1
  return (range - octave * RANGES_PER_OCTAVE + 1) * 2 ** octave - 1
}

/** A meter that counts durations by service and operation, from one report to the next. */
export class Durations implements Meter {
  #histograms = new Map<string, Map<string, Histogram>>()

  valueRecorder(name: string, tags: Record<string, any>): Histogram {
    const service = String(tags['couchbase.service'] ?? name)
    const operations = this.#histograms.get(service) ?? new Map<string, Histogram>()
    this.#histograms.set(service, operations)
    const operation = String(tags['db.operation.name'] ?? '')
    const found = operations.get(operation) ?? new Histogram()
    operations.set(operation, found)
    return found
  }

  report(): object | undefined {
    if (!this.#histograms.size) return undefined
    const services = [...this.#histograms].map(([service, operations]) => {
      return [service, Object.fromEntries([...operations].map(([name, found]) => [name, summary(found)]))]
    })
    this.#histograms = new Map()
    return Object.fromEntries(services)
  }
}

function summary(histogram: Histogram): object {
  const percentiles = [50, 90, 99, 99.9].map((percent) => [percent.toFixed(1), histogram.percentile(percent)])
  return {
    total_count: histogram.count,
    percentiles_us: { ...Object.fromEntries(percentiles), '100.0': histogram.maximum },
  }
}

/** Answers that came when nobody waited for them any more, from one report to the next. */
export class Orphans implements OrphanSink {
  readonly #sampleSize: number
  #count = 0
  #sample: object[] = []

  constructor(sampleSize: number) {
    this.#sampleSize = sampleSize
  }

  take(operation: string, opaque: number, remote: string, local: string): void {
    this.#count++
    this.#sample.push({
      operation_name: operation,
      operation_id: `0x${opaque.toString(16)}`,
      last_remote_socket: remote,
      last_local_socket: local,
    })
    if (this.#sample.length > this.#sampleSize) this.#sample.shift()
  }

  report(): object | undefined {
    if (!this.#count) return undefined
    const found = { kv: { total_count: this.#count, top_requests: this.#sample } }
    this.#count = 0
    this.#sample = []
    return found
  }
}
