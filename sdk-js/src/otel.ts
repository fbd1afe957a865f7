/**
 * Spans and durations for OpenTelemetry, whose package this one does not depend on: what an application has registered there
 * is found where that package keeps it.
 *
 *     connect(url, { tracer: getOTelTracer(), meter: getOTelMeter() })
 */

import { CouchbaseError } from './errors.js'
import type { Meter, RequestSpan, RequestTracer, ValueRecorder } from './tracing.js'

/** A span of OpenTelemetry, as far as it is used here. */
export interface OTelSpan {
  setAttribute(key: string, value: any): unknown
  addEvent(name: string, time?: any): unknown
  setStatus(status: { code: number; message?: string }): unknown
  end(endTime?: any): void
  isRecording(): boolean
}

/** Values that travel with an operation. */
export interface OTelContext {
  getValue(key: symbol): unknown
  setValue(key: symbol, value: unknown): OTelContext
  deleteValue(key: symbol): OTelContext
}

/** A tracer of OpenTelemetry, as far as it is used here. */
export interface OTelTracer {
  startSpan(name: string, options?: any, context?: any): OTelSpan
}

/** A source of tracers. */
export interface OTelTracerProvider {
  getTracer(name: string, version?: string): OTelTracer
}

/** A histogram of OpenTelemetry. */
export interface OTelHistogram {
  record(value: number, attributes?: any): void
}

/** A meter of OpenTelemetry, as far as it is used here. */
export interface OTelMeter {
  createHistogram(name: string, options?: any): OTelHistogram
}

/** A source of meters. */
export interface OTelMeterProvider {
  getMeter(name: string, version?: string): OTelMeter
}

/** There is no meter, or no tracer, of OpenTelemetry. */
export class MeterError extends CouchbaseError {
  static override summary: string = 'There is no meter of OpenTelemetry.'
}

const LIBRARY = 'nacre-js'
const VERSION = '0.1.0'
/** Kind of spans of whoever sends requests. */
const CLIENT = 2
/** Where the package of OpenTelemetry keeps what is registered: its version 1, in whatever copies. */
const REGISTRY = Symbol.for('opentelemetry.js.api.1')
/** Key of the span in a context, which is the same in all copies of the package. */
const SPAN = Symbol.for('OpenTelemetry Context Key SPAN')

/** What an application has registered with OpenTelemetry. */
function registered(): { trace?: OTelTracerProvider; metrics?: OTelMeterProvider; context?: { active(): OTelContext } } {
  return (globalThis as any)[REGISTRY] ?? {}
}

/** A context in which values are looked up; it never changes. */
class Context implements OTelContext {
  readonly #values: ReadonlyMap<symbol, unknown>

  constructor(values: ReadonlyMap<symbol, unknown> = new Map()) {
    this.#values = values
  }

  getValue(key: symbol): unknown {
    return this.#values.get(key)
  }

  setValue(key: symbol, value: unknown): Context {
    return new Context(new Map([...this.#values, [key, value]]))
  }

  deleteValue(key: symbol): Context {
    return new Context(new Map([...this.#values].filter(([other]) => other !== key)))
  }
}

/** A span of OpenTelemetry as one of an operation. */
export class OTelWrapperSpan implements RequestSpan {
  readonly name: string
  /** @internal */
  readonly span: OTelSpan

  constructor(span: OTelSpan, name: string) {
    this.span = span
    this.name = name
  }

  /** Sets an attribute. */
  setAttribute(key: string, value: any): void {
    this.span.setAttribute(key, value)
  }

  /** Adds an event, at a time in Unix milliseconds or now. */
  addEvent(name: string, time?: number): void {
    this.span.addEvent(name, time)
  }

  /** Says how the operation ended. */
  setStatus(status: { code: number; message?: string }): void {
    this.span.setStatus(status)
  }

  /** Ends the span, at a time in Unix milliseconds or now. */
  end(endTime?: number): void {
    this.span.end(endTime)
  }

  /** False if the span is not sampled. */
  isRecording(): boolean {
    return this.span.isRecording()
  }
}

/** A tracer of OpenTelemetry as one of operations. A span without a parent is a child of the span that is active. */
export class OTelWrapperTracer implements RequestTracer {
  readonly #tracer: OTelTracer

  constructor(tracer: OTelTracer) {
    this.#tracer = tracer
  }

  /** Begins a span. */
  requestSpan(name: string, parentSpan?: RequestSpan, startTime?: number): OTelWrapperSpan {
    const active = registered().context?.active() ?? new Context()
    const parent = parentSpan instanceof OTelWrapperSpan ? parentSpan.span : parentSpan
    const context = parent ? active.setValue(SPAN, parent) : active
    return new OTelWrapperSpan(this.#tracer.startSpan(name, { kind: CLIENT, startTime }, context), name)
  }
}

/** A histogram of OpenTelemetry with tags. */
export class OTelValueRecorder implements ValueRecorder {
  readonly #histogram: OTelHistogram
  readonly #tags: Record<string, string>
  readonly #unit: string | undefined

  constructor(histogram: OTelHistogram, tags: Record<string, string>, unit?: string) {
    this.#histogram = histogram
    this.#tags = tags
    this.#unit = unit
  }

  /** Records a value; where the unit is seconds, it is given in microseconds. */
  recordValue(value: number): void {
    this.#histogram.record(this.#unit === 's' ? value / 1e6 : value, this.#tags)
  }
}

/** A meter of OpenTelemetry as one of operations. */
export class OTelWrapperMeter implements Meter {
  readonly #meter: OTelMeter
  readonly #histograms = new Map<string, OTelHistogram>()

  constructor(meter: OTelMeter) {
    this.#meter = meter
  }

  /** The recorder of a metric with tags. */
  valueRecorder(name: string, tags: Record<string, any>): OTelValueRecorder {
    const { __unit: unit, ...attributes } = tags
    let histogram = this.#histograms.get(name)
    if (!histogram) {
      histogram = this.#meter.createHistogram(name, unit === undefined ? {} : { unit })
      this.#histograms.set(name, histogram)
    }
    return new OTelValueRecorder(histogram, attributes, unit)
  }
}

/**
 * A tracer for `connect`, of a provider or of the one that is registered.
 *
 * @throws MeterError there is no provider.
 */
export function getOTelTracer(provider: OTelTracerProvider | undefined = registered().trace): RequestTracer {
  if (!provider) throw new MeterError('no provider of tracers is registered with OpenTelemetry')
  return new OTelWrapperTracer(provider.getTracer(LIBRARY, VERSION))
}

/**
 * A meter for `connect`, of a provider or of the one that is registered.
 *
 * @throws MeterError there is no provider.
 */
export function getOTelMeter(provider: OTelMeterProvider | undefined = registered().metrics): Meter {
  if (!provider) throw new MeterError('no provider of meters is registered with OpenTelemetry')
  return new OTelWrapperMeter(provider.getMeter(LIBRARY, VERSION))
}
