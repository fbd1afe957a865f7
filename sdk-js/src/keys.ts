/** The vBucket of a key, and its encoding. */

import { InvalidArgumentError } from './errors.js'

const KEY_BYTES_MAX = 250
const KEY_BYTES_MAX_IN_COLLECTION = 246

/** Table of the CRC-32 (IEEE) of single bytes. */
const REMAINDERS: Uint32Array = Uint32Array.from({ length: 256 }, (_, byte) => {
  let remainder = byte
  for (let bit = 0; bit < 8; bit++) remainder = remainder & 1 ? (remainder >>> 1) ^ 0xedb88320 : remainder >>> 1
  return remainder >>> 0
})

/** Returns the CRC-32 (IEEE) of bytes. */
export function crc32(bytes: Uint8Array): number {
  let register = 0xffffffff
  for (const byte of bytes) register = (register >>> 8) ^ REMAINDERS[(register ^ byte) & 0xff]!
  return ~register >>> 0
}

/**
 * vBucket of a key: bits 16..30 of its CRC-32, modulo the number of vBuckets.
 *
 * The key does not include the collection ID.
 */
export function vbucketOf(key: Uint8Array, vbucketCount: number): number {
  return ((crc32(key) >>> 16) & 0x7fff) % vbucketCount
}

/** Encodes a number as unsigned LEB128, as the collection ID before a key. */
export function leb128(number: number): Buffer {
  const bytes: number[] = []
  let rest = number >>> 0
  for (; rest >= 0x80; rest >>>= 7) bytes.push((rest & 0x7f) | 0x80)
  bytes.push(rest)
  return Buffer.from(bytes)
}

/**
 * Returns the bytes of a valid key: 1..=250 bytes of UTF-8, 246 outside the default collection.
 *
 * @throws InvalidArgumentError if it is not a string, is empty, or is too long.
 */
export function checkKey(key: string, inDefaultCollection: boolean): Buffer {
  if (typeof key !== 'string') throw new InvalidArgumentError(`a key is a string, not ${typeof key}`)
  const encoded = Buffer.from(key)
  const limit = inDefaultCollection ? KEY_BYTES_MAX : KEY_BYTES_MAX_IN_COLLECTION
  if (encoded.length < 1 || encoded.length > limit) {
    throw new InvalidArgumentError(`a key has 1 to ${limit} bytes, not ${encoded.length}`)
  }
  return encoded
}
