/** A request from its first attempt to its last. */

import type { Deadline } from './deadline.js'
import {
  AmbiguousTimeoutError,
  type CouchbaseError,
  type ErrorContext,
  RequestCanceledError,
  UnambiguousTimeoutError,
} from './errors.js'
import type { Watch } from './tracing.js'

const PAUSE_MS_FIRST = 5
const PAUSE_MS_MAX = 500

/** The state of a request, for the error at its deadline. */
export class Attempt {
  readonly context: ErrorContext
  readonly deadline: Deadline
  /** What watches the operation, if anybody does. */
  readonly watch: Watch | undefined
  /** It is on its way to the server, which has not answered. */
  inFlight = false
  /** The error of the last answer, if that was one to try again after. */
  refusal: (() => CouchbaseError) | undefined
  /** Why nodes could not be connected to, by address, as far as none of them was since. */
  unreachable: Map<string, Error> | undefined
  #pause = PAUSE_MS_FIRST

  constructor(context: ErrorContext, deadline: Deadline, watch?: Watch) {
    this.watch = watch
    this.context = context
    this.deadline = deadline
  }

  /** Notes why it is tried again. */
  failed(...reasons: string[]): void {
    this.context.retryAttempts = (this.context.retryAttempts ?? 0) + 1
    this.context.retryReasons = [...new Set([...(this.context.retryReasons ?? []), ...reasons])]
  }

  /** Notes why it is tried again, and waits until then. */
  async again(...reasons: string[]): Promise<void> {
    this.failed(...reasons)
    await this.pause()
  }

  /** Waits, longer each time. */
  async pause(): Promise<void> {
    await this.deadline.sleep(this.#pause)
    this.#pause = Math.min(this.#pause * 2, PAUSE_MS_MAX)
  }

  /** The error of a request that found no end in time. */
  expired(reads: boolean): CouchbaseError {
    const aborted = this.deadline.aborted
    if (aborted) return new RequestCanceledError('the request was aborted', this.context, aborted.reason)
    if (this.inFlight && !reads) return new AmbiguousTimeoutError(undefined, this.context)
    // An answer that was had says more than the one that is missing.
    if (this.refusal) return this.refusal()
    if (!this.unreachable?.size) return new UnambiguousTimeoutError(undefined, this.context)
    const nodes = [...this.unreachable].map(([address, error]) => `${address} (${error.message})`)
    const message = `${UnambiguousTimeoutError.summary} No connection to ${nodes.join(', ')}`
    const [address, error] = [...this.unreachable][0]!
    return new UnambiguousTimeoutError(message, { ...this.context, endpoint: address }, error.cause ?? error)
  }
}
