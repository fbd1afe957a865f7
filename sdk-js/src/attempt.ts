/** The state of a request across all its attempts. */

import { type Deadline, DeadlineOver } from './deadline.js'
import {
  AmbiguousTimeoutError,
  type CouchbaseError,
  type ErrorContext,
  RequestCanceledError,
  UnambiguousTimeoutError,
} from './errors.js'
import { ConnectionFailed } from './http-messages.js'
import type { Watch } from './tracing.js'

const PAUSE_MS_FIRST = 5
const PAUSE_MS_MAX = 500

/** The state of a request, from which the error at its deadline is created. */
export class Attempt {
  readonly context: ErrorContext
  readonly deadline: Deadline
  /** The watch of the operation, if it has a tracer or a meter. */
  readonly watch: Watch | undefined
  /** True if the request is in flight. */
  inFlight = false
  /** The error of the last response, if it allows a retry. */
  refusal: (() => CouchbaseError) | undefined
  /** The connection errors by address, since the last successful connection. */
  unreachable: Map<string, Error> | undefined
  #pause = PAUSE_MS_FIRST

  constructor(context: ErrorContext, deadline: Deadline, watch?: Watch) {
    this.watch = watch
    this.context = context
    this.deadline = deadline
  }

  /** Records the reasons for a retry. */
  failed(...reasons: string[]): void {
    this.context.retryAttempts = (this.context.retryAttempts ?? 0) + 1
    this.context.retryReasons = [...new Set([...(this.context.retryReasons ?? []), ...reasons])]
  }

  /** Records the reasons for a retry, and waits until then. */
  async again(...reasons: string[]): Promise<void> {
    this.failed(...reasons)
    await this.pause()
  }

  /** Waits with increasing back-off. */
  async pause(): Promise<void> {
    await this.deadline.sleep(this.#pause)
    this.#pause = Math.min(this.#pause * 2, PAUSE_MS_MAX)
  }

  /** Returns the error that the caller gets for an error of an attempt. */
  failureOf(error: unknown, reads: boolean): unknown {
    if (error instanceof DeadlineOver) return this.expired(reads)
    if (error instanceof ConnectionFailed) return new RequestCanceledError(error.message, this.context, error.cause)
    return error
  }

  /** Returns the error of a request whose time is over. */
  expired(reads: boolean): CouchbaseError {
    const aborted = this.deadline.aborted
    if (aborted) return new RequestCanceledError('the request was aborted', this.context, aborted.reason)
    if (this.inFlight && !reads) return new AmbiguousTimeoutError(undefined, this.context)
    // A response that did arrive says more than the missing one.
    if (this.refusal) return this.refusal()
    if (!this.unreachable?.size) return new UnambiguousTimeoutError(undefined, this.context)
    const nodes = [...this.unreachable].map(([address, error]) => `${address} (${error.message})`)
    const message = `${UnambiguousTimeoutError.summary} No connection to ${nodes.join(', ')}`
    const [address, error] = [...this.unreachable][0]!
    return new UnambiguousTimeoutError(message, { ...this.context, endpoint: address }, error.cause ?? error)
  }
}
