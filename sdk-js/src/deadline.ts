/** The end of an operation: its time-out or its caller's `AbortSignal`, whichever comes first. */

import { InvalidArgumentError } from './errors.js'
import type { RequestSpan } from './tracing.js'

/** Milliseconds on a clock that only goes forward. */
export function now(): number {
  return performance.now()
}

/** What waits under a deadline is rejected with; never leaves this package. */
export class DeadlineOver extends Error {
  constructor() {
    // A stack costs more than the rest of a request, and nobody sees this one.
    const { stackTraceLimit } = Error
    Error.stackTraceLimit = 0
    super()
    Error.stackTraceLimit = stackTraceLimit
  }
}

/** Options every operation has. */
export interface OperationOptions {
  /** Milliseconds after which the operation fails. */
  timeout?: number
  /** Ends the operation early, with `RequestCanceledError`. */
  signal?: AbortSignal
  /** Span that the operation is a part of, if the cluster has a tracer. */
  parentSpan?: RequestSpan
}

/**
 * Who is called when a signal aborts. A signal has one listener of this module: it walks through all of its listeners
 * whenever one is added or removed, which takes long when thousands of requests share it.
 */
const waiting = new WeakMap<AbortSignal, { callbacks: Set<() => void>; listener: () => void }>()

function listen(signal: AbortSignal, callback: () => void): void {
  let known = waiting.get(signal)
  if (!known) {
    const callbacks = new Set<() => void>()
    known = {
      callbacks,
      listener: () => {
        for (const call of callbacks) call()
      },
    }
    waiting.set(signal, known)
  }
  if (!known.callbacks.size) signal.addEventListener('abort', known.listener)
  known.callbacks.add(callback)
}

function forget(signal: AbortSignal, callback: () => void): void {
  const known = waiting.get(signal)
  if (known?.callbacks.delete(callback) && !known.callbacks.size) signal.removeEventListener('abort', known.listener)
}

/** One operation's time. `clear` it when the operation is over. */
export class Deadline {
  /** When the time is up, on the clock of `performance.now()`. */
  readonly at: number
  readonly #signal: AbortSignal | undefined
  readonly #timer: ReturnType<typeof setTimeout>
  /** The first one that waits, which is the only one of most requests. */
  #first: (() => void) | undefined
  #others: Set<() => void> | undefined
  #over = false
  #aborted = false

  constructor(options: OperationOptions, defaultMs: number) {
    const ms = options.timeout ?? defaultMs
    if (typeof ms !== 'number' || !(ms > 0)) throw new InvalidArgumentError('a time-out is a positive number of ms')
    this.at = now() + ms
    this.#timer = setTimeout(this.#end, Math.min(ms, 0x7fffffff))
    this.#signal = options.signal
    if (this.#signal?.aborted) this.#abort()
    else if (this.#signal) listen(this.#signal, this.#abort)
  }

  /** Whether the time is up. */
  get over(): boolean {
    return this.#over
  }

  /** What the caller aborted with; undefined while it has not. */
  get aborted(): { reason: unknown } | undefined {
    return this.#aborted ? { reason: this.#signal?.reason } : undefined
  }

  /** Calls back when the time is up, or at once if it is; the function returned takes that back. */
  onEnd(callback: () => void): () => void {
    if (this.#over) callback()
    else if (!this.#first) this.#first = callback
    else (this.#others ??= new Set()).add(callback)
    return () => {
      if (this.#first === callback) this.#first = undefined
      else this.#others?.delete(callback)
    }
  }

  /** The promise, or `DeadlineOver` if the time is up first. */
  race<T>(promise: Promise<T>): Promise<T> {
    return new Promise<T>((resolve, reject) => {
      const forget = this.onEnd(() => reject(new DeadlineOver()))
      promise.then(resolve, reject).finally(forget)
    })
  }

  /** Waits. */
  sleep(ms: number): Promise<void> {
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => {
        forget()
        resolve()
      }, ms)
      const forget = this.onEnd(() => {
        clearTimeout(timer)
        reject(new DeadlineOver())
      })
    })
  }

  /** Forgets the time-out and the signal, and ends what still waits. */
  clear(): void {
    clearTimeout(this.#timer)
    if (this.#signal) forget(this.#signal, this.#abort)
    this.#end()
  }

  readonly #abort = (): void => {
    this.#aborted = true
    this.#end()
  }

  readonly #end = (): void => {
    this.#over = true
    const [first, others] = [this.#first, this.#others]
    this.#first = this.#others = undefined
    first?.()
    for (const callback of others ?? []) callback()
  }
}
