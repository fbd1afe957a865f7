/**
 * A statement whose result is kept up to date: `for await (const { rows, changes } of cluster.live(statement))`.
 *
 * The statement is carried out again when a document of a collection changes that it reads, and what has changed in its
 * result is given. Changes that come while it runs, or while nobody takes the last result, are taken together.
 */

import { Changes, type ChangesSource } from './changes.js'
import { Deadline, DeadlineOver } from './deadline.js'
import { ChangesLostError, InvalidArgumentError, RequestCanceledError, TimeoutError } from './errors.js'
import { type QueryOptions, type QueryResult, QueryScanConsistency } from './query.js'

/** A cluster whose statements can be kept up to date. */
export interface LiveSource {
  query<TRow>(statement: string, options: QueryOptions): PromiseLike<QueryResult<TRow>>
  bucket(name: string): { scope(name: string): { collection(name: string): ChangesSource } }
}

/** Options of `live`. */
export interface LiveOptions extends Pick<QueryOptions, 'parameters' | 'queryContext' | 'timeout'> {
  /** Collections whose changes make the statement run again; those in its plan if not given. */
  collections?: ChangesSource[]
  /** How long to wait at least between two runs, in ms (50). */
  interval?: number
  /** Ends the result, without a failure. */
  signal?: AbortSignal
}

/** A place in the result where rows were taken out and others put in. */
export interface RowChange<TRow = any> {
  /** Number of the first row that is concerned, in the result to which the changes before this one were applied. */
  at: number
  /** How many rows were taken out there. */
  removed: number
  /** Rows that were put in. */
  added: TRow[]
}

/** The result, and how it differs from the one before; the first differs from no rows. */
export interface LiveUpdate<TRow = any> {
  rows: TRow[]
  changes: RowChange<TRow>[]
}

const INTERVAL_MS = 50
const PAUSE_MS_MAX = 5000
const ENDLESS_MS = 0x7fffffff
/** Beyond so many comparisons, everything between what is equal at both ends counts as changed. */
const COMPARISONS_MAX = 4_000_000

/** A result that is kept up to date; read with `for await`. */
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
   * The first result, and then each that differs from the one before. Leaving the loop, or the signal, ends it.
   *
   * It fails as the statement does, and with `CollectionNotFoundError` when a collection is dropped.
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
      // The feeds begin before the first run, so that no change falls between.
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

  /** The rows, after as many attempts as it takes a node to be there again. */
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
        // A time-out that the caller asked for is a failure.
        const passes = error instanceof RequestCanceledError || (error instanceof TimeoutError && timeout === undefined)
        if (!passes || deadline.over) throw error
      }
      await deadline.sleep(pause)
    }
  }

  /**
   * Collections that the statement reads, by its plan.
   *
   * @throws InvalidArgumentError the plan does not tell all of them.
   */
  async #collections(): Promise<ChangesSource[]> {
    const { parameters, queryContext } = this.#options
    const options = { ...(parameters ? { parameters } : {}), ...(queryContext === undefined ? {} : { queryContext }) }
    const { rows } = await this.#cluster.query<any>(`EXPLAIN ${this.#statement}`, options)
    const found = new Map<string, ChangesSource>()
    let isWhole = true
    const visit = (value: unknown): void => {
      // The plan has subqueries as text.
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

/** Whether there is something to do, and the wait for it. */
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

/** Wakes at every change of a collection from now on, in the background. */
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
      // As when the bucket was flushed: what is there now is what counts.
      feed = await begin()
      wake.set()
    }
  }
  void read(await begin()).catch((error) => wake.set(error))
}

/** Applies the changes of an update to the rows of the one before. */
export function applyChanges<TRow>(rows: readonly TRow[], changes: readonly RowChange<TRow>[]): TRow[] {
  const result = [...rows]
  for (const { at, removed, added } of changes) result.splice(at, removed, ...added)
  return result
}

/** How rows, compared by their texts, become others. */
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

/** The splices that keep a longest common subsequence. */
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
    // Rows before this place are those of the new result already.
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
