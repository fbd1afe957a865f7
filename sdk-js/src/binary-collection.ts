/** Operations on counters and on binary documents. */

import { Documents } from './documents.js'
import { DecodingFailureError, InvalidArgumentError } from './errors.js'
import { Opcode } from './opcodes.js'
import { checkOptions } from './option-names.js'
import { checkCas, type CounterOptions, type RemoveOptions, wireExpiry } from './options.js'
import type { CounterResult, MutationResult } from './results.js'

/** Expiry that tells the server not to create a missing counter. */
const NEVER_CREATE = 0xffffffff

/** The binary operations of a collection. */
export class BinaryCollection extends Documents {
  /**
   * Adds to an unsigned 64-bit counter, which wraps around on overflow.
   *
   * @throws DocumentNotFoundError if the document does not exist and `initial` is not set.
   * @throws DeltaInvalidError if the document is not a counter.
   */
  async increment(key: string, delta: number | bigint, options: CounterOptions = {}): Promise<CounterResult> {
    checkOptions('increment', options)
    return this.#count(Opcode.Increment, key, delta, options)
  }

  /** Subtracts from a counter. The result is at least 0. */
  async decrement(key: string, delta: number | bigint, options: CounterOptions = {}): Promise<CounterResult> {
    checkOptions('decrement', options)
    return this.#count(Opcode.Decrement, key, delta, options)
  }

  /** Appends bytes to a document, which must exist. */
  async append(key: string, value: string | Buffer, options: RemoveOptions = {}): Promise<MutationResult> {
    checkOptions('append', options)
    return this.#extend(Opcode.Append, key, value, options)
  }

  /** Prepends bytes to a document, which must exist. */
  async prepend(key: string, value: string | Buffer, options: RemoveOptions = {}): Promise<MutationResult> {
    checkOptions('prepend', options)
    return this.#extend(Opcode.Prepend, key, value, options)
  }

  async #count(opcode: number, key: string, delta: number | bigint, options: CounterOptions): Promise<CounterResult> {
    const extras = Buffer.alloc(20)
    extras.writeBigUInt64BE(unsigned('delta', delta), 0)
    extras.writeBigUInt64BE(unsigned('initial', options.initial ?? 0), 8)
    extras.writeUInt32BE(options.initial === undefined ? NEVER_CREATE : wireExpiry(options.expiry), 16)
    const { response, result } = await this.mutate(key, { opcode, extras }, options)
    if (response.value.length !== 8) throw new DecodingFailureError("the counter's value is missing")
    const exactValue = response.value.readBigUInt64BE(0)
    return { ...result, value: Number(exactValue), exactValue }
  }

  async #extend(opcode: number, key: string, value: string | Buffer, options: RemoveOptions): Promise<MutationResult> {
    const request = { opcode, value: Buffer.from(value as string), cas: checkCas(options.cas) }
    return (await this.mutate(key, request, options)).result
  }
}

function unsigned(name: string, number: number | bigint): bigint {
  const usable = typeof number === 'bigint' || Number.isSafeInteger(number)
  if (!usable || number < 0 || number >= 1n << 64n) {
    throw new InvalidArgumentError(`${name} is an unsigned 64-bit integer (a bigint beyond 2^53)`)
  }
  return BigInt(number)
}
