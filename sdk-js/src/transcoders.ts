/** Encoding and decoding of values. The flags of a document determine the format of its bytes. */

import { DecodingFailureError, EncodingFailureError, InvalidArgumentError } from './errors.js'

/** Flags of documents that are JSON. */
export const JSON_FLAGS = 0x02000000
const BINARY_FLAGS = 0x03000000
const STRING_FLAGS = 0x04000000
/** Flags for clients that ignore the highest byte. The official SDK sets them too. */
const [LEGACY_BINARY, LEGACY_STRING] = [0x02, 0x04]

/** Encodes values into bytes and flags, and decodes them. */
export interface Transcoder {
  /** Returns the bytes and flags to store. */
  encode(value: any): [Buffer, number]
  /** Returns the value of stored bytes. */
  decode(bytes: Buffer, flags: number): any
}

/** Encodes strings and other JSON values as JSON, and Buffers as plain bytes, as in the official SDK. */
export class DefaultTranscoder implements Transcoder {
  /** Encodes as compact JSON, UTF-8 text, or the bytes of a Buffer. */
  encode(value: any): [Buffer, number] {
    if (typeof value === 'string') return [Buffer.from(value), STRING_FLAGS | LEGACY_STRING]
    return Buffer.isBuffer(value) ? [value, BINARY_FLAGS | LEGACY_BINARY] : [encodeJson(value), JSON_FLAGS]
  }

  /** Decodes JSON, text or bytes according to the flags. Without flags, the document counts as JSON. */
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

/** Stores bytes unchanged. */
export class RawBinaryTranscoder implements Transcoder {
  /** Returns the bytes of a Buffer. */
  encode(value: Buffer): [Buffer, number] {
    if (!Buffer.isBuffer(value)) throw new InvalidArgumentError('the transcoder of bytes takes Buffers only')
    return [value, BINARY_FLAGS]
  }

  /** Returns the stored bytes. */
  decode(bytes: Buffer, flags: number): Buffer {
    return kept('bytes', bytes, flags, BINARY_FLAGS)
  }
}

/** Stores text as UTF-8. */
export class RawStringTranscoder implements Transcoder {
  /** Returns the bytes of a string. */
  encode(value: string): [Buffer, number] {
    if (typeof value !== 'string') throw new InvalidArgumentError('the transcoder of text takes strings only')
    return [Buffer.from(value), STRING_FLAGS]
  }

  /** Returns the stored text. */
  decode(bytes: Buffer, flags: number): string {
    return kept('text', bytes, flags, STRING_FLAGS).toString()
  }
}

/** Stores JSON that the caller serialises and parses. */
export class RawJsonTranscoder implements Transcoder {
  /** Returns the bytes of JSON in a string or Buffer. */
  encode(value: string | Buffer): [Buffer, number] {
    if (Buffer.isBuffer(value)) return [value, JSON_FLAGS]
    if (typeof value !== 'string') throw new InvalidArgumentError('JSON is given as a string or Buffer')
    return [Buffer.from(value), JSON_FLAGS]
  }

  /** Returns the stored JSON without parsing it. */
  decode(bytes: Buffer, flags: number): Buffer {
    return flags >>> 24 === 0 ? bytes : kept('JSON', bytes, flags, JSON_FLAGS)
  }
}

function kept(what: string, bytes: Buffer, flags: number, expected: number): Buffer {
  if (flags >>> 24 === expected >>> 24) return bytes
  throw new DecodingFailureError(`the flags 0x${flags.toString(16)} do not say that the document is ${what}`)
}

/**
 * Serialises a value as compact JSON.
 *
 * @throws EncodingFailureError if JSON cannot represent the value.
 */
export function encodeJson(value: unknown): Buffer {
  return Buffer.from(jsonText(value))
}

/**
 * Serialises a value as JSON text.
 *
 * @throws EncodingFailureError if JSON cannot represent the value.
 */
export function jsonText(value: unknown): string {
  let text: string | undefined
  try {
    text = JSON.stringify(value)
  } catch (error) {
    throw new EncodingFailureError(`the value is not JSON: ${error}`, {}, error)
  }
  if (text === undefined) throw new EncodingFailureError(`JSON has no ${typeof value}`)
  return text
}

/**
 * Parses JSON.
 *
 * @throws DecodingFailureError if it is not JSON.
 */
export function decodeJson(bytes: Buffer): any {
  try {
    return JSON.parse(bytes.toString())
  } catch (error) {
    throw new DecodingFailureError(`the document is not JSON: ${error}`, {}, error)
  }
}
