/** The end of an operation: its timeout or its caller's `AbortSignal`, whichever comes first. */

import { InvalidArgumentError } from './errors.js'
import type { RequestSpan } from './tracing.js'

/** Returns the milliseconds of a monotonic clock. */
export function now(): number {
  return performance.now()
}

/** The rejection of promises after a deadline. It never leaves this package. */
export class DeadlineOver extends Error {
  constructor() {
    // Creating a stack trace takes longer than the rest of a request, and nobody sees this one.
    const { stackTraceLimit } = Error
    Error.stackTraceLimit = 0
    super()
    Error.stackTraceLimit = stackTraceLimit
  }
}

/** Options of every operation. */
export interface OperationOptions {
  /** Timeout of the operation in milliseconds. */
  timeout?: number
  /** Cancels the operation, which fails with `RequestCanceledError`. */
  signal?: AbortSignal
  /** Parent span of the operation, if the cluster has a tracer. */
  parentSpan?: RequestSpan
}

/**
 * Callbacks for the abort of a signal. This module adds only one listener to each signal, because a signal walks
 * through all its listeners whenever one is added or removed. This takes long if thousands of requests share the
 * signal.
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

/** The deadline of an operation. Call `clear` when the operation is over. */
export class Deadline {
  /** The end of the time, on the clock of `performance.now()`. */
  readonly at: number
  readonly #signal: AbortSignal | undefined
  readonly #timer: ReturnType<typeof setTimeout>
  /** The first waiting callback, which is the only one in most requests. */
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

  /** True if the time is over. */
  get over(): boolean {
    return this.#over
  }

  /** The reason of the caller's abort; undefined before that. */
  get aborted(): { reason: unknown } | undefined {
    return this.#aborted ? { reason: this.#signal?.reason } : undefined
  }

  /** Calls `callback` when the time is over, or immediately if it is. The returned function cancels this. */
  onEnd(callback: () => void): () => void {
    if (this.#over) callback()
    else if (!this.#first) this.#first = callback
    else (this.#others ??= new Set()).add(callback)
    return () => {
      if (this.#first === callback) this.#first = undefined
      else this.#others?.delete(callback)
    }
  }

  /** Settles like the promise, or rejects with `DeadlineOver` if the time is over first. */
  race<T>(promise: Promise<T>): Promise<T> {
    return new Promise<T>((resolve, reject) => {
      const forget = this.onEnd(() => reject(new DeadlineOver()))
      promise.then(resolve, reject).finally(forget)
    })
  }

  /** Waits, unless the time is over first. */
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

  /** Removes the timeout and the signal, and ends all waits. */
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
