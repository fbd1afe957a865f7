/**
 * Waits until enough nodes have a mutation, by polling the seqno of the vBucket on each node (0x91).
 *
 * A response is a format byte, vBucket u16, history u64, persisted seqno u64 and current seqno u64. After a failover,
 * format 1 adds the old history and the last seqno received in it.
 */

import { replicaCount } from './cluster-map.js'
import { Deadline, DeadlineOver, type OperationOptions } from './deadline.js'
import {
  AmbiguousTimeoutError,
  DecodingFailureError,
  DurabilityImpossibleError,
  type ErrorContext,
  FeatureNotAvailableError,
  MutationLostError,
  RequestCanceledError,
} from './errors.js'
import type { KvClient } from './kv-client.js'
import { Opcode, Status } from './opcodes.js'
import type { DurableOptions } from './options.js'
import type { MutationToken } from './results.js'

const PAUSE_MS = 10

/** The progress of one copy of a vBucket. */
interface Seen {
  persisted: bigint
  current: bigint
}

/**
 * Refuses durability that the bucket can never provide, before the write.
 *
 * @throws DurabilityImpossibleError if the bucket has fewer copies.
 */
export function checkDurability(client: KvClient, options: DurableOptions): void {
  const replicas = replicaCount(client.map)
  if ((options.durabilityPersistTo ?? 0) > replicas + 1 || (options.durabilityReplicateTo ?? 0) > replicas) {
    throw new DurabilityImpossibleError(`the bucket has ${replicas} replicas`, contextOf(client))
  }
}

/**
 * Resolves when the mutation is as durable as required.
 *
 * @throws AmbiguousTimeoutError if it is not durable in time. The mutation itself has taken effect.
 * @throws MutationLostError if a failover has lost it.
 */
export async function waitForDurability(
  client: KvClient,
  token: MutationToken | undefined,
  options: DurableOptions,
  remaining: OperationOptions,
): Promise<void> {
  if (!token) throw new FeatureNotAvailableError('the server does not say where its mutations are')
  const { durabilityPersistTo: persistTo = 0, durabilityReplicateTo: replicateTo = 0 } = options
  const deadline = new Deadline(remaining, 1)
  const seen = Array<Seen | undefined>(replicaCount(client.map) + 1).fill(undefined)
  /** Resolves when the progress of all copies suffices. A copy without a node is awaited. */
  const watch = async (copy: number): Promise<void> => {
    for (;;) {
      seen[copy] = await ask(client, token, copy, deadline)
      const persisted = seen.filter((copy) => copy && copy.persisted >= token.sequenceNumber).length
      const replicated = seen.slice(1).filter((copy) => copy && copy.current >= token.sequenceNumber).length
      if (persisted >= persistTo && replicated >= replicateTo) return
      await deadline.sleep(PAUSE_MS)
    }
  }
  try {
    await Promise.race(seen.map((_, copy) => watch(copy)))
  } catch (error) {
    if (!(error instanceof DeadlineOver)) throw error
    const aborted = deadline.aborted
    if (aborted) throw new RequestCanceledError('the request was aborted', contextOf(client), aborted.reason)
    throw new AmbiguousTimeoutError('the mutation is not yet as durable as asked', contextOf(client))
  } finally {
    deadline.clear()
  }
}

async function ask(
  client: KvClient,
  token: MutationToken,
  copy: number,
  deadline: Deadline,
): Promise<Seen | undefined> {
  const history = Buffer.alloc(8)
  history.writeBigUInt64BE(token.partitionUuid)
  const request = { opcode: Opcode.ObserveSeqno, vbid: token.partitionId, value: history }
  const { status, value } = await client.askCopy(request, copy, deadline)
  if (status !== Status.Success) return undefined
  const failedOver = value[0] === 1
  if (value.length < (failedOver ? 43 : 27)) {
    throw new DecodingFailureError('the answer about sequence numbers is cut off', contextOf(client))
  }
  if (failedOver && value.readBigUInt64BE(35) < token.sequenceNumber) {
    throw new MutationLostError(undefined, contextOf(client))
  }
  return { persisted: value.readBigUInt64BE(11), current: value.readBigUInt64BE(19) }
}

function contextOf(client: KvClient): ErrorContext {
  return client.bucket === undefined ? {} : { bucket: client.bucket }
}
