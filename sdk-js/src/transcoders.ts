/** Values to bytes and back. The flags stored with a document say what its bytes are. */

import { DecodingFailureError, EncodingFailureError } from './errors.js'

/** Flags of documents that are JSON. */
export const JSON_FLAGS = 0x02000000
const BINARY_FLAGS = 0x03000000
const STRING_FLAGS = 0x04000000

/** Turns values into bytes and flags, and back. */
export interface Transcoder {
  /** Bytes and flags to store. */
  encode(value: any): [Buffer, number]
  /** Value of stored bytes. */
  decode(bytes: Buffer, flags: number): any
}

/** Values that JSON can express, and Buffers as plain bytes; as in the official SDK. */
export class DefaultTranscoder implements Transcoder {
  /** Compact JSON, or the bytes of a Buffer. */
  encode(value: any): [Buffer, number] {
    return Buffer.isBuffer(value) ? [value, BINARY_FLAGS] : [encodeJson(value), JSON_FLAGS]
  }

  /** What the flags say: JSON, text or bytes; documents without flags count as JSON. */
  decode(bytes: Buffer, flags: number): any {
    switch (flags >>> 24) {
      case BINARY_FLAGS >>> 24:
        return bytes
      case STRING_FLAGS >>> 24:
        return bytes.toString()
      case 0:
      case JSON_FLAGS >>> 24:
        return decodeJson(bytes)
      default:
        throw new DecodingFailureError(`nothing is known about documents with the flags 0x${flags.toString(16)}`)
    }
  }
}

/**
 * Compact JSON of a value.
 *
 * @throws EncodingFailureError JSON has no such value.
 */
export function encodeJson(value: unknown): Buffer {
  let text: string | undefined
  try {
    text = JSON.stringify(value)
  } catch (error) {
    throw new EncodingFailureError(`the value is not JSON: ${error}`, {}, error)
  }
  if (text === undefined) throw new EncodingFailureError(`JSON has no ${typeof value}`)
  return Buffer.from(text)
}

/**
 * Value of JSON.
 *
 * @throws DecodingFailureError it is not JSON.
 */
export function decodeJson(bytes: Buffer): any {
  try {
    return JSON.parse(bytes.toString())
  } catch (error) {
    throw new DecodingFailureError(`the document is not JSON: ${error}`, {}, error)
  }
}
