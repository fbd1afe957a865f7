/**
 * Spans and durations for OpenTelemetry. This package does not depend on OpenTelemetry's package: it finds the providers
 * that an application has registered in the registry of that package.
 *
 *     connect(url, { tracer: getOTelTracer(), meter: getOTelMeter() })
 */

import { CouchbaseError } from './errors.js'
import type { Meter, RequestSpan, RequestTracer, ValueRecorder } from './tracing.js'

/** The part of an OpenTelemetry span that this module uses. */
export interface OTelSpan {
  setAttribute(key: string, value: any): unknown
  addEvent(name: string, time?: any): unknown
  setStatus(status: { code: number; message?: string }): unknown
  end(endTime?: any): void
  isRecording(): boolean
}

/** The context of an operation. */
export interface OTelContext {
  getValue(key: symbol): unknown
  setValue(key: symbol, value: unknown): OTelContext
  deleteValue(key: symbol): OTelContext
}

/** The part of an OpenTelemetry tracer that this module uses. */
export interface OTelTracer {
  startSpan(name: string, options?: any, context?: any): OTelSpan
}

/** A tracer provider. */
export interface OTelTracerProvider {
  getTracer(name: string, version?: string): OTelTracer
}

/** A histogram of OpenTelemetry. */
export interface OTelHistogram {
  record(value: number, attributes?: any): void
}

/** The part of an OpenTelemetry meter that this module uses. */
export interface OTelMeter {
  createHistogram(name: string, options?: any): OTelHistogram
}

/** A meter provider. */
export interface OTelMeterProvider {
  getMeter(name: string, version?: string): OTelMeter
}

/** OpenTelemetry has no meter or no tracer. */
export class MeterError extends CouchbaseError {
  static override summary: string = 'There is no meter of OpenTelemetry.'
}

const LIBRARY = 'nacre-js'
const VERSION = '0.1.0'
/** Span kind of clients. */
const CLIENT = 2
/** Key under which all copies of OpenTelemetry's API version 1 store registered providers. */
const REGISTRY = Symbol.for('opentelemetry.js.api.1')
/** Key of the span in a context, which is equal in all copies of the package. */
const SPAN = Symbol.for('OpenTelemetry Context Key SPAN')

/** Returns the providers that the application has registered with OpenTelemetry. */
function registered(): { trace?: OTelTracerProvider; metrics?: OTelMeterProvider; context?: { active(): OTelContext } } {
  return (globalThis as any)[REGISTRY] ?? {}
}

/** An immutable context. */
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

/** Wraps an OpenTelemetry span as a span of an operation. */
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

  /** Adds an event at a time in Unix milliseconds, by default now. */
  addEvent(name: string, time?: number): void {
    this.span.addEvent(name, time)
  }

  /** Sets the status of the operation. */
  setStatus(status: { code: number; message?: string }): void {
    this.span.setStatus(status)
  }

  /** Ends the span at a time in Unix milliseconds, by default now. */
  end(endTime?: number): void {
    this.span.end(endTime)
  }

  /** False if the span is not sampled. */
  isRecording(): boolean {
    return this.span.isRecording()
  }
}

/** Wraps an OpenTelemetry tracer. A span without a parent becomes a child of the active span. */
export class OTelWrapperTracer implements RequestTracer {
  readonly #tracer: OTelTracer

  constructor(tracer: OTelTracer) {
    this.#tracer = tracer
  }

  /** Starts a span. */
  requestSpan(name: string, parentSpan?: RequestSpan, startTime?: number): OTelWrapperSpan {
    const active = registered().context?.active() ?? new Context()
    const parent = parentSpan instanceof OTelWrapperSpan ? parentSpan.span : parentSpan
    const context = parent ? active.setValue(SPAN, parent) : active
    return new OTelWrapperSpan(this.#tracer.startSpan(name, { kind: CLIENT, startTime }, context), name)
  }
}

/** Wraps an OpenTelemetry histogram with tags. */
export class OTelValueRecorder implements ValueRecorder {
  readonly #histogram: OTelHistogram
  readonly #tags: Record<string, string>
  readonly #unit: string | undefined

  constructor(histogram: OTelHistogram, tags: Record<string, string>, unit?: string) {
    this.#histogram = histogram
    this.#tags = tags
    this.#unit = unit
  }

  /** Records a value. If the unit is seconds, the argument is in microseconds. */
  recordValue(value: number): void {
    this.#histogram.record(this.#unit === 's' ? value / 1e6 : value, this.#tags)
  }
}

/** Wraps an OpenTelemetry meter. */
export class OTelWrapperMeter implements Meter {
  readonly #meter: OTelMeter
  readonly #histograms = new Map<string, OTelHistogram>()

  constructor(meter: OTelMeter) {
    this.#meter = meter
  }

  /** Returns the recorder of a metric with tags. */
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
 * Returns a tracer for `connect`, from the given or the registered provider.
 *
 * @throws MeterError if there is no provider.
 */
export function getOTelTracer(provider: OTelTracerProvider | undefined = registered().trace): RequestTracer {
  if (!provider) throw new MeterError('no provider of tracers is registered with OpenTelemetry')
  return new OTelWrapperTracer(provider.getTracer(LIBRARY, VERSION))
}

/**
 * Returns a meter for `connect`, from the given or the registered provider.
 *
 * @throws MeterError if there is no provider.
 */
export function getOTelMeter(provider: OTelMeterProvider | undefined = registered().metrics): Meter {
  if (!provider) throw new MeterError('no provider of meters is registered with OpenTelemetry')
  return new OTelWrapperMeter(provider.getMeter(LIBRARY, VERSION))
}
