/** Types of scans and of their results. */

import type { OperationOptions } from './deadline.js'
import type { MutationState } from './mutation-state.js'
import type { Transcoder } from './transcoders.js'

/** End of a range of keys. */
export class ScanTerm {
  readonly term: string
  /** True if the range excludes the key itself. */
  readonly exclusive: boolean

  constructor(term: string, exclusive: boolean = false) {
    this.term = term
    this.exclusive = exclusive
  }
}

/** The documents that a scan returns. */
export interface ScanType {
  getScanType(): string
}

/** All documents with keys in a range. A missing end is open. */
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

/** All documents whose keys have a prefix. */
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

/** A random sample of documents, which the seed determines. */
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
  /** True for results with keys only. */
  idsOnly?: boolean
  /** Number of bytes per batch of a node (15,000). */
  batchByteLimit?: number
  /** Number of documents per batch of a node (50). */
  batchItemLimit?: number
  /** Mutations that the scan must reflect. */
  consistentWith?: MutationState
  /** Number of vBuckets that are scanned concurrently (1). */
  concurrency?: number
}

/** A document in a scan; with `idsOnly`, only its ID. */
export interface ScanResult<T = any> {
  id: string
  content?: T
  cas?: bigint
  /** Expiry in Unix seconds; 0 for never. */
  expiryTime?: number
}
