/**
 * Reports of slow operations, of durations and of orphan responses, as JSON lines for the logger. Only programs that
 * ask for reports load this module.
 */

import type { OrphanSink } from './access.js'
import { InvalidArgumentError } from './errors.js'
import type { CouchbaseLogger } from './logger.js'
import { checkOptions } from './option-names.js'
import type { Meter, RequestSpan, RequestTracer, ValueRecorder } from './tracing.js'
import { unixTime } from './tracing.js'

/** Settings of the reports about slow operations. Durations are in milliseconds. */
export interface TracingConfig {
  /** False for no reports. */
  enableTracing?: boolean
  /** Time between reports (10,000). */
  emitInterval?: number
  /** Maximum number of operations per service in a report (64). */
  sampleSize?: number
  /** Threshold for operations on documents (500). */
  kvThreshold?: number
  /** Threshold for statements (1,000, as for the following). */
  queryThreshold?: number
  searchThreshold?: number
  analyticsThreshold?: number
  managementThreshold?: number
  eventingThreshold?: number
  viewsThreshold?: number
}

/** Settings of the reports about durations. */
export interface MetricsConfig {
  /** False for no reports. */
  enableMetrics?: boolean
  /** Milliseconds between reports (600,000). */
  emitInterval?: number
}

/** Settings of the reports about orphan responses. */
export interface OrphanReporterConfig {
  /** False for no reports. */
  enableOrphanReporting?: boolean
  /** Milliseconds between reports (10,000). */
  emitInterval?: number
  /** Maximum number of responses in a report (64). */
  sampleSize?: number
}

/** Settings of all reports. */
export interface ReportConfigs {
  tracingConfig?: TracingConfig | undefined
  metricsConfig?: MetricsConfig | undefined
  orphanReporterConfig?: OrphanReporterConfig | undefined
}

/** Source of a report; undefined if there is nothing to report. */
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

  /** @throws InvalidArgumentError if a setting is invalid. */
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

  /** Sends the last reports, and stops. */
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
    // The timer must not keep the process alive between two reports.
    timer.unref?.()
    this.#timers.push(timer)
  }
}

function positive(name: string, value: number): number {
  if (typeof value !== 'number' || !(value > 0)) throw new InvalidArgumentError(`${name} is a positive number`)
  return value
}

/** The entry of a slow operation in a report. */
interface SlowOperation {
  operation_name: string
  total_duration_us: number
  last_dispatch_duration_us?: number
  encode_duration_us?: number
  last_remote_socket?: string
  retries?: number
}

/** A tracer that collects the slowest operations of each service until the next report. */
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

  /** Records a finished operation if it was slow. */
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

/** A span of an operation, or of a part of an operation. */
class TimedSpan implements RequestSpan {
  readonly name: string
  readonly #tracer: SlowOperations
  readonly #parent: TimedSpan | undefined
  readonly #began: number
  readonly #attributes: Record<string, any> = {}
  /** Durations of the parts in microseconds, by name. */
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

/** Number of ranges per octave: each range is about 9 % wider than the previous one. */
const RANGES_PER_OCTAVE = 8

/** Counts of values by range, in bounded memory. Percentiles have an error of at most 10 %. */
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

  /** Returns the given percentile, or 0 if there are no values. */
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

/** A meter that collects durations by service and operation until the next report. */
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

/** Collects orphan responses until the next report. */
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
