/**
 * A result that arrives item by item. Await it as a whole, iterate over it with `for await`, or listen to it.
 *
 *     const { rows } = await cluster.query(statement)
 *     for await (const row of cluster.query(statement)) …
 *     cluster.query(statement).on('row', …).on('end', …).on('error', …)
 *
 * `for await` reads at the pace of its body, and leaving the loop ends the request. The other two ways store the items
 * or pass them on as they arrive. A request that only reads is sent when its result is first requested. A statement may
 * change documents, so it is sent by the next turn of the event loop at the latest, even if nobody requests the result.
 */

import { InvalidArgumentError } from './errors.js'

/** Calls `callback` in the next turn of the event loop. */
const soon: (callback: () => void) => unknown = globalThis.setImmediate ?? setTimeout

/** Receives each value of an event. */
export type Listener = (value: any) => void

/** Source of the items of a result. Its return value is the metadata. */
export type Source<Item, Meta> = () => AsyncGenerator<Item, Meta, void>

/** Names of the events of a result. */
export interface EventNames {
  /** An item. */
  item: string
  /** Metadata of the result. */
  meta?: string
  /** True if the request only reads. It is sent on the first request for its result, and again after `for await`. */
  repeats?: boolean
}

function readAlready(): Error {
  return new InvalidArgumentError('the rows were read already: send the statement again')
}

/** A result that arrives item by item. */
export class StreamablePromise<Result, Item, Meta = void> implements Promise<Result>, AsyncIterable<Item> {
  readonly #source: Source<Item, Meta>
  readonly #combine: (items: Item[], meta: Meta) => Result
  readonly #names: EventNames
  readonly #listeners = new Map<string, Set<Listener>>()
  #taken = false
  #streamed = false
  #cancelled = false
  #collected: Promise<[Item[], Meta]> | undefined

  /** @internal */
  constructor(source: Source<Item, Meta>, combine: (items: Item[], meta: Meta) => Result, names: EventNames) {
    this.#source = source
    this.#combine = combine
    this.#names = names
    if (names.repeats) return
    soon(() => {
      if (!this.#taken) void this.#collect()
    })
  }

  /** Name of the class. */
  get [Symbol.toStringTag](): string {
    return 'StreamablePromise'
  }

  /** Awaits the whole result. */
  then<A = Result, B = never>(
    onfulfilled?: ((result: Result) => A | PromiseLike<A>) | null,
    onrejected?: ((reason: any) => B | PromiseLike<B>) | null,
  ): Promise<A | B> {
    return this.#whole().then(onfulfilled, onrejected)
  }

  /** Handles an error of the whole result. */
  catch<B = never>(onrejected?: ((reason: any) => B | PromiseLike<B>) | null): Promise<Result | B> {
    return this.#whole().catch(onrejected)
  }

  /** Runs a callback when the whole result has arrived or has failed. */
  finally(onfinally?: (() => void) | null): Promise<Result> {
    return this.#whole().finally(onfinally)
  }

  /** Yields the items one by one. Leaving the loop ends the request. */
  async *[Symbol.asyncIterator](): AsyncGenerator<Item, Meta, void> {
    if (!this.#taken) {
      this.#taken = this.#streamed = true
      return yield* this.#source()
    }
    const [items, meta] = await this.#collect()
    yield* items
    return meta
  }

  /** Listens to `row` (or `result`, `replica`), `meta`, `end` and `error`. */
  on(event: string, listener: Listener): this {
    const listeners = this.#listeners.get(event) ?? new Set()
    this.#listeners.set(event, listeners.add(listener))
    this.#taken = true
    // Listeners that are added in the same turn all receive everything.
    queueMicrotask(() => void this.#collect())
    return this
  }

  /** Equivalent to `on`. */
  addListener(event: string, listener: Listener): this {
    return this.on(event, listener)
  }

  /** Listens to the next event only. */
  once(event: string, listener: Listener): this {
    const once = (value: any): void => {
      this.off(event, once)
      listener(value)
    }
    return this.on(event, once)
  }

  /** Stops listening. */
  off(event: string, listener: Listener): this {
    this.#listeners.get(event)?.delete(listener)
    return this
  }

  /** Equivalent to `off`. */
  removeListener(event: string, listener: Listener): this {
    return this.off(event, listener)
  }

  /**
   * Ends the request of a result that is awaited or listened to. The result then consists of the items received so far.
   */
  cancelStreaming(): void {
    this.#cancelled = true
  }

  /** True if `cancelStreaming` was called. */
  get cancelRequested(): boolean {
    return this.#cancelled
  }

  async #whole(): Promise<Result> {
    const [items, meta] = await this.#collect()
    return this.#combine(items, meta)
  }

  #collect(): Promise<[Item[], Meta]> {
    if (!this.#collected) {
      this.#taken = true
      this.#collected = this.#streamed && !this.#names.repeats ? Promise.reject(readAlready()) : this.#read()
      // Callers who await the promise receive the error. An error that nobody awaits must not end the process.
      this.#collected.then(
        ([, meta]) => {
          if (this.#names.meta) this.#emit(this.#names.meta, meta)
          this.#emit('end', meta)
        },
        (error) => this.#emit('error', error),
      )
    }
    return this.#collected
  }

  async #read(): Promise<[Item[], Meta]> {
    const items: Item[] = []
    const source = this.#source()
    for (;;) {
      const { done, value } = await source.next()
      if (done) return [items, value]
      // Listeners store what they need themselves.
      if (!this.#listeners.get(this.#names.item)?.size) items.push(value)
      this.#emit(this.#names.item, value)
      if (this.#cancelled) {
        await source.return(undefined as Meta)
        return [items, undefined as Meta]
      }
    }
  }

  #emit(event: string, value: unknown): void {
    for (const listener of [...(this.#listeners.get(event) ?? [])]) listener(value)
  }
}
