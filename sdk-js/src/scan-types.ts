/** What scans look for, and what they find. */

import type { OperationOptions } from './deadline.js'
import type { MutationState } from './mutation-state.js'
import type { Transcoder } from './transcoders.js'

/** End of a range of keys. */
export class ScanTerm {
  readonly term: string
  /** The key itself does not belong to the range. */
  readonly exclusive: boolean

  constructor(term: string, exclusive: boolean = false) {
    this.term = term
    this.exclusive = exclusive
  }
}

/** What a scan looks for. */
export interface ScanType {
  getScanType(): string
}

/** All documents whose key is between two others; an end that is missing has no limit. */
export class RangeScan implements ScanType {
  readonly start: ScanTerm | undefined
  readonly end: ScanTerm | undefined

  constructor(start?: ScanTerm, end?: ScanTerm) {
    this.start = start
    this.end = end
  }

  /** Name of the kind. */
  getScanType(): string {
    return 'range_scan'
  }
}

/** All documents whose key begins with a text. */
export class PrefixScan implements ScanType {
  readonly prefix: string

  constructor(prefix: string) {
    this.prefix = prefix
  }

  /** Name of the kind. */
  getScanType(): string {
    return 'prefix_scan'
  }
}

/** Some documents, chosen at random; the same ones for the same seed. */
export class SamplingScan implements ScanType {
  readonly limit: number
  readonly seed: number | undefined

  constructor(limit: number, seed?: number) {
    this.limit = limit
    this.seed = seed
  }

  /** Name of the kind. */
  getScanType(): string {
    return 'sampling_scan'
  }
}

/** Options of `scan`. */
export interface ScanOptions extends OperationOptions {
  transcoder?: Transcoder
  /** Keys only. */
  idsOnly?: boolean
  /** Bytes that a node gives at a time (15,000). */
  batchByteLimit?: number
  /** Documents that a node gives at a time (50). */
  batchItemLimit?: number
  /** The scan sees these mutations. */
  consistentWith?: MutationState
  /** How many vBuckets are scanned at the same time (1). */
  concurrency?: number
}

/** A document that a scan has found; with `idsOnly` it has an id only. */
export interface ScanResult<T = any> {
  id: string
  content?: T
  cas?: bigint
  /** When it expires, in Unix seconds; 0 is never. */
  expiryTime?: number
}
