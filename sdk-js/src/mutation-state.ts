/** Mutations that queries and scans are to see. */

import { InvalidArgumentError } from './errors.js'
import type { MutationToken } from './results.js'

/** The newest mutation of each vBucket that was added: `new MutationState(result.token, …)`. */
export class MutationState {
  readonly #tokens = new Map<string, MutationToken>()

  constructor(...tokens: (MutationToken | undefined)[]) {
    this.add(...tokens)
  }

  /**
   * Adds the tokens of further mutations.
   *
   * @throws InvalidArgumentError something else is given.
   */
  add(...tokens: (MutationToken | undefined)[]): void {
    for (const token of tokens) {
      // The server of the mutation may not have given one.
      if (token === undefined) continue
      if (typeof token?.sequenceNumber !== 'bigint' || typeof token.partitionUuid !== 'bigint') {
        throw new InvalidArgumentError('a mutation state is made of the tokens of mutations')
      }
      const place = `${token.partitionId} ${token.bucketName}`
      const known = this.#tokens.get(place)
      if (!known || known.sequenceNumber < token.sequenceNumber) this.#tokens.set(place, token)
    }
  }

  /** The tokens of one bucket, by vBucket. @internal */
  of(bucketName: string): Map<number, MutationToken> {
    const tokens = [...this.#tokens.values()].filter((token) => token.bucketName === bucketName)
    return new Map(tokens.map((token) => [token.partitionId, token]))
  }

  /** By bucket and vBucket, the sequence number and the history that it belongs to. */
  toJSON(): Record<string, Record<string, [number, string]>> {
    const state: Record<string, Record<string, [number, string]>> = {}
    for (const { bucketName, partitionId, sequenceNumber, partitionUuid } of this.#tokens.values()) {
      const bucket = (state[bucketName] ??= {})
      bucket[partitionId] = [Number(sequenceNumber), String(partitionUuid)]
    }
    return state
  }
}
