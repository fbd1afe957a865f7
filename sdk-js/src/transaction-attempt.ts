/** One attempt of a transaction: reads, staged changes, commit and rollback. */

import { now } from './deadline.js'
import { randomUUID } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'

import type { Cluster } from './cluster.js'
import type { Collection } from './collection.js'
import {
  AmbiguousTimeoutError,
  CasMismatchError,
  CouchbaseError,
  DocumentExistsError,
  DocumentLockedError,
  DocumentNotFoundError,
  DocumentUnretrievableError,
  DurabilityAmbiguousError,
  FeatureNotAvailableError,
  InvalidArgumentError,
  PathExistsError,
  PathNotFoundError,
  RequestCanceledError,
  TemporaryFailureError,
  TimeoutError,
  TransactionCommitAmbiguousError,
  TransactionExpiredError,
  TransactionFailedError,
  TransactionOperationFailedError,
} from './errors.js'
import { Feature } from './opcodes.js'
import { DurabilityLevel } from './options.js'
import { contextOf } from './query.js'
import { MutateInMacro, MutateInSpec } from './subdocument.js'
import {
  lastRead,
  type Read,
  readTogether,
  type TransactionGetMultiMode,
  TransactionGetMultiResult,
  type TransactionGetMultiResultEntry,
  type TransactionGetMultiSpec,
} from './transaction-multi.js'
import { TransactionQuery } from './transaction-query.js'
import {
  type ChangeType,
  entryOf,
  LEVEL_CODES,
  type Limits,
  type Links,
  type Look,
  readEntry,
  recordKey,
  type Restore,
  type Seen,
  see,
  seeNear,
} from './transaction-records.js'
import type { TransactionQueryOptions, TransactionQueryResult, TransactionsConfig } from './transactions.js'
import { decodeJson, JSON_FLAGS, type Transcoder } from './transcoders.js'

/** The address of a document. */
export interface DocumentId {
  bucket: string
  scope: string
  collection: string
  key: string
}

/** A document that an attempt has read or staged. */
export interface TransactionGetResult<T = any> {
  id: DocumentId
  content: T
  cas: bigint
}

/** Options of `get` in a transaction. */
export interface TransactionGetOptions {
  /** Turns the document into a value; JSON if not given. Binary documents are refused. */
  transcoder?: Transcoder
}

/** Options of `getMulti` in a transaction. */
export interface TransactionGetMultiOptions {
  mode?: TransactionGetMultiMode
}

/** Options of `getReplicaFromPreferredServerGroup`. */
export interface TransactionGetReplicaFromPreferredServerGroupOptions extends TransactionGetOptions {}

/** Options of `getMultiReplicasFromPreferredServerGroup`. */
export interface TransactionGetMultiReplicasFromPreferredServerGroupOptions extends TransactionGetMultiOptions {}

/** Options of `insert` in a transaction. */
export interface TransactionInsertOptions {
  /** Turns the value into a document; JSON if not given. */
  transcoder?: Transcoder
}

/** Options of `replace` in a transaction. */
export interface TransactionReplaceOptions {
  /** Turns the value into a document; JSON if not given. */
  transcoder?: Transcoder
}

/** Data that all attempts of a transaction share. */
export interface Setting {
  transactionId: string
  /** The end of the transaction's time, on the clock of `performance.now()`. */
  end: number
  level: DurabilityLevel
  config: TransactionsConfig
}

/** A staged change. */
export interface Staged {
  type: ChangeType
  collection: Collection
  key: string
  cas: bigint
  content: unknown
  /** The document before the change, if it existed. */
  restore: Restore | undefined
  flags: number
}

/** Data about a read document that only attempts use. */
interface Known {
  collection: Collection
  links: Links | undefined
  restore: Restore
  flags: number
}

/** Flags of changes to documents. */
const ADD = 0x02
const ACCESS_DELETED = 0x04
const CREATE_AS_DELETED = 0x08
const REVIVE = 0x10

const BINARY = 0x03
/** Maximum wait for another transaction that has staged a change of the same document. */
const CONFLICT_MS_MAX = 1000
const CONFLICT_PAUSE_MS = 20
/** Additional time for a rollback after the end of the transaction's time. */
const OVERTIME_MS = 2000
/** Maximum number of documents that are unstaged concurrently. */
const UNSTAGED_AT_ONCE = 32
const XATTR = { xattr: true, createPath: true }

type Kind = 'failed' | 'expired' | 'ambiguous'

/** The reason why an attempt has failed, and the consequences. */
export class Failure extends TransactionOperationFailedError {
  readonly isRetried: boolean
  readonly rollsBack: boolean
  readonly #kind: Kind

  constructor(cause: unknown, outcome: { isRetried?: boolean; rollsBack?: boolean; kind?: Kind } = {}) {
    const { isRetried = false, rollsBack = true, kind = 'failed' } = outcome
    const context = cause instanceof CouchbaseError ? cause.context : {}
    super(cause instanceof Error ? cause.message : String(cause), context, cause)
    this.isRetried = isRetried
    this.rollsBack = rollsBack
    this.#kind = kind
  }

  /** Returns the error for the caller of the transaction. */
  raised(isOver: boolean): CouchbaseError {
    if (this.#kind === 'ambiguous') return new TransactionCommitAmbiguousError(undefined, this.context, this.cause)
    const kind =
      this.#kind === 'expired' || (this.isRetried && isOver) ? TransactionExpiredError : TransactionFailedError
    return new kind(undefined, this.context, this.cause)
  }
}

/** One attempt: the argument of a transaction's function. */
export class TransactionAttemptContext {
  /** @internal */
  readonly id: string = randomUUID()
  readonly #cluster: Cluster
  readonly #setting: Setting
  readonly #staged = new Map<string, Staged>()
  readonly #known = new WeakMap<TransactionGetResult, Known>()
  #record: { collection: Collection; key: string } | undefined
  #failure: Failure | undefined
  #query: TransactionQuery | undefined
  #last: Promise<unknown> = Promise.resolve()
  #isDone = false

  /** @internal */
  constructor(cluster: Cluster, setting: Setting) {
    this.#cluster = cluster
    this.#setting = setting
  }

  /**
   * Reads a document, including staged changes of this attempt.
   *
   * @throws DocumentNotFoundError if it does not exist.
   */
  async get<T = any>(
    collection: Collection,
    key: string,
    options: TransactionGetOptions = {},
  ): Promise<TransactionGetResult<T>> {
    return this.#operation(async () => {
      if (this.#query) return this.#take(collection, key, await this.#query.get(collection, key))
      return this.#read<T>(see, collection, key, options)
    })
  }

  /**
   * Reads a document like `get`, from a copy in the server group `preferredServerGroup`, an option of `connect`, or from
   * any copy if the group has none. The copy may be older than the active one: then changing the document fails, and the
   * transaction is tried again.
   *
   * @throws DocumentUnretrievableError if no copy can be read.
   * @throws FeatureNotAvailableError after a statement of the attempt.
   */
  async getReplicaFromPreferredServerGroup<T = any>(
    collection: Collection,
    key: string,
    options: TransactionGetReplicaFromPreferredServerGroupOptions = {},
  ): Promise<TransactionGetResult<T>> {
    return this.#operation(async () => {
      this.#refuseCopies()
      try {
        return await this.#read<T>(seeNear, collection, key, options)
      } catch (error) {
        if (!(error instanceof DocumentNotFoundError)) throw error
        throw new DocumentUnretrievableError(undefined, { key }, error)
      }
    })
  }

  /** Reads several documents like `getMulti`, from copies in the preferred server group. */
  async getMultiReplicasFromPreferredServerGroup(
    specs: TransactionGetMultiSpec[],
    options: TransactionGetMultiReplicasFromPreferredServerGroupOptions = {},
  ): Promise<TransactionGetMultiResult> {
    return this.#operation(async () => {
      this.#refuseCopies()
      return this.#readMulti(seeNear, specs, options)
    })
  }

  /**
   * Reads several documents so that they show every other transaction atomically, as far as the mode requires. A
   * missing document has an error in the result.
   */
  async getMulti(
    specs: TransactionGetMultiSpec[],
    options: TransactionGetMultiOptions = {},
  ): Promise<TransactionGetMultiResult> {
    return this.#operation(() => this.#readMulti(see, specs, options))
  }

  /**
   * Stages a document that must not exist yet.
   *
   * @throws DocumentExistsError if the document exists already.
   */
  async insert<T = any>(
    collection: Collection,
    key: string,
    content: T,
    options: TransactionInsertOptions = {},
  ): Promise<TransactionGetResult<T>> {
    return this.#operation(async () => {
      const value = valueOf(content, options)
      if (this.#query) return this.#take(collection, key, await this.#query.insert(collection, key, value), content)
      const own = this.#staged.get(placeOf(collection, key))
      if (own && own.type !== 'remove') throw new DocumentExistsError(undefined, { key })
      const staged = own
        ? await this.#stage({ ...own, type: 'replace', content: value }, ACCESS_DELETED)
        : await this.#stageInsert(collection, key, value)
      return this.#result(collection, key, content, staged.cas, undefined, staged.restore, staged.flags)
    })
  }

  /** Stages new content for a document that the attempt has read or inserted. */
  async replace<T = any>(
    document: TransactionGetResult,
    content: T,
    options: TransactionReplaceOptions = {},
  ): Promise<TransactionGetResult<T>> {
    return this.#operation(async () => {
      const value = valueOf(content, options)
      const known = this.#knownOf(document)
      const { collection } = known
      const { key } = document.id
      if (this.#query)
        return this.#take(collection, key, await this.#query.update(collection, key, document.cas, value), content)
      const own = this.#staged.get(placeOf(collection, key))
      if (own?.type === 'remove') throw this.#fail(new Failure(notFound(key)))
      await this.#waitForOthers(known.links)
      const { restore, flags } = known
      const type = own?.type ?? 'replace'
      const staged = await this.#stage(
        { type, collection, key, cas: document.cas, content: value, restore, flags },
        ACCESS_DELETED,
      )
      return this.#result(collection, key, content, staged.cas, undefined, restore, flags)
    })
  }

  /** Stages the removal of a document that the attempt has read or inserted. */
  async remove(document: TransactionGetResult): Promise<void> {
    await this.#operation(async () => {
      const known = this.#knownOf(document)
      const { collection, restore, flags } = known
      const { key } = document.id
      if (this.#query) return this.#query.remove(collection, key, document.cas)
      const own = this.#staged.get(placeOf(collection, key))
      if (own?.type === 'remove') throw this.#fail(new Failure(notFound(key)))
      if (own?.type === 'insert') {
        await this.#attempt(() => this.#unlink(own, document.cas))
        this.#staged.delete(placeOf(collection, key))
        return
      }
      await this.#waitForOthers(known.links)
      await this.#stage(
        { type: 'remove', collection, key, cas: document.cas, content: undefined, restore, flags },
        ACCESS_DELETED,
      )
    })
  }

  /**
   * Executes a statement, which sees the changes that the attempt has staged. From then on the query service manages the
   * attempt.
   */
  async query<TRow = any>(
    statement: string,
    options: TransactionQueryOptions = {},
  ): Promise<TransactionQueryResult<TRow>> {
    const { scope, ...rest } = options
    return this.#operation(async () => {
      const queryContext = scope && contextOf(scope.bucket.name, scope.name)
      this.#query ??= await this.#attempt(() => this.#beginQuery(queryContext))
      const { scanConsistency } = this.#setting.config.queryConfig ?? {}
      const given = {
        ...(scanConsistency ? { scanConsistency } : {}),
        ...rest,
        ...(queryContext ? { queryContext } : {}),
      }
      return this.#query.run<TRow>(statement, given)
    })
  }

  /** Commits. Returns true if every change is unstaged. @internal */
  async commit(): Promise<boolean> {
    await this.#last.catch(() => {})
    if (this.#failure) throw this.#failure
    this.#isDone = true
    if (this.#query) {
      await this.#attempt(() => this.#query!.commit())
      return true
    }
    if (!this.#staged.size) return true
    this.#checkTime()
    await this.#commitRecord()
    return this.#writeOut()
  }

  /** Rolls back staged changes as far as possible. The server does the rest. @internal */
  async rollBack(): Promise<void> {
    this.#isDone = true
    const end = Math.max(this.#setting.end, now() + OVERTIME_MS)
    try {
      if (this.#query) return await this.#query.rollBack()
      if (!this.#record) return
      const specs = [
        MutateInSpec.upsert(`${this.#entry}.st`, 'ABORTED', { xattr: true }),
        MutateInSpec.upsert(`${this.#entry}.tsrs`, MutateInMacro.Cas),
        ...this.#lists(),
      ]
      await insisting(end, (limits) => this.#writeRecord(specs, limits), this.#setting.level)
      await inParallel([...this.#staged.values()], (staged) =>
        this.#settled(staged, end, (cas, limits) => this.#unlink(staged, cas, limits)),
      )
      await this.#removeEntry(end)
    } catch (error) {
      // The record states what remains to be done, or it was removed because nothing remains.
      if (!(error instanceof CouchbaseError)) throw error
    }
  }

  /** Returns the failure: that of an operation, or the error of the function itself. @internal */
  failureOf(thrown: unknown): Failure {
    return this.#failure ?? (thrown instanceof Failure ? thrown : new Failure(thrown))
  }

  get #entry(): string {
    return `attempts.${this.id}`
  }

  /** Runs operations one after the other, as long as none has failed. */
  async #operation<R>(work: () => Promise<R>): Promise<R> {
    const run = async (): Promise<R> => {
      if (this.#isDone) throw new TransactionOperationFailedError('the attempt is over')
      if (this.#failure) throw this.#failure
      this.#checkTime()
      try {
        return await work()
      } catch (error) {
        // Errors that the caller may handle do not fail the attempt.
        const isStatement = this.#query !== undefined && error instanceof CouchbaseError && !isPassing(error)
        const isHandled =
          isStatement ||
          error instanceof DocumentNotFoundError ||
          error instanceof DocumentExistsError ||
          error instanceof DocumentUnretrievableError ||
          error instanceof InvalidArgumentError
        if (error instanceof Failure) throw this.#fail(error)
        if (isHandled) throw error
        throw this.#fail(classified(error))
      }
    }
    const result = this.#last.then(run, run)
    this.#last = result.catch(() => {})
    return result
  }

  #fail(failure: Failure): Failure {
    return (this.#failure ??= failure)
  }

  /** Runs work whose failure makes the attempt fail. */
  async #attempt<R>(work: () => Promise<R>): Promise<R> {
    try {
      return await work()
    } catch (error) {
      throw this.#fail(error instanceof Failure ? error : classified(error))
    }
  }

  #checkTime(): void {
    if (now() < this.#setting.end) return
    throw this.#fail(new Failure(new TimeoutError('the time of the transaction is over'), { kind: 'expired' }))
  }

  #limits(): Limits {
    const { config, end, level } = this.#setting
    const timeout = Math.max(1, Math.min(config.kvTimeout ?? this.#cluster.kvDurableTimeout, end - now()))
    return { timeout, ...(level ? { durabilityLevel: level } : {}) }
  }

  #result<T>(
    collection: Collection,
    key: string,
    content: T,
    cas: bigint,
    links: Links | undefined,
    restore: Restore | undefined,
    flags: number,
  ): TransactionGetResult<T> {
    const id = { bucket: collection.scope.bucket.name, scope: collection.scope.name, collection: collection.name, key }
    const result = { id, content, cas }
    this.#known.set(result, { collection, links, restore: restore ?? { CAS: '0', exptime: 0, revid: '0' }, flags })
    return result
  }

  /** Returns the result of an operation that the query service has executed. */
  #take<T>(
    collection: Collection,
    key: string,
    { cas, doc }: { cas: bigint; doc?: any },
    content: T = doc,
  ): TransactionGetResult<T> {
    return this.#result(collection, key, content, cas, undefined, undefined, JSON_FLAGS)
  }

  #knownOf(document: TransactionGetResult): Known {
    const known = this.#known.get(document)
    if (!known) throw new InvalidArgumentError('the document was not read by this attempt')
    return known
  }

  /** Reads a document, including staged changes of this attempt. */
  async #read<T>(
    look: Look,
    collection: Collection,
    key: string,
    options: TransactionGetOptions,
  ): Promise<TransactionGetResult<T>> {
    const own = this.#staged.get(placeOf(collection, key))
    if (own?.type === 'remove') throw notFound(key)
    if (own) return this.#result(collection, key, own.content as T, own.cas, undefined, own.restore, own.flags)
    const seen = await look(collection, key, this.#limits())
    if (!seen) throw notFound(key)
    const content = await this.#contentOf(seen, collection, key, options)
    return this.#result(collection, key, content as T, seen.cas, seen.links, seen.restore, seen.flags)
  }

  async #readMulti(
    look: Look,
    specs: TransactionGetMultiSpec[],
    options: TransactionGetMultiOptions,
  ): Promise<TransactionGetMultiResult> {
    if (!Array.isArray(specs) || !specs.length) throw new InvalidArgumentError('there is nothing to read')
    const until = lastRead(options.mode, this.#setting.end)
    const limits = (): Limits => this.#limits()
    const read = this.#query ? [] : await readTogether(this.#cluster, specs, this.id, limits, until, look)
    const content: TransactionGetMultiResultEntry[] = []
    for (const [index, { collection, id, transcoder }] of specs.entries()) {
      try {
        const own = this.#staged.get(placeOf(collection, id))
        if (this.#query) content.push({ error: null, value: (await this.#query.get(collection, id)).doc })
        else if (own?.type === 'remove') throw notFound(id)
        else content.push({ error: null, value: own ? own.content : bodyOf(read[index]!, id, transcoder) })
      } catch (error) {
        if (!(error instanceof DocumentNotFoundError)) throw error
        content.push({ error })
      }
    }
    return new TransactionGetMultiResult({ content })
  }

  /** Refuses reads of copies once the query service keeps the attempt. */
  #refuseCopies(): void {
    if (this.#query) throw new FeatureNotAvailableError('after a statement, a transaction reads active copies only')
  }

  /** Returns the body that this attempt sees: the staged one if its attempt is committed. */
  async #contentOf(
    seen: Seen,
    collection: Collection,
    key: string,
    { transcoder }: { transcoder?: Transcoder },
  ): Promise<unknown> {
    const { links } = seen
    if (links && links.id.atmpt !== this.id) {
      refuseUnknown(links)
      const entry = await readEntry(this.#cluster, links, this.#limits())
      if (entry?.st === 'COMMITTED' || entry?.st === 'COMPLETED') {
        return bodyOf({ seen, isCommitted: true }, key)
      }
      if (!entry) {
        // It may have been unstaged, and its entry removed, since the document was read.
        const again = await see(collection, key, this.#limits())
        if (!again) throw notFound(key)
        if (again.links?.id.atmpt !== links.id.atmpt) {
          Object.assign(seen, again)
          return this.#contentOf(seen, collection, key, transcoder ? { transcoder } : {})
        }
      }
    }
    return bodyOf({ seen, isCommitted: false }, key, transcoder)
  }

  /** Waits until no other transaction has a staged change of the document. */
  async #waitForOthers(links: Links | undefined): Promise<void> {
    if (!links || links.id.txn === this.#setting.transactionId) return
    refuseUnknown(links)
    const end = now() + CONFLICT_MS_MAX
    for (;;) {
      const entry = await readEntry(this.#cluster, links, this.#limits())
      if (!entry || entry.st === 'COMPLETED' || entry.st === 'ROLLED_BACK') return
      if (now() >= end) break
      await sleep(CONFLICT_PAUSE_MS)
      this.#checkTime()
    }
    throw this.#fail(new Failure(new CouchbaseError('another transaction changes the document'), { isRetried: true }))
  }

  async #stageInsert(collection: Collection, key: string, content: unknown): Promise<Staged> {
    const staged: Staged = { type: 'insert', collection, key, cas: 0n, content, restore: undefined, flags: JSON_FLAGS }
    for (;;) {
      try {
        return await this.#stage(staged, staged.cas ? ACCESS_DELETED : ADD | ACCESS_DELETED | CREATE_AS_DELETED)
      } catch (error) {
        const isThere =
          error instanceof DocumentExistsError ||
          (staged.cas && error instanceof Failure && error.cause instanceof CasMismatchError)
        if (!isThere) throw error
        if (this.#failure === error) this.#failure = undefined
      }
      this.#checkTime()
      const seen = await see(collection, key, this.#limits())
      if (!seen) {
        staged.cas = 0n
        continue
      }
      if (!seen.isDeleted || (seen.links && seen.links.op.type !== 'insert'))
        throw new DocumentExistsError(undefined, { key })
      await this.#waitForOthers(seen.links)
      staged.cas = seen.cas
    }
  }

  /** Stages a change, after the attempt has registered in its record. */
  async #stage(staged: Staged, flags: number): Promise<Staged> {
    const { collection, key, type, content, restore, cas } = staged
    const record = await this.#attempt(() => this.#begin(collection, key))
    const { scope } = record.collection
    const links = {
      id: { txn: this.#setting.transactionId, atmpt: this.id, op: randomUUID() },
      atr: { id: record.key, bkt: scope.bucket.name, scp: scope.name, coll: record.collection.name },
      op: { type, ...(type === 'remove' ? {} : { stgd: content }) },
      ...(restore && type !== 'insert' ? { restore } : {}),
      aux: { uf: staged.flags },
    }
    const specs = [
      MutateInSpec.upsert('txn', links, XATTR),
      MutateInSpec.upsert('txn.op.crc32', MutateInMacro.ValueCrc32c),
    ]
    const options = { ...this.#limits(), cas, preserveExpiry: type !== 'insert' }
    if (!options.preserveExpiry) delete (options as { preserveExpiry?: boolean }).preserveExpiry
    try {
      const result = await collection.mutateParts(key, specs, options, flags, Feature.CreateAsDeleted)
      const done = { ...staged, cas: result.cas }
      this.#staged.set(placeOf(collection, key), done)
      return done
    } catch (error) {
      if (error instanceof DocumentExistsError) throw error
      // The change may be staged nevertheless: the rollback checks this.
      if (isAmbiguous(error)) this.#staged.set(placeOf(collection, key), staged)
      throw this.#fail(
        error instanceof DocumentNotFoundError ? new Failure(error, { isRetried: true }) : classified(error),
      )
    }
  }

  /** Registers the attempt in the record for its first document. */
  async #begin(collection: Collection, key: string): Promise<{ collection: Collection; key: string }> {
    if (this.#record) return this.#record
    const { metadataCollection: place } = this.#setting.config
    const records = place
      ? this.#cluster
          .bucket(place.bucket)
          .scope(place.scope ?? '_default')
          .collection(place.collection ?? '_default')
      : collection.scope.bucket.defaultCollection()
    const record = { collection: records, key: recordKey(key) }
    const remaining = Math.max(1, Math.floor(this.#setting.end - now()))
    const specs = [
      MutateInSpec.upsert(`${this.#entry}.tid`, this.#setting.transactionId, XATTR),
      MutateInSpec.upsert(`${this.#entry}.st`, 'PENDING', { xattr: true }),
      MutateInSpec.upsert(`${this.#entry}.tst`, MutateInMacro.Cas),
      MutateInSpec.upsert(`${this.#entry}.exp`, remaining, { xattr: true }),
      MutateInSpec.upsert(`${this.#entry}.d`, LEVEL_CODES[this.#setting.level]!, { xattr: true }),
      // Records are not JSON, so that neither queries nor views see them.
      MutateInSpec.setBody(Buffer.from([0])),
    ]
    this.#record = record
    await record.collection.mutateParts(record.key, specs, this.#limits(), 0x01)
    return record
  }

  /** Marks the attempt as committed in its record. This is the commit point. */
  async #commitRecord(): Promise<void> {
    const specs = [
      MutateInSpec.upsert(`${this.#entry}.st`, 'COMMITTED', { xattr: true }),
      MutateInSpec.upsert(`${this.#entry}.tsc`, MutateInMacro.Cas),
      // The server refuses a second commit.
      MutateInSpec.insert(`${this.#entry}.p`, 0, { xattr: true }),
      ...this.#lists(),
    ]
    for (;;) {
      try {
        return await this.#writeRecord(specs, this.#limits())
      } catch (error) {
        const isGone = error instanceof PathNotFoundError || error instanceof DocumentNotFoundError
        if (isGone) throw this.#fail(new Failure(error, { rollsBack: false, kind: 'expired' }))
        if (!isAmbiguous(error) && !(error instanceof PathExistsError)) throw this.#fail(classified(error))
        if (await this.#isCommitted(error)) return
      }
    }
  }

  /** Resolves an ambiguous commit. Returns true if it took effect, and false if it may be retried. */
  async #isCommitted(cause: unknown): Promise<boolean> {
    const { collection, key } = this.#record!
    while (now() < this.#setting.end) {
      try {
        const entry = await entryOf(collection, key, this.id, this.#limits().timeout)
        if (entry?.st === 'COMMITTED' || entry?.st === 'COMPLETED') return true
        if (entry?.st === 'PENDING') return false
        // Another client has rolled it back, or has finished it and removed the entry.
        throw this.#fail(new Failure(cause, entry ? { isRetried: true } : { rollsBack: false, kind: 'ambiguous' }))
      } catch (error) {
        if (error instanceof Failure || !isPassing(error)) throw error
        await sleep(CONFLICT_PAUSE_MS)
      }
    }
    throw this.#fail(new Failure(cause, { rollsBack: false, kind: 'ambiguous' }))
  }

  /** Unstages the committed changes. Returns true if this is complete. */
  async #writeOut(): Promise<boolean> {
    const end = Math.max(this.#setting.end, now() + OVERTIME_MS)
    try {
      await inParallel([...this.#staged.values()], (staged) =>
        this.#settled(staged, end, (cas, limits) => this.#unstage(staged, cas, limits)),
      )
      await this.#removeEntry(end)
      return true
    } catch (error) {
      // The transaction is committed: the server unstages the rest.
      if (error instanceof CouchbaseError) return false
      throw error
    }
  }

  async #unstage({ type, collection, key }: Staged, cas: bigint, limits: Limits): Promise<void> {
    if (type === 'remove') {
      await collection.remove(key, { ...limits, cas })
      return
    }
    const specs = [MutateInSpec.replaceBodyWith('txn.op.stgd'), MutateInSpec.remove('txn', { xattr: true })]
    if (type === 'insert') {
      await collection.mutateParts(
        key,
        specs,
        { ...limits, cas },
        ACCESS_DELETED | REVIVE,
        Feature.ReplaceBodyWithXattr,
      )
    } else {
      await collection.mutateParts(
        key,
        specs,
        { ...limits, cas, preserveExpiry: true },
        0,
        Feature.ReplaceBodyWithXattr,
      )
    }
  }

  /** Removes the staged change from a document. */
  async #unlink({ collection, key, type }: Staged, cas: bigint, limits: Limits = this.#limits()): Promise<void> {
    const options = { ...limits, cas, ...(type === 'insert' ? {} : { preserveExpiry: true }) }
    await collection.mutateParts(key, [MutateInSpec.remove('txn', { xattr: true })], options, ACCESS_DELETED)
  }

  /** Finishes one document, unless another client has done so. */
  async #settled(staged: Staged, end: number, finish: (cas: bigint, limits: Limits) => Promise<void>): Promise<void> {
    let { cas } = staged
    await insisting(
      end,
      async (limits) => {
        try {
          if (cas) return await finish(cas, limits)
        } catch (error) {
          const isChanged =
            error instanceof CasMismatchError ||
            error instanceof DocumentNotFoundError ||
            error instanceof PathNotFoundError
          if (!isChanged && !isAmbiguous(error)) throw error
        }
        const seen = await see(staged.collection, staged.key, limits)
        if (seen?.links?.id.atmpt !== this.id) return
        cas = seen.cas
        await finish(cas, limits)
      },
      this.#setting.level,
    )
  }

  async #removeEntry(end: number): Promise<void> {
    const specs = [MutateInSpec.remove(this.#entry, { xattr: true })]
    await insisting(end, (limits) => this.#writeRecord(specs, limits), this.#setting.level)
  }

  async #writeRecord(specs: MutateInSpec[], limits: Limits): Promise<void> {
    const { collection, key } = this.#record!
    await collection.mutateParts(key, specs, limits, 0)
  }

  /** Returns the list of affected documents in the record, for a client that finishes the attempt. */
  #lists(): MutateInSpec[] {
    const of = (wanted: ChangeType): object[] =>
      [...this.#staged.values()]
        .filter(({ type }) => type === wanted)
        .map(({ collection, key }) => ({
          bkt: collection.scope.bucket.name,
          scp: collection.scope.name,
          col: collection.name,
          id: key,
        }))
    return [
      MutateInSpec.upsert(`${this.#entry}.ins`, of('insert'), { xattr: true }),
      MutateInSpec.upsert(`${this.#entry}.rep`, of('replace'), { xattr: true }),
      MutateInSpec.upsert(`${this.#entry}.rem`, of('remove'), { xattr: true }),
    ]
  }

  /** Hands the attempt over to the query service. */
  async #beginQuery(queryContext: string | undefined): Promise<TransactionQuery> {
    const { transactionId, end, level, config } = this.#setting
    const record = this.#record
    return TransactionQuery.begin(this.#cluster, {
      transactionId,
      attemptId: this.id,
      end,
      level,
      config,
      staged: [...this.#staged.values()],
      ...(record ? { record } : {}),
      ...(queryContext === undefined ? {} : { queryContext }),
    })
  }
}

function placeOf({ scope, name }: Collection, key: string): string {
  return JSON.stringify([scope.bucket.name, scope.name, name, key])
}

/** Returns the visible content of a document: the staged one if it is committed, else the body. */
function bodyOf({ seen, isCommitted }: Read, key: string, transcoder?: Transcoder): unknown {
  const links = seen?.links
  if (links && isCommitted) {
    if (links.op.type === 'remove') throw notFound(key)
    if (links.op.bin !== undefined) throw notJson()
    return links.op.stgd
  }
  if (!seen || seen.isDeleted) throw notFound(key)
  if (seen.flags >>> 24 === BINARY) throw notJson()
  return transcoder ? transcoder.decode(seen.body, seen.flags) : decodeJson(seen.body)
}

function notJson(): FeatureNotAvailableError {
  return new FeatureNotAvailableError('transactions here are of JSON documents')
}

function notFound(key: string): DocumentNotFoundError {
  return new DocumentNotFoundError(undefined, { key })
}

/** Converts content into a JSON value. */
function valueOf(content: unknown, { transcoder }: { transcoder?: Transcoder }): unknown {
  if (Buffer.isBuffer(content) && !transcoder) throw notJson()
  if (!transcoder) {
    if (JSON.stringify(content) === undefined) throw new InvalidArgumentError(`JSON has no ${typeof content}`)
    return content
  }
  const [bytes, flags] = transcoder.encode(content)
  if (flags >>> 24 !== JSON_FLAGS >>> 24) throw notJson()
  return decodeJson(bytes)
}

/** Refuses documents staged by a newer protocol version, if their forward compatibility requires this. */
function refuseUnknown({ fc }: Links): void {
  const needed = Object.values(fc ?? {}).flat()
  if (needed.length)
    throw new Failure(new FeatureNotAvailableError('a newer client has staged a change of the document'))
}

function isAmbiguous(error: unknown): boolean {
  return (
    error instanceof AmbiguousTimeoutError ||
    error instanceof DurabilityAmbiguousError ||
    error instanceof RequestCanceledError
  )
}

function isPassing(error: unknown): boolean {
  return (
    error instanceof TemporaryFailureError ||
    error instanceof TimeoutError ||
    error instanceof DocumentLockedError ||
    isAmbiguous(error)
  )
}

function classified(error: unknown): Failure {
  return new Failure(error, { isRetried: isPassing(error) || error instanceof CasMismatchError })
}

/** Retries necessary work until it succeeds or the time is over. */
async function insisting(end: number, work: (limits: Limits) => Promise<void>, level: DurabilityLevel): Promise<void> {
  for (let pause = 1; ; pause = Math.min(pause * 2, 100)) {
    try {
      const timeout = Math.max(1, Math.min(2500, end - now()))
      return await work({ timeout, ...(level ? { durabilityLevel: level } : {}) })
    } catch (error) {
      if (!(isPassing(error) || error instanceof CasMismatchError) || now() + pause >= end) throw error
    }
    await sleep(pause)
  }
}

async function inParallel<T>(items: T[], work: (item: T) => Promise<void>): Promise<void> {
  const rest = items.values()
  const worker = async (): Promise<void> => {
    for (const item of rest) await work(item)
  }
  const outcomes = await Promise.allSettled(Array.from({ length: UNSTAGED_AT_ONCE }, worker))
  const failed = outcomes.find((outcome) => outcome.status === 'rejected')
  if (failed) throw failed.reason
}
