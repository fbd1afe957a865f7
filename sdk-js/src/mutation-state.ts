/** Mutations that queries and scans must reflect. */

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
   * @throws InvalidArgumentError if an argument is not a token.
   */
  add(...tokens: (MutationToken | undefined)[]): void {
    for (const token of tokens) {
      // The server may not have returned a token.
      if (token === undefined) continue
      if (typeof token?.sequenceNumber !== 'bigint' || typeof token.partitionUuid !== 'bigint') {
        throw new InvalidArgumentError('a mutation state is made of the tokens of mutations')
      }
      const place = `${token.partitionId} ${token.bucketName}`
      const known = this.#tokens.get(place)
      if (!known || known.sequenceNumber < token.sequenceNumber) this.#tokens.set(place, token)
    }
  }

  /** Returns the tokens of one bucket, by vBucket. @internal */
  of(bucketName: string): Map<number, MutationToken> {
    const tokens = [...this.#tokens.values()].filter((token) => token.bucketName === bucketName)
    return new Map(tokens.map((token) => [token.partitionId, token]))
  }

  /** Returns the seqno and the vBucket UUID, by bucket and vBucket. */
  toJSON(): Record<string, Record<string, [number, string]>> {
    const state: Record<string, Record<string, [number, string]>> = {}
    for (const { bucketName, partitionId, sequenceNumber, partitionUuid } of this.#tokens.values()) {
      const bucket = (state[bucketName] ??= {})
      bucket[partitionId] = [Number(sequenceNumber), String(partitionUuid)]
    }
    return state
  }
}
