/**
 * Live results: `for await (const { rows, changes } of cluster.live(statement))`.
 *
 * The client reruns the statement when a document changes in a collection that the statement reads, and yields the
 * changes of the result. Changes that arrive during a run, or before the caller takes the last result, are combined.
 */

import { Changes, type ChangesSource } from './changes.js'
import { Deadline, DeadlineOver } from './deadline.js'
import { ChangesLostError, InvalidArgumentError, RequestCanceledError, TimeoutError } from './errors.js'
import { type QueryOptions, type QueryResult, QueryScanConsistency } from './query.js'

/** A cluster that supports live results. */
export interface LiveSource {
  query<TRow>(statement: string, options: QueryOptions): PromiseLike<QueryResult<TRow>>
  bucket(name: string): { scope(name: string): { collection(name: string): ChangesSource } }
}

/** Options of `live`. */
export interface LiveOptions extends Pick<QueryOptions, 'parameters' | 'queryContext' | 'timeout'> {
  /** Collections whose changes rerun the statement; by default those in its plan. */
  collections?: ChangesSource[]
  /** Minimum time between two runs, in ms (50). */
  interval?: number
  /** Ends the result without an error. */
  signal?: AbortSignal
}

/** A position in the result where rows were removed and others inserted. */
export interface RowChange<TRow = any> {
  /** Index of the first affected row, in the result after the previous changes. */
  at: number
  /** Number of removed rows. */
  removed: number
  /** Inserted rows. */
  added: TRow[]
}

/** The result, and its difference from the previous one. The first result is compared with no rows. */
export interface LiveUpdate<TRow = any> {
  rows: TRow[]
  changes: RowChange<TRow>[]
}

const INTERVAL_MS = 50
const PAUSE_MS_MAX = 5000
const ENDLESS_MS = 0x7fffffff
/** Maximum number of comparisons. Beyond it, everything between the common prefix and suffix counts as changed. */
const COMPARISONS_MAX = 4_000_000

/** A live result. Read it with `for await`. */
export class Live<TRow = any> implements AsyncIterable<LiveUpdate<TRow>> {
  readonly #cluster: LiveSource
  readonly #statement: string
  readonly #options: LiveOptions

  /** @internal */
  constructor(cluster: LiveSource, statement: string, options: LiveOptions) {
    if (typeof statement !== 'string' || !statement) throw new InvalidArgumentError('a statement is a string')
    this.#cluster = cluster
    this.#statement = statement
    this.#options = options
  }

  /**
   * Yields the first result, and then each result that differs from the previous one. Leaving the loop, or the signal,
   * ends it.
   *
   * Fails if the statement fails, and with `CollectionNotFoundError` if a collection is dropped.
   */
  async *[Symbol.asyncIterator](): AsyncGenerator<LiveUpdate<TRow>, void, void> {
    const { signal, interval = INTERVAL_MS } = this.#options
    const controller = new AbortController()
    const abort = (): void => controller.abort()
    if (signal?.aborted) return
    signal?.addEventListener('abort', abort)
    const deadline = new Deadline({ signal: controller.signal, timeout: ENDLESS_MS }, ENDLESS_MS)
    const wake = new Wake()
    try {
      // The feeds start before the first run, so that no change is missed.
      for (const collection of this.#options.collections ?? (await this.#collections())) {
        await follow(collection, controller.signal, wake)
      }
      let texts: string[] = []
      for (let isFirst = true; ; isFirst = false) {
        wake.clear()
        const rows = await this.#run(deadline)
        const next = rows.map((row) => JSON.stringify(row))
        const changes = difference(texts, next, rows)
        texts = next
        if (isFirst || changes.length) yield { rows, changes }
        await deadline.sleep(interval)
        await deadline.race(wake.wait())
      }
    } catch (error) {
      if (signal?.aborted) return
      throw error instanceof DeadlineOver ? new RequestCanceledError('the statement was aborted') : error
    } finally {
      signal?.removeEventListener('abort', abort)
      controller.abort()
      deadline.clear()
    }
  }

  /** Returns the rows, and retries until a node is available. */
  async #run(deadline: Deadline): Promise<TRow[]> {
    const { parameters, queryContext, timeout } = this.#options
    const options = {
      scanConsistency: QueryScanConsistency.RequestPlus,
      readOnly: true,
      ...(parameters ? { parameters } : {}),
      ...(queryContext === undefined ? {} : { queryContext }),
      ...(timeout === undefined ? {} : { timeout }),
    }
    for (let pause = INTERVAL_MS; ; pause = Math.min(pause * 2, PAUSE_MS_MAX)) {
      try {
        return (await deadline.race(Promise.resolve(this.#cluster.query<TRow>(this.#statement, options)))).rows
      } catch (error) {
        // A timeout of the caller is an error.
        const passes = error instanceof RequestCanceledError || (error instanceof TimeoutError && timeout === undefined)
        if (!passes || deadline.over) throw error
      }
      await deadline.sleep(pause)
    }
  }

  /**
   * Returns the collections that the statement reads, according to its plan.
   *
   * @throws InvalidArgumentError if the plan does not name all of them.
   */
  async #collections(): Promise<ChangesSource[]> {
    const { parameters, queryContext } = this.#options
    const options = { ...(parameters ? { parameters } : {}), ...(queryContext === undefined ? {} : { queryContext }) }
    const { rows } = await this.#cluster.query<any>(`EXPLAIN ${this.#statement}`, options)
    const found = new Map<string, ChangesSource>()
    let isWhole = true
    const visit = (value: unknown): void => {
      // The plan contains subqueries as text.
      if (typeof value === 'string') isWhole &&= !/\(\s*(select|with)\s/i.test(value)
      if (typeof value !== 'object' || value === null) return
      const { bucket, scope = '_default', keyspace } = value as Record<string, string>
      if (typeof keyspace === 'string') {
        const name = bucket === undefined ? '_default' : keyspace
        const place = this.#cluster
          .bucket(bucket ?? keyspace)
          .scope(scope)
          .collection(name)
        found.set(JSON.stringify([bucket ?? keyspace, scope, name]), place)
      }
      Object.values(value).forEach(visit)
    }
    visit(rows[0]?.plan)
    if (!isWhole || !found.size)
      throw new InvalidArgumentError('the plan does not name all collections: give them as an option')
    return [...found.values()]
  }
}

/** A flag for pending work, and the wait for it. */
class Wake {
  #isDue = false
  #failure: unknown
  #resolve: (() => void) | undefined

  clear(): void {
    this.#isDue = false
  }

  set(failure?: unknown): void {
    this.#isDue = true
    this.#failure ??= failure
    this.#resolve?.()
  }

  async wait(): Promise<void> {
    if (!this.#isDue) await new Promise<void>((resolve) => (this.#resolve = resolve))
    if (this.#failure !== undefined) throw this.#failure
  }
}

/** Wakes `wake` at every change of a collection from now on, in the background. */
async function follow(collection: ChangesSource, signal: AbortSignal, wake: Wake): Promise<void> {
  const begin = async (): Promise<Changes> => {
    const feed = new Changes(collection, { since: 'now', includeDocs: false, signal })
    await feed.prepare()
    return feed
  }
  const read = async (first: Changes): Promise<void> => {
    for (let feed = first; ;) {
      try {
        for await (const _ of feed) wake.set()
        return
      } catch (error) {
        if (!(error instanceof ChangesLostError)) throw error
      }
      // The changes were lost, for instance by a flush of the bucket: only the present documents matter.
      feed = await begin()
      wake.set()
    }
  }
  void read(await begin()).catch((error) => wake.set(error))
}

/** Applies the changes of an update to the rows of the previous result. */
export function applyChanges<TRow>(rows: readonly TRow[], changes: readonly RowChange<TRow>[]): TRow[] {
  const result = [...rows]
  for (const { at, removed, added } of changes) result.splice(at, removed, ...added)
  return result
}

/** Returns the changes between two results, whose rows are compared by their texts. */
export function difference<TRow>(before: string[], after: string[], rows: TRow[]): RowChange<TRow>[] {
  let start = 0
  while (start < before.length && start < after.length && before[start] === after[start]) start++
  let same = 0
  const shorter = Math.min(before.length, after.length) - start
  while (same < shorter && before[before.length - 1 - same] === after[after.length - 1 - same]) same++
  const [old, fresh] = [before.slice(start, before.length - same), after.slice(start, after.length - same)]
  if (!old.length && !fresh.length) return []
  if (!old.length || !fresh.length || old.length * fresh.length > COMPARISONS_MAX) {
    return [{ at: start, removed: old.length, added: rows.slice(start, start + fresh.length) }]
  }
  return alignment(old, fresh).map(({ at, from, removed, count }) => ({
    at: start + at,
    removed,
    added: rows.slice(start + from, start + from + count),
  }))
}

interface Splice {
  at: number
  from: number
  removed: number
  count: number
}

/** Returns the splices that preserve a longest common subsequence. */
function alignment(old: string[], fresh: string[]): Splice[] {
  const width = fresh.length + 1
  const lengths = new Uint32Array((old.length + 1) * width)
  for (let i = old.length - 1; i >= 0; i--) {
    for (let j = fresh.length - 1; j >= 0; j--) {
      const at = i * width + j
      lengths[at] =
        old[i] === fresh[j] ? lengths[at + width + 1]! + 1 : Math.max(lengths[at + width]!, lengths[at + 1]!)
    }
  }
  const splices: Splice[] = []
  let open: Splice | undefined
  for (let i = 0, j = 0; i < old.length || j < fresh.length;) {
    if (i < old.length && j < fresh.length && old[i] === fresh[j]) {
      open = undefined
      i++
      j++
      continue
    }
    // Rows before this position already belong to the new result.
    if (!open) splices.push((open = { at: j, from: j, removed: 0, count: 0 }))
    const removes =
      j >= fresh.length || (i < old.length && lengths[(i + 1) * width + j]! >= lengths[i * width + j + 1]!)
    if (removes) {
      open.removed++
      i++
    } else {
      open.count++
      j++
    }
  }
  return splices
}
