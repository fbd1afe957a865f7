/**
 * The storage format of transactions, which all SDKs share: records, and changes staged in the documents.
 *
 *     a record      _txn:atr-474-#12a9   xattr attempts.<attempt> {tid, st, tst, exp, d, ins, rep, rem, …}
 *     a document    xattr txn {id: {txn, atmpt, op}, atr: {id, bkt, scp, coll}, op: {type, stgd, crc32}, restore, aux}
 *
 * A document that a transaction inserts is a tombstone until the commit. The state of the attempt in its record
 * determines the visible body: the staged one if the state is COMMITTED, else the previous one.
 */

import type { Bucket } from './bucket.js'
import type { Cluster } from './cluster.js'
import type { Collection } from './collection.js'
import { DocumentNotFoundError, DocumentUnretrievableError, PathNotFoundError } from './errors.js'
import { vbucketOf } from './keys.js'
import type { DurabilityLevel } from './options.js'
import { GROUP_OR_ALL, readAny } from './replicas.js'
import { LookupInMacro, LookupInSpec } from './subdocument.js'

/** Number of records in a collection. */
export const RECORD_COUNT = 1024

/** Durability levels as records name them. */
export const LEVEL_CODES: readonly string[] = ['n', 'm', 'pa', 'pm']

/** Kind of a change. */
export type ChangeType = 'insert' | 'replace' | 'remove'

/** The staged change of a document. */
export interface Links {
  id: { txn: string; atmpt: string; op?: string }
  atr: { id: string; bkt: string; scp: string; coll: string }
  op: { type: ChangeType; stgd?: unknown; bin?: unknown; crc32?: string }
  restore?: Restore
  fc?: Record<string, { b?: string }[]>
}

/** The previous version of a document. */
export interface Restore {
  CAS: string
  exptime: number
  revid: string
}

/** The address of a document in a record. */
export interface Place {
  bkt: string
  scp: string
  col: string
  id: string
}

/** The entry of an attempt in its record. */
export interface Entry {
  tid: string
  st: string
  ins?: Place[]
  rep?: Place[]
  rem?: Place[]
}

/** A document with its transaction attributes. */
export interface Seen {
  cas: bigint
  isDeleted: boolean
  flags: number
  links: Links | undefined
  restore: Restore
  body: Buffer
}

const suffixes = new Map<number, string>()

/**
 * Returns the key of the record for documents of a vBucket. The smallest hexadecimal suffix is used that puts the
 * record into the same vBucket.
 */
export function recordKey(documentKey: string): string {
  const vbid = vbucketOf(Buffer.from(documentKey), RECORD_COUNT)
  let key = suffixes.get(vbid)
  for (let number = 0; key === undefined; number++) {
    const tried = `_txn:atr-${vbid}-#${number.toString(16)}`
    if (vbucketOf(Buffer.from(tried), RECORD_COUNT) === vbid) key = tried
  }
  suffixes.set(vbid, key)
  return key
}

/** Time limits of a request. */
export interface Limits {
  timeout: number
  durabilityLevel?: DurabilityLevel
}

const SEEN = [LookupInSpec.get('txn', { xattr: true }), LookupInSpec.get(LookupInMacro.Document), LookupInSpec.get('')]

/** Reads a document or its tombstone. Returns undefined if there is neither. */
export type Look = (collection: Collection, key: string, limits: Limits) => Promise<Seen | undefined>

/** Reads the active copy. */
export const see: Look = async (collection, key, { timeout }) => {
  try {
    return seenOf(await collection.lookUpRaw(key, SEEN, { timeout }))
  } catch (error) {
    if (error instanceof DocumentNotFoundError) return undefined
    throw error
  }
}

/**
 * Reads the copy that answers first: of those in the preferred server group, or of all if the group has none. Copies
 * other than the active one may lag behind.
 *
 * @throws DocumentUnretrievableError if no copy can be read, other than for lack of the document.
 */
export const seeNear: Look = async (collection, key, { timeout }) => {
  const options = { timeout, readPreference: GROUP_OR_ALL } as const
  try {
    return seenOf(await readAny(collection, key, options, (copy, limits) => collection.lookUpRaw(key, SEEN, limits, copy)))
  } catch (error) {
    if (error instanceof DocumentUnretrievableError && error.cause instanceof DocumentNotFoundError) return undefined
    throw error
  }
}

function seenOf({ parts, cas }: { parts: (Buffer | undefined)[]; cas: bigint }): Seen {
  const [links, document, body] = parts
  const { CAS, exptime, revid, deleted, flags } = JSON.parse(document!.toString())
  return {
    cas,
    isDeleted: deleted === true,
    flags,
    links: links && JSON.parse(links.toString()),
    restore: { CAS, exptime, revid },
    body: body ?? Buffer.alloc(0),
  }
}

/** Reads an attempt's entry in the record that a document names. Returns undefined if it no longer exists. */
export async function readEntry(cluster: Cluster, { atr, id }: Links, { timeout }: Limits): Promise<Entry | undefined> {
  const collection = cluster.bucket(atr.bkt).scope(atr.scp).collection(atr.coll)
  return entryOf(collection, atr.id, id.atmpt, timeout)
}

/** Reads an attempt's entry in a record. */
export async function entryOf(
  collection: Collection,
  recordId: string,
  attemptId: string,
  timeout: number,
): Promise<Entry | undefined> {
  try {
    const spec = LookupInSpec.get(`attempts.${attemptId}`, { xattr: true })
    const { content } = await collection.lookupIn(recordId, [spec], { timeout })
    const { error, value } = content[0]!
    if (error && !(error instanceof PathNotFoundError)) throw error
    return value
  } catch (error) {
    if (error instanceof DocumentNotFoundError) return undefined
    throw error
  }
}

/** Returns the collection for the records of transactions whose first document is in the bucket. */
export function recordCollection(bucket: Bucket): Collection {
  return bucket.defaultCollection()
}
