/**
 * Scans of a collection: the client scans every vBucket separately, on the node that serves it.
 *
 * RANGE_SCAN_CREATE (0xda) returns the ID of the scan (16 bytes). The responses to RANGE_SCAN_CONTINUE (0xdb) are
 * frames with documents; the status of the last frame says whether there are more (0xa6) or not (0xa7). A frame
 * contains either keys, each preceded by its length in LEB128, or documents: flags u32, expiry u32, seqno u64, CAS u64,
 * datatype u8, and then key and value, each preceded by its length.
 */

import { randomInt } from 'node:crypto'

import { now, Deadline, DeadlineOver } from './deadline.js'
import type { Documents } from './documents.js'
import { CouchbaseError, DecodingFailureError, FeatureNotAvailableError, InvalidArgumentError } from './errors.js'
import type { Response } from './frame.js'
import { Attempt } from './attempt.js'
import { DATATYPE_JSON, Opcode, Status } from './opcodes.js'
import type { MutationToken } from './results.js'
import { PrefixScan, RangeScan, SamplingScan, type ScanOptions, type ScanResult, ScanTerm } from './scan-types.js'
import { errorOf } from './statuses.js'
import { watch } from './tracing.js'
import type { Transcoder } from './transcoders.js'

const BATCH_BYTES = 15_000
const BATCH_ITEMS = 50
const CONCURRENCY_MAX = 128
const KEY_END = Buffer.from([0xff])

/** Yields the documents of a scan, ordered by key within each vBucket. */
export async function* scan<T>(
  documents: Documents,
  scanType: RangeScan | SamplingScan | PrefixScan,
  options: ScanOptions,
): AsyncGenerator<ScanResult<T>, void, void> {
  const wanted = selectionOf(scanType)
  const limit = scanType instanceof SamplingScan ? scanType.limit : Infinity
  const concurrency = count('concurrency', options.concurrency, 1, CONCURRENCY_MAX)
  const limits = [
    count('batchItemLimit', options.batchItemLimit, BATCH_ITEMS),
    0,
    count('batchByteLimit', options.batchByteLimit, BATCH_BYTES),
  ]
  const defaultMs = documents.timeouts.kvScanTimeout
  const map = await documents.client.bootstrap(options, options.timeout ?? defaultMs)
  const tokens = options.consistentWith?.of(documents.scope.bucket.name) ?? new Map<number, MutationToken>()
  const deadline = new Deadline(options, defaultMs)
  const context = {
    operation: 'scan',
    bucket: documents.scope.bucket.name,
    scope: documents.scope.name,
    collection: documents.name,
  }
  const watched = watch(documents.client.instruments, 'kv', context, options.parentSpan)
  const attempt = new Attempt(context, deadline, watched)
  let failure: unknown
  const running = new Map<AsyncGenerator<Found[], void, void>, Promise<Step>>()
  try {
    const collection = await documents.client.collectionId(documents.scope.name, documents.name, attempt)
    let next = 0
    let found = 0
    for (;;) {
      while (running.size < concurrency && next < map.vbuckets.length && found < limit) {
        const vbid = next++
        const work = { vbid, collection, wanted, limits, token: tokens.get(vbid), idsOnly: options.idsOnly === true }
        const part = scanVbucket(documents, work, new Attempt({ ...context }, deadline))
        running.set(part, step(part))
      }
      if (!running.size) return
      const { part, done, items } = await Promise.race(running.values())
      if (done) running.delete(part)
      else running.set(part, step(part))
      for (const item of items) {
        if (found++ >= limit) return
        yield readItem<T>(item, documents.transcoderOf(options), options.idsOnly === true)
      }
    }
  } catch (error) {
    failure = error instanceof DeadlineOver ? attempt.expired(true) : error
    throw failure
  } finally {
    deadline.clear()
    watched?.end(failure)
    // Running requests fail at the deadline, and nobody waits for them.
    for (const waiting of running.values()) waiting.catch(() => {})
    for (const part of running.keys()) void part.return().catch(() => {})
  }
}

interface Step {
  part: AsyncGenerator<Found[], void, void>
  done: boolean
  items: Found[]
}

async function step(part: AsyncGenerator<Found[], void, void>): Promise<Step> {
  const { done, value } = await part.next()
  return { part, done: done === true, items: value ?? [] }
}

/** The selection of a scan in the format of the server. */
type Selection = { range: Record<string, string> } | { sampling: { samples: number; seed: number } }

interface Work {
  vbid: number
  collection: number
  wanted: Selection
  limits: number[]
  token: MutationToken | undefined
  idsOnly: boolean
}

/** A document in a frame. */
interface Found {
  key: Buffer
  value: Buffer
  cas: bigint
  flags: number
  expiry: number
}

async function* scanVbucket(documents: Documents, work: Work, attempt: Attempt): AsyncGenerator<Found[], void, void> {
  let last: Buffer | undefined
  const seen = new Set<string>()
  for (;;) {
    const id = await create(documents, work, last, attempt)
    if (!id) return
    let open = true
    try {
      for (;;) {
        const { status, items } = await proceed(documents, work, id, attempt)
        // A restarted sample returns the same documents again.
        const fresh = items.filter(({ key }) => 'range' in work.wanted || !seen.has(key.toString('hex')))
        if (!('range' in work.wanted)) for (const { key } of fresh) seen.add(key.toString('hex'))
        last = items.at(-1)?.key ?? last
        open = status === Status.RangeScanMore
        if (fresh.length) yield fresh
        if (status === Status.RangeScanComplete) return
        if (!open) break
      }
    } finally {
      if (open) cancel(documents, work.vbid, id)
    }
    // The node has lost the scan, for instance after a restart or a move of the vBucket.
    await attempt.again('KV_SCAN_LOST')
  }
}

/** Starts a scan after the key `last`. Returns its ID, or undefined if there are no documents. */
async function create(
  documents: Documents,
  { vbid, collection, wanted, token, idsOnly }: Work,
  last: Buffer | undefined,
  attempt: Attempt,
): Promise<Buffer | undefined> {
  const description: Record<string, unknown> = { collection: collection.toString(16), ...wanted }
  if (last && 'range' in wanted) {
    const { start: _, excl_start: __, ...rest } = wanted.range
    description['range'] = { ...rest, excl_start: last.toString('base64') }
  }
  if (idsOnly) description['key_only'] = true
  if (token) {
    const timeout = Math.max(1, Math.floor(attempt.deadline.at - now()))
    description['snapshot_requirements'] = {
      vb_uuid: String(token.partitionUuid),
      seqno: Number(token.sequenceNumber),
      timeout_ms: timeout,
    }
  }
  const value = Buffer.from(JSON.stringify(description))
  const request = { opcode: Opcode.RangeScanCreate, value, vbid, datatype: DATATYPE_JSON }
  const [response] = await documents.client.askVbucket(request, attempt)
  if (response!.status === Status.KeyNotFound) return undefined
  if (response!.status !== Status.Success) throw failure(response!, attempt)
  if (response!.value.length !== 16) throw new DecodingFailureError("a scan's name is missing", attempt.context)
  return response!.value
}

async function proceed(
  documents: Documents,
  { vbid, limits, idsOnly }: Work,
  id: Buffer,
  attempt: Attempt,
): Promise<{ status: number; items: Found[] }> {
  const extras = Buffer.alloc(28)
  id.copy(extras)
  limits.forEach((number, index) => extras.writeUInt32BE(number, 16 + index * 4))
  const isLast = ({ status }: Response): boolean => status !== Status.Success
  const responses = await documents.client.askVbucket(
    { opcode: Opcode.RangeScanContinue, extras, vbid },
    attempt,
    isLast,
  )
  const { status } = responses.at(-1)!
  if (status === Status.KeyNotFound || status === Status.RangeScanCancelled) return { status, items: [] }
  if (status !== Status.RangeScanMore && status !== Status.RangeScanComplete) throw failure(responses.at(-1)!, attempt)
  return { status, items: responses.flatMap(({ value }) => readFrame(value, idsOnly)) }
}

/** Cancels a scan. A missing response is not an error. */
function cancel(documents: Documents, vbid: number, id: Buffer): void {
  const deadline = new Deadline({}, 1000)
  const attempt = new Attempt({}, deadline)
  const asked = documents.client.askVbucket({ opcode: Opcode.RangeScanCancel, extras: id, vbid }, attempt)
  void asked.catch(() => {}).finally(() => deadline.clear())
}

function failure({ status, opcode }: Response, attempt: Attempt): CouchbaseError {
  const context = { ...attempt.context, status }
  if (status === Status.UnknownCommand) return new FeatureNotAvailableError(undefined, context)
  if (status === Status.VbUuidNotEqual) {
    return new CouchbaseError('the scan is to see a mutation that a fail-over has lost', context)
  }
  return errorOf(status, opcode, context)
}

/** Decodes the documents in a frame. */
function readFrame(value: Buffer, idsOnly: boolean): Found[] {
  const items: Found[] = []
  let at = 0
  const take = (byteCount: number): Buffer => {
    if (at + byteCount > value.length) throw new DecodingFailureError('the answer of a scan is cut off')
    return value.subarray(at, (at += byteCount))
  }
  const takeSized = (): Buffer => {
    let length = 0
    for (let shift = 0; ; shift += 7) {
      const byte = take(1)[0]!
      if (shift > 28) throw new DecodingFailureError('the answer of a scan has a length over the limit')
      length += (byte & 0x7f) * 2 ** shift
      if (byte < 0x80) return take(length)
    }
  }
  while (at < value.length) {
    const head = idsOnly ? undefined : take(25)
    const key = takeSized()
    items.push({
      key,
      value: head ? takeSized() : Buffer.alloc(0),
      flags: head?.readUInt32BE(0) ?? 0,
      expiry: head?.readUInt32BE(4) ?? 0,
      cas: head?.readBigUInt64BE(16) ?? 0n,
    })
  }
  return items
}

function readItem<T>(
  { key, value, cas, flags, expiry }: Found,
  transcoder: Transcoder,
  idsOnly: boolean,
): ScanResult<T> {
  const id = key.toString()
  return idsOnly ? { id } : { id, content: transcoder.decode(value, flags), cas, expiryTime: expiry }
}

function selectionOf(scanType: RangeScan | SamplingScan | PrefixScan): Selection {
  if (scanType instanceof SamplingScan) {
    const samples = count('limit', scanType.limit, 1)
    const seed = count('seed', scanType.seed, randomInt(2 ** 32))
    return { sampling: { samples, seed } }
  }
  if (scanType instanceof PrefixScan) {
    if (typeof scanType.prefix !== 'string') throw new InvalidArgumentError('a prefix is a string')
    const prefix = Buffer.from(scanType.prefix)
    const end = Buffer.concat([prefix, KEY_END])
    return { range: { start: prefix.toString('base64'), excl_end: end.toString('base64') } }
  }
  if (!(scanType instanceof RangeScan)) {
    throw new InvalidArgumentError('a scan is a RangeScan, a PrefixScan or a SamplingScan')
  }
  const { start, end } = scanType
  return {
    range: {
      ...(start ? bound('start', start) : { start: Buffer.from([0]).toString('base64') }),
      ...(end ? bound('end', end) : { excl_end: KEY_END.toString('base64') }),
    },
  }
}

function bound(name: string, { term, exclusive }: ScanTerm): Record<string, string> {
  if (typeof term !== 'string') throw new InvalidArgumentError('the end of a range is a ScanTerm')
  return { [exclusive ? `excl_${name}` : name]: Buffer.from(term).toString('base64') }
}

function count(name: string, value: number | undefined, normal: number, most = 0xffffffff): number {
  const number = value ?? normal
  if (!Number.isInteger(number) || number < (name === 'seed' ? 0 : 1) || number > most) {
    throw new InvalidArgumentError(`${name} is a number from 1 to ${most}`)
  }
  return number
}
