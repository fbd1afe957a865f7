/**
 * Reads several documents in a transaction so that they show each other transaction atomically.
 *
 * If another attempt has staged something in one of the documents, its record is read once, so that the attempt counts
 * as committed for all documents or for none. If the record says that the attempt has changed a document, but the
 * document shows nothing of it, then that document was read before or after the others: all documents are reread.
 */

import { now } from './deadline.js'
import { setTimeout as sleep } from 'node:timers/promises'

import type { Cluster } from './cluster.js'
import type { Collection } from './collection.js'
import { DocumentNotFoundError } from './errors.js'
import { type Entry, type Limits, type Links, type Look, readEntry, type Seen, see } from './transaction-records.js'
import type { Transcoder } from './transcoders.js'

/** How much effort a read makes to see other transactions atomically. */
export const TransactionGetMultiMode = {
  /** Rereads the documents for at most 100 ms. */
  PrioritiseLatency: 'prioritise_latency',
  /** Reads the documents once. */
  DisableReadSkewDetection: 'disable_read_skew_detection',
  /** Rereads the documents until the time of the transaction is over. */
  PrioritiseReadSkewDetection: 'prioritise_read_skew_detection',
} as const
/** How much effort a read makes to see other transactions atomically. */
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

/** The result for one spec. */
export interface TransactionGetMultiResultEntry {
  error: Error | null
  value?: any
}

/** The results, in the order of the specs. */
export class TransactionGetMultiResult {
  content: TransactionGetMultiResultEntry[]

  constructor({ content }: { content: TransactionGetMultiResultEntry[] }) {
    this.content = content
  }

  /** Returns true if the document of a spec exists. */
  exists(index: number): boolean {
    return this.#at(index).error === null
  }

  /**
   * Returns the document of a spec.
   *
   * @throws DocumentNotFoundError if it does not exist.
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

/** A document, and whether its staged content is committed. */
export interface Read {
  seen: Seen | undefined
  isCommitted: boolean
}

const PAUSE_MS = 5
const LATENCY_MS_MAX = 100

/** Returns the time of the last read, on the clock of `performance.now()`. */
export function lastRead(mode: TransactionGetMultiMode | undefined, end: number): number {
  if (mode === TransactionGetMultiMode.DisableReadSkewDetection) return 0
  if (mode === TransactionGetMultiMode.PrioritiseReadSkewDetection) return end
  return Math.min(end, now() + LATENCY_MS_MAX)
}

/** Rereads the documents until they show other transactions atomically, or until the time `until`. */
export async function readTogether(
  cluster: Cluster,
  specs: TransactionGetMultiSpec[],
  ownId: string,
  limits: () => Limits,
  until: number,
  look: Look = see,
): Promise<Read[]> {
  const lost = new Set<string>()
  for (;;) {
    const seen = await Promise.all(specs.map(({ collection, id }) => look(collection, id, limits())))
    const others = new Map<string, Links>()
    for (const document of seen) {
      const links = document?.links
      if (links && links.id.atmpt !== ownId) others.set(links.id.atmpt, links)
    }
    const entries = new Map<string, Entry | undefined>()
    for (const [attempt, links] of others) entries.set(attempt, await readEntry(cluster, links, limits()))
    const isWhole = [...entries].every(([attempt, entry]) => {
      // Without an entry, the attempt has just ended or was abandoned long ago: the next read shows which.
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
