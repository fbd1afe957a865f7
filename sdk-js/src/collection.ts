/** Documents of one collection, by key. */

import { BinaryCollection } from './binary-collection.js'
import type { OperationOptions } from './deadline.js'
import { Documents, firstWord, words } from './documents.js'
import { type CouchbaseError, DecodingFailureError, InvalidArgumentError } from './errors.js'
import { PRESERVE_EXPIRY, type Request } from './frame.js'
import { DATATYPE_JSON, Opcode, Status } from './opcodes.js'
import { checkOptions } from './option-names.js'
import {
  checkCas,
  type GetOptions,
  type InsertOptions,
  type MutateInOptions,
  type ReadOptions,
  type RemoveOptions,
  type ReplaceOptions,
  StoreSemantics,
  type UpsertOptions,
  wireExpiry,
} from './options.js'
import type {
  ExistsResult,
  GetResult,
  LookupInResult,
  LookupInResultEntry,
  MutateInResult,
  MutationResult,
} from './results.js'
import { errorOf } from './statuses.js'
import { decodeLookup, decodeMutation, encodeSpecs, LookupInSpec, type MutateInSpec } from './subdocument.js'
import { decodeJson, JSON_FLAGS, type Transcoder } from './transcoders.js'

const SOME_FAILED = [Status.MultiPathFailure]
const WITH_EXPIRY: LookupInSpec[] = [
  LookupInSpec.get('$document.exptime', { xattr: true }),
  LookupInSpec.get('$document.flags', { xattr: true }),
  LookupInSpec.get(''),
]

/** Documents of one collection. */
export class Collection extends Documents {
  /** The same collection, for counters and for documents that are plain bytes. */
  binary(): BinaryCollection {
    return new BinaryCollection(this.scope, this.name)
  }

  /**
   * Reads a document.
   *
   * @throws DocumentNotFoundError there is none.
   */
  async get<T = any>(key: string, options: GetOptions = {}): Promise<GetResult<T>> {
    checkOptions('get', options)
    if (options.withExpiry) return this.#getWithExpiry(key, options)
    return this.#document(key, { opcode: Opcode.Get }, options, true)
  }

  /** Reads a document and sets in how many seconds it expires (0: never). */
  async getAndTouch<T = any>(key: string, expiry: number, options: ReadOptions = {}): Promise<GetResult<T>> {
    checkOptions('getAndTouch', options)
    return this.#document(key, { opcode: Opcode.GetAndTouch, extras: words(wireExpiry(expiry)) }, options)
  }

  /**
   * Reads a document and locks it for 1 to 30 s: only the CAS given changes it meanwhile.
   *
   * @throws DocumentLockedError it stayed locked until the time-out.
   */
  async getAndLock<T = any>(key: string, lockTime: number, options: ReadOptions = {}): Promise<GetResult<T>> {
    checkOptions('getAndLock', options)
    if (!Number.isInteger(lockTime) || lockTime < 1 || lockTime > 30) {
      throw new InvalidArgumentError('a lock holds 1 to 30 seconds')
    }
    return this.#document(key, { opcode: Opcode.GetLocked, extras: words(lockTime) }, options)
  }

  /**
   * Unlocks a document with the CAS that `getAndLock` gave.
   *
   * @throws CasMismatchError it is locked with another CAS.
   * @throws DocumentNotLockedError it is not locked.
   */
  async unlock(key: string, cas: bigint, options: OperationOptions = {}): Promise<void> {
    checkOptions('unlock', options)
    if (checkCas(cas) === 0n) throw new InvalidArgumentError('unlocking needs the CAS of the lock')
    await this.ask(key, { opcode: Opcode.Unlock, cas }, options)
  }

  /** Whether there is a document. */
  async exists(key: string, options: OperationOptions = {}): Promise<ExistsResult> {
    checkOptions('exists', options)
    const request = { opcode: Opcode.GetMeta, extras: Buffer.from([2]) }
    const response = await this.ask(key, request, options, { reads: true, accepted: [Status.KeyNotFound] })
    const exists = response.status === Status.Success && firstWord(response) === 0
    return { exists, cas: exists ? response.cas : undefined }
  }

  /** Sets in how many seconds a document expires (0: never). */
  async touch(key: string, expiry: number, options: OperationOptions = {}): Promise<MutationResult> {
    checkOptions('touch', options)
    const request = { opcode: Opcode.Touch, extras: words(wireExpiry(expiry)) }
    return this.result(key, await this.ask(key, request, options))
  }

  /**
   * Stores a document that must not exist yet.
   *
   * @throws DocumentExistsError it does.
   */
  async insert(key: string, value: any, options: InsertOptions = {}): Promise<MutationResult> {
    checkOptions('insert', options)
    return this.#store(Opcode.Add, key, value, options)
  }

  /** Stores a document, whether it exists or not. */
  async upsert(key: string, value: any, options: UpsertOptions = {}): Promise<MutationResult> {
    checkOptions('upsert', options)
    return this.#store(Opcode.Set, key, value, options)
  }

  /**
   * Stores a document that must exist, with `cas` only if it is still this version.
   *
   * @throws DocumentNotFoundError it does not exist.
   * @throws CasMismatchError it has changed since.
   */
  async replace(key: string, value: any, options: ReplaceOptions = {}): Promise<MutationResult> {
    checkOptions('replace', options)
    return this.#store(Opcode.Replace, key, value, options)
  }

  /** Removes a document, with `cas` only if it is still this version. */
  async remove(key: string, options: RemoveOptions = {}): Promise<MutationResult> {
    checkOptions('remove', options)
    const request = { opcode: Opcode.Delete, cas: checkCas(options.cas) }
    return (await this.mutate(key, request, options)).result
  }

  /** Reads parts of a document, at most 16. A part that fails has an error in the result. */
  async lookupIn(key: string, specs: LookupInSpec[], options: OperationOptions = {}): Promise<LookupInResult> {
    checkOptions('lookupIn', options)
    const { value, order } = encodeSpecs(specs, 'lookup')
    const request = { opcode: Opcode.SubdocMultiLookup, value }
    const response = await this.ask(key, request, options, { reads: true, accepted: SOME_FAILED })
    const content: LookupInResultEntry[] = []
    for (const part of decodeLookup(response.value, specs.length)) {
      const index = order[part.index]!
      content[index] = this.#entry(key, specs[index]!, part.status, part.content)
    }
    return { content, cas: response.cas }
  }

  /**
   * Changes parts of a document, at most 16: all of them, or none if one fails.
   *
   * @throws PathNotFoundError, PathExistsError, PathMismatchError, … a spec failed; the context names its path.
   */
  async mutateIn(key: string, specs: MutateInSpec[], options: MutateInOptions = {}): Promise<MutateInResult> {
    checkOptions('mutateIn', options)
    const { value, order } = encodeSpecs(specs, 'mutation')
    const semantics = options.storeSemantics ?? StoreSemantics.Replace
    const request: Request = {
      opcode: Opcode.SubdocMultiMutation,
      extras: Buffer.concat([
        options.expiry === undefined ? Buffer.alloc(0) : words(wireExpiry(options.expiry)),
        Buffer.from(semantics ? [semantics] : []),
      ]),
      value,
      cas: checkCas(options.cas),
      ...(options.preserveExpiry ? { framing: PRESERVE_EXPIRY } : {}),
    }
    const traits = { adds: semantics === StoreSemantics.Insert, accepted: SOME_FAILED }
    const { response, result } = await this.mutate(key, request, options, traits)
    const content: MutateInResult['content'] = specs.map(() => undefined)
    for (const part of decodeMutation(response.value, specs.length)) {
      const index = order[part.index]!
      if (part.status !== Status.Success) throw this.#pathError(key, specs[index]!.path, part.status)
      content[index] = { value: decodeJson(part.content) }
    }
    if (response.status !== Status.Success) {
      throw new DecodingFailureError('a spec failed, but the answer does not say which')
    }
    return { ...result, content }
  }

  async #document<T>(
    key: string,
    request: Request,
    options: ReadOptions,
    reads = false,
  ): Promise<GetResult<T>> {
    const response = await this.ask(key, request, options, { reads })
    return { content: this.transcoder(options).decode(response.value, firstWord(response)), cas: response.cas }
  }

  async #getWithExpiry<T>(key: string, options: GetOptions): Promise<GetResult<T>> {
    let bytes: Buffer = Buffer.alloc(0)
    const { value, order } = encodeSpecs(WITH_EXPIRY, 'lookup')
    const request = { opcode: Opcode.SubdocMultiLookup, value }
    const response = await this.ask(key, request, options, { reads: true, accepted: SOME_FAILED })
    const numbers: number[] = []
    for (const part of decodeLookup(response.value, WITH_EXPIRY.length)) {
      const index = order[part.index]!
      if (part.status !== Status.Success) throw this.#pathError(key, WITH_EXPIRY[index]!.path, part.status)
      if (index === 2) bytes = part.content
      else numbers[index] = decodeJson(part.content)
    }
    const [expiryTime, flags] = numbers
    if (!Number.isInteger(expiryTime) || !Number.isInteger(flags)) {
      throw new DecodingFailureError('expiry and flags are not numbers')
    }
    return { content: this.transcoder(options).decode(bytes, flags!), cas: response.cas, expiryTime: expiryTime! }
  }

  async #store(opcode: number, key: string, value: any, options: ReplaceOptions): Promise<MutationResult> {
    const transcoder: Transcoder = this.transcoder(options)
    const [content, flags] = transcoder.encode(value)
    const request: Request = {
      opcode,
      extras: words(flags, wireExpiry(options.expiry)),
      value: content,
      cas: checkCas(options.cas),
      datatype: flags === JSON_FLAGS ? DATATYPE_JSON : 0,
      ...(options.preserveExpiry ? { framing: PRESERVE_EXPIRY } : {}),
    }
    return (await this.mutate(key, request, options, { adds: opcode === Opcode.Add })).result
  }

  #entry(key: string, spec: LookupInSpec, status: number, content: Buffer): LookupInResultEntry {
    if (spec.opcode === Opcode.SubdocExists && (status === Status.Success || status === Status.PathNotFound)) {
      return { error: undefined, value: status === Status.Success }
    }
    if (status === Status.Success) return { error: undefined, value: decodeJson(content) }
    return { error: this.#pathError(key, spec.path, status), value: undefined }
  }

  #pathError(key: string, path: string, status: number): CouchbaseError {
    const context = {
      key,
      bucket: this.scope.bucket.name,
      scope: this.scope.name,
      collection: this.name,
      status,
      detail: `path ${JSON.stringify(path)}`,
    }
    return errorOf(status, Opcode.SubdocMultiLookup, context)
  }
}
