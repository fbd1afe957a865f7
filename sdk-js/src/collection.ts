/** Access to the documents of a collection by key. */

import { BinaryCollection } from './binary-collection.js'
import { Changes, type ChangesOptions } from './changes.js'
import { CouchbaseList, CouchbaseMap, CouchbaseQueue, CouchbaseSet } from './data-structures.js'
import type { OperationOptions } from './deadline.js'
import { Documents, firstWord, words } from './documents.js'
import {
  type CouchbaseError,
  DecodingFailureError,
  InvalidArgumentError,
  PathMismatchError,
  PathNotFoundError,
} from './errors.js'
import { PRESERVE_EXPIRY, type Request } from './frame.js'
import { DATATYPE_JSON, Feature, Opcode, Status } from './opcodes.js'
import { checkOptions } from './option-names.js'
import {
  type CasInput,
  checkCas,
  type DurableOptions,
  type GetOptions,
  type InsertOptions,
  type LookupInOptions,
  type LookupInReplicaOptions,
  type MutateInOptions,
  type ReadOptions,
  type RemoveOptions,
  type ReplaceOptions,
  type ReplicaOptions,
  StoreSemantics,
  type UpsertOptions,
  wireExpiry,
} from './options.js'
import { insertAt, valueAt } from './projection.js'
import { lazy } from './lazy.js'
import type { CollectionQueryIndexManager } from './query-indexes.js'
import { readAll, readAny } from './replicas.js'
import type {
  ExistsResult,
  GetReplicaResult,
  GetResult,
  LookupInReplicaResult,
  LookupInResult,
  LookupInResultEntry,
  MultiDocuments,
  MultiResult,
  MutateInResult,
  MutationResult,
} from './results.js'
import { SchemaTranscoder, type StandardSchema } from './schemas.js'
import type { PrefixScan, RangeScan, SamplingScan, ScanOptions, ScanResult } from './scan-types.js'
import { errorOf } from './statuses.js'
import { StreamablePromise } from './streamable.js'
import {
  decodeLookup,
  decodeMutation,
  encodeSpecs,
  LookupInMacro,
  LookupInSpec,
  type MutateInSpec,
} from './subdocument.js'
import { decodeJson, JSON_FLAGS, type Transcoder } from './transcoders.js'

const SOME_FAILED = [Status.MultiPathFailure, Status.SuccessDeleted, Status.MultiPathFailureDeleted]
const ACCESS_DELETED = 0x04
const REPLICA_READ = 0x20
const WITH_EXPIRY: LookupInSpec[] = [
  LookupInSpec.get('$document.exptime', { xattr: true }),
  LookupInSpec.get('$document.flags', { xattr: true }),
  LookupInSpec.get(''),
]

/** A collection of documents. */
export class Collection extends Documents {
  /** Name of the default collection, which every bucket has. */
  static get DEFAULT_NAME(): string {
    return '_default'
  }

  /** Returns the manager of the query indexes on this collection. */
  queryIndexes(): CollectionQueryIndexManager {
    return lazy(async () => new (await import('./query-indexes.js')).CollectionQueryIndexManager(this))
  }

  /**
   * Returns the same collection with a schema for all its documents. Other documents are refused with
   * `ValidationError`, before they are stored and when they are read. Parts of documents, projections, changes and
   * transactions are not checked.
   *
   *     const orders = collection.withSchema(z.object({ total: z.number() }))
   */
  withSchema<Input, Output>(schema: StandardSchema<Input, Output>): TypedCollection<Input, Output> {
    return new TypedCollection<Input, Output>(this.scope, this.name, new SchemaTranscoder(schema, this.transcoder))
  }

  /** Returns the binary operations of the collection, for counters and binary documents. */
  binary(): BinaryCollection {
    return new BinaryCollection(this.scope, this.name)
  }

  /**
   * Reads a document.
   *
   * @throws DocumentNotFoundError if it does not exist.
   */
  async get<T = any>(key: string, options: GetOptions = {}): Promise<GetResult<T>> {
    checkOptions('get', options)
    if (options.project) return this.#getProjected(key, options, options.project)
    if (options.withExpiry) return this.#getWithExpiry(key, options)
    return this.#document(key, { opcode: Opcode.Get }, options, true)
  }

  /** Reads a document and sets its expiry in seconds (0: never). */
  async getAndTouch<T = any>(key: string, expiry: number | Date, options: ReadOptions = {}): Promise<GetResult<T>> {
    checkOptions('getAndTouch', options)
    return this.#document(key, { opcode: Opcode.GetAndTouch, extras: words(wireExpiry(expiry)) }, options)
  }

  /**
   * Reads a document and locks it for 1 to 30 s. Meanwhile, writes require the returned CAS.
   *
   * @throws DocumentLockedError if the document stays locked until the timeout.
   */
  async getAndLock<T = any>(key: string, lockTime: number, options: ReadOptions = {}): Promise<GetResult<T>> {
    checkOptions('getAndLock', options)
    if (!Number.isInteger(lockTime) || lockTime < 1 || lockTime > 30) {
      throw new InvalidArgumentError('a lock holds 1 to 30 seconds')
    }
    return this.#document(key, { opcode: Opcode.GetLocked, extras: words(lockTime) }, options)
  }

  /**
   * Unlocks a document with the CAS from `getAndLock`.
   *
   * @throws CasMismatchError if the document is locked with another CAS.
   * @throws DocumentNotLockedError if the document is not locked.
   */
  async unlock(key: string, cas: CasInput, options: OperationOptions = {}): Promise<void> {
    checkOptions('unlock', options)
    const lock = checkCas(cas)
    if (lock === 0n) throw new InvalidArgumentError('unlocking needs the CAS of the lock')
    await this.ask(key, { opcode: Opcode.Unlock, cas: lock }, options)
  }

  /**
   * Reads a document from whichever copy answers first.
   *
   * @throws DocumentUnretrievableError if no copy can be read.
   */
  async getAnyReplica<T = any>(key: string, options: ReplicaOptions = {}): Promise<GetReplicaResult<T>> {
    checkOptions('getAnyReplica', options)
    return readAny(this, key, options, (copy, limits) => this.getCopy<T>(key, limits, copy))
  }

  /**
   * Reads all available copies of a document.
   *
   * @throws DocumentUnretrievableError if no copy can be read.
   */
  getAllReplicas<T = any>(
    key: string,
    options: ReplicaOptions = {},
  ): StreamablePromise<GetReplicaResult<T>[], GetReplicaResult<T>> {
    checkOptions('getAllReplicas', options)
    const source = () => readAll(this, key, options, (copy, limits) => this.getCopy<T>(key, limits, copy))
    return new StreamablePromise(source, (copies) => copies, { item: 'replica', repeats: true })
  }

  /**
   * Reads parts of a document from whichever copy answers first.
   *
   * @throws DocumentUnretrievableError if no copy can be read.
   */
  async lookupInAnyReplica(
    key: string,
    specs: LookupInSpec[],
    options: LookupInReplicaOptions = {},
  ): Promise<LookupInReplicaResult> {
    checkOptions('lookupInAnyReplica', options)
    return readAny(this, key, options, (copy, limits) => this.lookUp(key, specs, limits, { copy }))
  }

  /**
   * Reads parts of all available copies of a document.
   *
   * @throws DocumentUnretrievableError if no copy can be read.
   */
  lookupInAllReplicas(
    key: string,
    specs: LookupInSpec[],
    options: LookupInReplicaOptions = {},
  ): StreamablePromise<LookupInReplicaResult[], LookupInReplicaResult> {
    checkOptions('lookupInAllReplicas', options)
    const source = () => readAll(this, key, options, (copy, limits) => this.lookUp(key, specs, limits, { copy }))
    return new StreamablePromise(source, (copies) => copies, { item: 'replica', repeats: true })
  }

  /** Reads the documents of a range of keys, or a sample of them, in no particular order. */
  scan<T = any>(
    scanType: RangeScan | SamplingScan | PrefixScan,
    options: ScanOptions = {},
  ): StreamablePromise<ScanResult<T>[], ScanResult<T>> {
    checkOptions('scan', options)
    const scan = async function* (documents: Collection): AsyncGenerator<ScanResult<T>, void, void> {
      yield* (await import('./scans.js')).scan<T>(documents, scanType, options)
    }
    const source = () => scan(this)
    return new StreamablePromise(source, (results) => results, { item: 'result', repeats: true })
  }

  /**
   * Returns the changes of the collection after a token, and further changes as they happen. This feature is specific
   * to nacre.
   *
   *     for await (const change of collection.changes({ since: token })) …
   */
  changes<T = any>(options: ChangesOptions = {}): Changes<T> {
    checkOptions('changes', options)
    return new Changes<T>(this, options)
  }

  /** Returns a list that is stored as an array in a document. */
  list(key: string): CouchbaseList {
    return new CouchbaseList(this, key)
  }

  /** Returns a map that is stored as an object in a document. */
  map(key: string): CouchbaseMap {
    return new CouchbaseMap(this, key)
  }

  /** Returns a queue that is stored as an array in a document. */
  queue(key: string): CouchbaseQueue {
    return new CouchbaseQueue(this, key)
  }

  /** Returns a set that is stored as an array in a document. */
  set(key: string): CouchbaseSet {
    return new CouchbaseSet(this, key)
  }

  /** Reports whether a document exists. */
  async exists(key: string, options: OperationOptions = {}): Promise<ExistsResult> {
    checkOptions('exists', options)
    const request = { opcode: Opcode.GetMeta, extras: Buffer.from([2]) }
    const response = await this.ask(key, request, options, { reads: true, accepted: [Status.KeyNotFound] })
    const exists = response.status === Status.Success && firstWord(response) === 0
    return { exists, cas: exists ? response.cas : undefined }
  }

  /** Sets the expiry of a document in seconds (0: never). */
  async touch(key: string, expiry: number | Date, options: OperationOptions = {}): Promise<MutationResult> {
    checkOptions('touch', options)
    const request = { opcode: Opcode.Touch, extras: words(wireExpiry(expiry)) }
    return this.result(key, await this.ask(key, request, options))
  }

  /**
   * Stores a document that must not exist yet.
   *
   * @throws DocumentExistsError if the document exists already.
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
   * Replaces an existing document. With `cas`, the document must still have this version.
   *
   * @throws DocumentNotFoundError if the document does not exist.
   * @throws CasMismatchError if the document has changed.
   */
  async replace(key: string, value: any, options: ReplaceOptions = {}): Promise<MutationResult> {
    checkOptions('replace', options)
    return this.#store(Opcode.Replace, key, value, options)
  }

  /** Removes a document. With `cas`, the document must still have this version. */
  async remove(key: string, options: RemoveOptions = {}): Promise<MutationResult> {
    checkOptions('remove', options)
    const request = { opcode: Opcode.Delete, cas: checkCas(options.cas) }
    return (await this.mutate(key, request, options)).result
  }

  /** Reads documents. The requests are sent together, and each has its own result. */
  async getMulti<T = any>(keys: Iterable<string>, options: GetOptions = {}): Promise<MultiResult<GetResult<T>>> {
    checkOptions('get', options)
    return (await import('./multi.js')).each(keys, (key) => this.get<T>(key, options))
  }

  /** Reports which documents exist. */
  async existsMulti(keys: Iterable<string>, options: OperationOptions = {}): Promise<MultiResult<ExistsResult>> {
    checkOptions('exists', options)
    return (await import('./multi.js')).each(keys, (key) => this.exists(key, options))
  }

  /** Sets the expiry of documents in seconds (0: never). */
  async touchMulti(
    keys: Iterable<string>,
    expiry: number | Date,
    options: OperationOptions = {},
  ): Promise<MultiResult<MutationResult>> {
    checkOptions('touch', options)
    return (await import('./multi.js')).each(keys, (key) => this.touch(key, expiry, options))
  }

  /** Stores documents that must not exist yet. */
  async insertMulti(documents: MultiDocuments, options: InsertOptions = {}): Promise<MultiResult<MutationResult>> {
    checkOptions('insert', options)
    return (await import('./multi.js')).eachDocument(documents, (key, value) => this.insert(key, value, options))
  }

  /** Stores documents, whether they exist or not. */
  async upsertMulti(documents: MultiDocuments, options: UpsertOptions = {}): Promise<MultiResult<MutationResult>> {
    checkOptions('upsert', options)
    return (await import('./multi.js')).eachDocument(documents, (key, value) => this.upsert(key, value, options))
  }

  /** Stores documents that must exist. */
  async replaceMulti(documents: MultiDocuments, options: UpsertOptions = {}): Promise<MultiResult<MutationResult>> {
    checkOptions('upsert', options)
    return (await import('./multi.js')).eachDocument(documents, (key, value) => this.replace(key, value, options))
  }

  /** Removes documents. */
  async removeMulti(keys: Iterable<string>, options: DurableOptions = {}): Promise<MultiResult<MutationResult>> {
    checkOptions('removeMulti', options)
    return (await import('./multi.js')).each(keys, (key) => this.remove(key, options))
  }

  /** Reads up to 16 parts of a document. A failed part has an error in the result. */
  async lookupIn(key: string, specs: LookupInSpec[], options: LookupInOptions = {}): Promise<LookupInResult> {
    checkOptions('lookupIn', options)
    return this.lookUp(key, specs, options, { flags: options.accessDeleted ? ACCESS_DELETED : 0 })
  }

  /**
   * Changes up to 16 parts of a document atomically.
   *
   * @throws PathNotFoundError, PathExistsError, PathMismatchError, … if a spec fails; the context names its path.
   */
  async mutateIn(key: string, specs: MutateInSpec[], options: MutateInOptions = {}): Promise<MutateInResult> {
    checkOptions('mutateIn', options)
    return this.mutateParts(key, specs, options, options.storeSemantics ?? StoreSemantics.Replace)
  }

  /** Changes parts of a document; the flags state whether the document must exist. @internal */
  async mutateParts(
    key: string,
    specs: MutateInSpec[],
    options: Omit<MutateInOptions, 'storeSemantics'>,
    flags: number,
    needs?: number,
  ): Promise<MutateInResult> {
    const began = this.began()
    const { value, order } = encodeSpecs(specs, 'mutation')
    const request: Request = {
      opcode: Opcode.SubdocMultiMutation,
      extras: Buffer.concat([
        options.expiry === undefined ? Buffer.alloc(0) : words(wireExpiry(options.expiry)),
        Buffer.from(flags ? [flags] : []),
      ]),
      value,
      cas: checkCas(options.cas),
      ...(options.preserveExpiry ? { framing: PRESERVE_EXPIRY } : {}),
    }
    const adds = (flags & StoreSemantics.Insert) !== 0
    const traits = { adds, began, accepted: SOME_FAILED, ...(needs === undefined ? {} : { needs }) }
    const { response, result } = await this.mutate(key, request, options, traits)
    const content: MutateInResult['content'] = specs.map(() => undefined)
    for (const part of decodeMutation(response.value, specs.length)) {
      const index = order[part.index]!
      if (part.status !== Status.Success) throw this.#pathError(key, specs[index]!.path, part.status)
      content[index] = { value: decodeJson(part.content) }
    }
    if (response.status === Status.MultiPathFailure || response.status === Status.MultiPathFailureDeleted) {
      throw new DecodingFailureError('a spec failed, but the answer does not say which')
    }
    return { ...result, content }
  }

  /** Reads parts of a copy of a document; copy 0 is the active copy. @internal */
  async lookUp(
    key: string,
    specs: LookupInSpec[],
    options: OperationOptions,
    { flags = 0, copy = 0 }: { flags?: number; copy?: number } = {},
  ): Promise<LookupInResult> {
    const { value, order } = encodeSpecs(specs, 'lookup')
    const extras = Buffer.from(flags || copy ? [flags | (copy ? REPLICA_READ : 0)] : [])
    const traits = { reads: true, accepted: SOME_FAILED, ...(copy ? { needs: Feature.ReplicaLookup } : {}) }
    const response = await this.ask(key, { opcode: Opcode.SubdocMultiLookup, value, extras }, options, traits, copy)
    const content: LookupInResultEntry[] = []
    for (const part of decodeLookup(response.value, specs.length)) {
      const index = order[part.index]!
      content[index] = this.#entry(key, specs[index]!, part.status, part.content)
    }
    return { content, cas: response.cas }
  }

  /**
   * Reads parts of a copy of a document or its tombstone as bytes, undefined for missing parts; copy 0 is the active
   * copy. @internal
   */
  async lookUpRaw(
    key: string,
    specs: LookupInSpec[],
    options: OperationOptions,
    copy = 0,
  ): Promise<{ parts: (Buffer | undefined)[]; cas: bigint }> {
    const { value, order } = encodeSpecs(specs, 'lookup')
    const flags = ACCESS_DELETED | (copy ? REPLICA_READ : 0)
    const request = { opcode: Opcode.SubdocMultiLookup, value, extras: Buffer.from([flags]) }
    const traits = { reads: true, accepted: SOME_FAILED, ...(copy ? { needs: Feature.ReplicaLookup } : {}) }
    const response = await this.ask(key, request, options, traits, copy)
    const parts: (Buffer | undefined)[] = []
    for (const { index, status, content } of decodeLookup(response.value, specs.length)) {
      parts[order[index]!] = status === Status.Success ? content : undefined
    }
    return { parts, cas: response.cas }
  }

  async #document<T>(
    key: string,
    request: Request,
    options: ReadOptions,
    reads = false,
    copy = 0,
  ): Promise<GetResult<T>> {
    const response = await this.ask(key, request, options, { reads }, copy)
    return { content: this.transcoderOf(options).decode(response.value, firstWord(response)), cas: response.cas }
  }

  /** Reads a copy of a document; copy 0 is the active copy. @internal */
  async getCopy<T>(key: string, options: ReadOptions, copy: number): Promise<GetResult<T>> {
    return this.#document(key, { opcode: copy ? Opcode.GetReplica : Opcode.Get }, options, true, copy)
  }

  async #getProjected<T>(key: string, options: GetOptions, paths: string[]): Promise<GetResult<T>> {
    if (!Array.isArray(paths) || !paths.length) throw new InvalidArgumentError('a projection names paths')
    const { project: _, ...rest } = options
    let content: any
    if (paths.length + (options.withExpiry ? 1 : 0) > 16) {
      // One request cannot ask for so many paths.
      const { content: whole, ...result } = await this.get(key, rest)
      for (const path of paths) {
        const value = valueAt(whole, path)
        if (value !== undefined) content = insertAt(content, path, value)
      }
      return { ...result, content }
    }
    const specs = paths.map((path) => LookupInSpec.get(path))
    if (options.withExpiry) specs.push(LookupInSpec.get(LookupInMacro.Expiry))
    const result = await this.lookUp(key, specs, options)
    paths.forEach((path, index) => {
      const { error, value } = result.content[index]!
      if (error && !(error instanceof PathNotFoundError || error instanceof PathMismatchError)) throw error
      if (!error) content = insertAt(content, path, value)
    })
    const expiry = options.withExpiry ? { expiryTime: result.content[paths.length]!.value } : {}
    return { content, cas: result.cas, ...expiry }
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
    return { content: this.transcoderOf(options).decode(bytes, flags!), cas: response.cas, expiryTime: expiryTime! }
  }

  async #store(opcode: number, key: string, value: any, options: ReplaceOptions): Promise<MutationResult> {
    const transcoder: Transcoder = this.transcoderOf(options)
    const began = this.began()
    const [content, flags] = transcoder.encode(value)
    const request: Request = {
      opcode,
      extras: words(flags, wireExpiry(options.expiry)),
      value: content,
      cas: checkCas(options.cas),
      datatype: flags === JSON_FLAGS ? DATATYPE_JSON : 0,
      framing: options.preserveExpiry ? PRESERVE_EXPIRY : undefined,
    }
    return (await this.mutate(key, request, options, { adds: opcode === Opcode.Add, began })).result
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

/** A collection whose documents fit a schema. The types of stored and of read documents may differ. */
export class TypedCollection<Input = any, Output = Input> extends Collection {}

/** Typed signatures of the methods. */
export interface TypedCollection<Input = any, Output = Input> {
  get<T = Output>(key: string, options?: GetOptions): Promise<GetResult<T>>
  getAndTouch<T = Output>(key: string, expiry: number | Date, options?: ReadOptions): Promise<GetResult<T>>
  getAndLock<T = Output>(key: string, lockTime: number, options?: ReadOptions): Promise<GetResult<T>>
  getAnyReplica<T = Output>(key: string, options?: ReplicaOptions): Promise<GetReplicaResult<T>>
  getAllReplicas<T = Output>(
    key: string,
    options?: ReplicaOptions,
  ): StreamablePromise<GetReplicaResult<T>[], GetReplicaResult<T>>
  scan<T = Output>(
    scanType: RangeScan | SamplingScan | PrefixScan,
    options?: ScanOptions,
  ): StreamablePromise<ScanResult<T>[], ScanResult<T>>
  getMulti<T = Output>(keys: Iterable<string>, options?: GetOptions): Promise<MultiResult<GetResult<T>>>
  insertMulti(documents: MultiDocuments<Input>, options?: InsertOptions): Promise<MultiResult<MutationResult>>
  upsertMulti(documents: MultiDocuments<Input>, options?: UpsertOptions): Promise<MultiResult<MutationResult>>
  replaceMulti(documents: MultiDocuments<Input>, options?: UpsertOptions): Promise<MultiResult<MutationResult>>
  insert(key: string, value: Input, options?: InsertOptions): Promise<MutationResult>
  upsert(key: string, value: Input, options?: UpsertOptions): Promise<MutationResult>
  replace(key: string, value: Input, options?: ReplaceOptions): Promise<MutationResult>
}
