/**
 * Reads of several documents in a transaction that see each other transaction as a whole, or not at all.
 *
 * Of another attempt that has staged something in one of the documents, the record is read once, so that it counts as
 * committed for all of them or for none. A document that it has changed, according to its record, and that shows nothing
 * of it was read before or after the others: then all are read again.
 */

import { now } from './deadline.js'
import { setTimeout as sleep } from 'node:timers/promises'

import type { Cluster } from './cluster.js'
import type { Collection } from './collection.js'
import { DocumentNotFoundError } from './errors.js'
import { type Entry, type Limits, type Links, readEntry, type Seen, see } from './transaction-records.js'
import type { Transcoder } from './transcoders.js'

/** How much is done to see other transactions as a whole. */
export const TransactionGetMultiMode = {
  /** The documents are read again for 100 ms at most. */
  PrioritiseLatency: 'prioritise_latency',
  /** The documents are read once. */
  DisableReadSkewDetection: 'disable_read_skew_detection',
  /** The documents are read again until the time of the transaction is over. */
  PrioritiseReadSkewDetection: 'prioritise_read_skew_detection',
} as const
/** How much is done to see other transactions as a whole. */
export type TransactionGetMultiMode = (typeof TransactionGetMultiMode)[keyof typeof TransactionGetMultiMode]

/** A document to read. */
export class TransactionGetMultiSpec {
  collection: Collection
  id: string
  transcoder: Transcoder | undefined

  constructor(collection: Collection, id: string, transcoder?: Transcoder) {
    this.collection = collection
    this.id = id
    this.transcoder = transcoder
  }
}

/** What was read for one spec. */
export interface TransactionGetMultiResultEntry {
  error: Error | null
  value?: any
}

/** What was read, in the order of the specs. */
export class TransactionGetMultiResult {
  content: TransactionGetMultiResultEntry[]

  constructor({ content }: { content: TransactionGetMultiResultEntry[] }) {
    this.content = content
  }

  /** Whether the document of a spec was found. */
  exists(index: number): boolean {
    return this.#at(index).error === null
  }

  /**
   * The document of a spec.
   *
   * @throws DocumentNotFoundError it was not found.
   */
  contentAt(index: number): any {
    const { error, value } = this.#at(index)
    if (error) throw error
    return value
  }

  #at(index: number): TransactionGetMultiResultEntry {
    const entry = this.content[index]
    if (!entry) throw new DocumentNotFoundError(`there is no spec ${index}`)
    return entry
  }
}

/** A document, and whether what is staged in it counts. */
export interface Read {
  seen: Seen | undefined
  isCommitted: boolean
}

const PAUSE_MS = 5
const LATENCY_MS_MAX = 100

/** When the documents are read for the last time, on the clock of `performance.now()`. */
export function lastRead(mode: TransactionGetMultiMode | undefined, end: number): number {
  if (mode === TransactionGetMultiMode.DisableReadSkewDetection) return 0
  if (mode === TransactionGetMultiMode.PrioritiseReadSkewDetection) return end
  return Math.min(end, now() + LATENCY_MS_MAX)
}

/** Reads the documents until they show other transactions as a whole, or it is `until`. */
export async function readTogether(
  cluster: Cluster,
  specs: TransactionGetMultiSpec[],
  ownId: string,
  limits: () => Limits,
  until: number,
): Promise<Read[]> {
  const lost = new Set<string>()
  for (;;) {
    const seen = await Promise.all(specs.map(({ collection, id }) => see(collection, id, limits())))
    const others = new Map<string, Links>()
    for (const document of seen) {
      const links = document?.links
      if (links && links.id.atmpt !== ownId) others.set(links.id.atmpt, links)
    }
    const entries = new Map<string, Entry | undefined>()
    for (const [attempt, links] of others) entries.set(attempt, await readEntry(cluster, links, limits()))
    const isWhole = [...entries].every(([attempt, entry]) => {
      // Without an entry it has just ended, or was given up long ago: the next read tells.
      if (!entry) {
        const isLost = lost.has(attempt)
        lost.add(attempt)
        return isLost
      }
      return (
        !isCommitted(entry) ||
        specs.every((spec, index) => !isListed(entry, spec) || attemptOf(seen[index]) === attempt)
      )
    })
    if (isWhole || now() >= until) {
      return seen.map((document) => ({
        seen: document,
        isCommitted: isCommitted(entries.get(attemptOf(document) ?? '')),
      }))
    }
    await sleep(PAUSE_MS)
  }
}

function attemptOf(document: Seen | undefined): string | undefined {
  return document?.links?.id.atmpt
}

function isCommitted(entry: Entry | undefined): boolean {
  return entry?.st === 'COMMITTED' || entry?.st === 'COMPLETED'
}

function isListed({ ins = [], rep = [], rem = [] }: Entry, { collection, id }: TransactionGetMultiSpec): boolean {
  const { scope, name } = collection
  return [...ins, ...rep, ...rem].some(
    (place) => place.id === id && place.col === name && place.scp === scope.name && place.bkt === scope.bucket.name,
  )
}
