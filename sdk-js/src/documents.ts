/** Common parts of operations on documents: sending, waiting for durability, parsing tokens. */

import type { Scope } from './bucket.js'
import type { Cluster } from './cluster.js'
import { now, type OperationOptions } from './deadline.js'
import { DecodingFailureError } from './errors.js'
import { durabilityFraming, type Request, type Response } from './frame.js'
import { vbucketOf } from './keys.js'
import type { KvClient, Operation } from './kv-client.js'
import { Feature } from './opcodes.js'
import { checkLevel, type DurableOptions, type Timeouts } from './options.js'
import type { MutationResult, MutationToken } from './results.js'
import { unixTime } from './tracing.js'
import type { Transcoder } from './transcoders.js'

/** Properties of an operation. */
export type Traits = Pick<Operation, 'reads' | 'adds' | 'accepted' | 'needs' | 'began'>

/** Base class for operations on the documents of a collection. */
export abstract class Documents {
  /** Name of the collection. */
  readonly name: string
  /** The scope that contains the collection. */
  readonly scope: Scope

  constructor(scope: Scope, name: string, transcoder?: Transcoder) {
    this.scope = scope
    this.name = name
    this.ownTranscoder = transcoder
  }

  /** The cluster that contains the collection. */
  get cluster(): Cluster {
    return this.scope.cluster
  }

  /** @internal */
  get client(): KvClient {
    return this.scope.bucket.client
  }

  /** @internal */
  get timeouts(): Timeouts {
    return this.scope.bucket.timeouts
  }

  /** Sends a request without durability requirements. */
  protected ask(
    key: string,
    request: Request,
    options: OperationOptions,
    traits: Traits = {},
    copy = 0,
  ): Promise<Response> {
    return this.client.execute(this.#operation(key, request, traits), options, this.timeouts.kvTimeout, copy)
  }

  /** Sends a change, and waits until it is as durable as the options require. */
  protected async mutate(
    key: string,
    request: Request,
    options: DurableOptions,
    traits: Traits = {},
  ): Promise<{ response: Response; result: MutationResult }> {
    const level = checkLevel(options)
    if (options.durabilityPersistTo || options.durabilityReplicateTo) {
      return this.#observed(key, request, options, traits)
    }
    const response = await (level
      ? this.#durable(level, key, request, options, traits)
      : this.ask(key, request, options, traits))
    return { response, result: this.result(key, response) }
  }

  /** Sends a change that the server acknowledges when it is as durable as the level. */
  #durable(
    level: number,
    key: string,
    request: Request,
    options: DurableOptions,
    traits: Traits,
  ): Promise<Response> {
    const timeout = options.timeout ?? this.timeouts.kvDurableTimeout
    // The server's timeout ends first, because its response says more than no response.
    const durability = durabilityFraming(level, timeout * 0.9)
    const framing = request.framing ? Buffer.concat([durability, request.framing]) : durability
    const durable = { ...traits, needs: Feature.SyncReplication }
    return this.ask(key, { ...request, framing }, { ...options, timeout }, durable)
  }

  /** Sends a change, and waits until enough nodes have it. */
  async #observed(
    key: string,
    request: Request,
    options: DurableOptions,
    traits: Traits,
  ): Promise<{ response: Response; result: MutationResult }> {
    const timeout = options.timeout ?? this.timeouts.kvDurableTimeout
    const end = now() + timeout
    const remaining = (): OperationOptions => ({ ...options, timeout: Math.max(1, end - now()) })
    const { checkDurability, waitForDurability } = await import('./durability.js')
    if (!this.client.map) await this.client.bootstrap(options, timeout)
    checkDurability(this.client, options)
    const response = await this.client.execute(this.#operation(key, request, traits), remaining(), timeout)
    const result = this.result(key, response)
    await waitForDurability(this.client, result.token, options, remaining())
    return { response, result }
  }

  /** Returns the CAS and the token in the response to a change. */
  protected result(key: string, response: Response): MutationResult {
    return { cas: response.cas, token: this.#token(key, response) }
  }

  /** Default transcoder of the operations. */
  get transcoder(): Transcoder {
    return this.ownTranscoder ?? this.scope.bucket.transcoder
  }

  /** Transcoder that replaces the bucket's transcoder. @internal */
  protected readonly ownTranscoder: Transcoder | undefined

  /** @internal */
  transcoderOf(options: { transcoder?: Transcoder }): Transcoder {
    return options.transcoder ?? this.transcoder
  }

  /** Returns the start time of the encoding in Unix milliseconds, if it is traced. */
  protected began(): number | undefined {
    return this.client.instruments.tracer && unixTime()
  }

  #operation(key: string, request: Request, traits: Traits): Operation {
    const { reads, adds, accepted, needs, began } = traits
    return { request, key, scope: this.scope.name, collection: this.name, reads, adds, accepted, needs, began }
  }

  #token(key: string, { extras }: Response): MutationToken | undefined {
    const { map } = this.client
    if (extras.length !== 16 || !map) return undefined
    const partition = vbucketOf(Buffer.from(key), map.vbuckets.length)
    return new Token(partition, extras.readBigUInt64BE(0), extras.readBigUInt64BE(8), this.scope.bucket.name)
  }
}

class Token implements MutationToken {
  readonly partitionId: number
  readonly partitionUuid: bigint
  readonly sequenceNumber: bigint
  readonly bucketName: string

  constructor(partitionId: number, partitionUuid: bigint, sequenceNumber: bigint, bucketName: string) {
    this.partitionId = partitionId
    this.partitionUuid = partitionUuid
    this.sequenceNumber = sequenceNumber
    this.bucketName = bucketName
  }

  toJSON(): object {
    return {
      bucket_name: this.bucketName,
      partition_id: this.partitionId,
      partition_uuid: String(this.partitionUuid),
      sequence_number: String(this.sequenceNumber),
    }
  }
}

/** Encodes extras that consist of 32-bit numbers. */
export function words(...numbers: number[]): Buffer {
  const extras = Buffer.alloc(numbers.length * 4)
  numbers.forEach((number, index) => extras.writeUInt32BE(number, index * 4))
  return extras
}

/**
 * Returns the first 32-bit number in a response's extras: the flags of a document, or whether it is deleted.
 *
 * @throws DecodingFailureError if the extras are too short.
 */
export function firstWord({ extras }: Response): number {
  if (extras.length < 4) throw new DecodingFailureError('the answer about the document is cut off')
  return extras.readUInt32BE(0)
}
