/** The end of an operation: its time-out or its caller's `AbortSignal`, whichever comes first. */

import { InvalidArgumentError } from './errors.js'
import type { RequestSpan } from './tracing.js'

/** Milliseconds on a clock that only goes forward. */
export function now(): number {
  return performance.now()
}

/** What waits under a deadline is rejected with; never leaves this package. */
export class DeadlineOver extends Error {}

/** Options every operation has. */
export interface OperationOptions {
  /** Milliseconds after which the operation fails. */
  timeout?: number
  /** Ends the operation early, with `RequestCanceledError`. */
  signal?: AbortSignal
  /** Span that the operation is a part of, if the cluster has a tracer. */
  parentSpan?: RequestSpan
}

/** One operation's time. `clear` it when the operation is over. */
export class Deadline {
  /** When the time is up, on the clock of `performance.now()`. */
  readonly at: number
  readonly #signal: AbortSignal | undefined
  readonly #timer: ReturnType<typeof setTimeout>
  readonly #waiting = new Set<() => void>()
  #over = false
  #aborted = false

  constructor(options: OperationOptions, defaultMs: number) {
    const ms = options.timeout ?? defaultMs
    if (typeof ms !== 'number' || !(ms > 0)) throw new InvalidArgumentError('a time-out is a positive number of ms')
    this.at = now() + ms
    this.#timer = setTimeout(this.#end, Math.min(ms, 0x7fffffff))
    this.#signal = options.signal
    if (this.#signal?.aborted) this.#abort()
    else this.#signal?.addEventListener('abort', this.#abort)
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
    else this.#waiting.add(callback)
    return () => this.#waiting.delete(callback)
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
    this.#signal?.removeEventListener('abort', this.#abort)
    this.#end()
  }

  readonly #abort = (): void => {
    this.#aborted = true
    this.#end()
  }

  readonly #end = (): void => {
    this.#over = true
    for (const callback of this.#waiting) callback()
    this.#waiting.clear()
  }
}
