/**
 * Encodes and decodes frames of the binary protocol.
 *
 * A frame is 24 bytes of header and a body: framing extras, extras, key and value. Numbers are big-endian:
 *
 *     0 magic | 1 opcode | 2..3 key length | 4 extras length | 5 datatype | 6..7 vBucket or status
 *     8..11 body length | 12..15 opaque | 16..23 CAS
 *
 * The server may also send requests (0x82), with a vBucket in place of the status. The flexible magics (0x08 for
 * requests, 0x18 for responses) split bytes 2..3 into the length of the framing extras and that of the key. Lengths
 * come from the peer, so each is checked against the body before it is used.
 */

import { DecodingFailureError } from './errors.js'
import { hex } from './opcodes.js'

const HEADER_BYTES = 24

/** Maximum body size, slightly above what servers accept (a document of 20 MiB and its extended attributes). */
export const BODY_BYTES_MAX: number = 31 * 1024 * 1024

const ASK = 0x80
const ASK_FLEXIBLE = 0x08
const ANSWER = 0x81
const ANSWER_FLEXIBLE = 0x18
const PUSHED = 0x82
const NOTHING: Buffer = Buffer.alloc(0)

/** Framing extras that keep a document's expiry when it is written (id 5, length 0). */
export const PRESERVE_EXPIRY: Buffer = Buffer.from([0x50])

/** Returns framing extras for a durability level (id 1), with the server's timeout `timeoutMs`. */
export function durabilityFraming(level: number, timeoutMs: number): Buffer {
  // 0 and 65,535 have other meanings.
  const wire = Math.min(Math.max(Math.floor(timeoutMs), 1), 0xfffe)
  return Buffer.from([0x13, level, wire >> 8, wire & 0xff])
}

/** A request without its opaque, which the connection assigns. */
export interface Request {
  opcode: number
  key?: Buffer | undefined
  extras?: Buffer | undefined
  value?: Buffer | undefined
  vbid?: number | undefined
  cas?: bigint | undefined
  datatype?: number | undefined
  framing?: Buffer | undefined
}

/** A decoded response, or a decoded request from the server. */
export interface Response {
  /** True for a request from the server. */
  pushed: boolean
  opcode: number
  status: number
  opaque: number
  cas: bigint
  datatype: number
  extras: Buffer
  key: Buffer
  value: Buffer
}

/** Encodes a request. The frame is flexible only if there are framing extras. */
export function encodeRequest(request: Request, opaque: number): Buffer {
  const { opcode, key = NOTHING, extras = NOTHING, value = NOTHING, framing = NOTHING } = request
  const header = Buffer.allocUnsafe(HEADER_BYTES)
  header[0] = framing.length ? ASK_FLEXIBLE : ASK
  header[1] = opcode
  header.writeUInt16BE(framing.length ? (framing.length << 8) | key.length : key.length, 2)
  header[4] = extras.length
  header[5] = request.datatype ?? 0
  header.writeUInt16BE(request.vbid ?? 0, 6)
  header.writeUInt32BE(framing.length + extras.length + key.length + value.length, 8)
  header.writeUInt32BE(opaque, 12)
  header.writeBigUInt64BE(request.cas ?? 0n, 16)
  return Buffer.concat([header, framing, extras, key, value])
}

/** Collects bytes as they arrive, and yields complete responses. */
export class FrameReader {
  #parts: Buffer[] = []
  #byteCount = 0
  #needed: number = HEADER_BYTES;

  /**
   * Yields the responses that `data` completes.
   *
   * @throws DecodingFailureError if the peer does not speak this protocol. The stream is then unusable.
   */
  *feed(data: Buffer): Generator<Response> {
    this.#parts.push(data)
    this.#byteCount += data.length
    // The parts are joined only once the frame is complete, so that a large frame is not copied for each part.
    while (this.#byteCount >= this.#needed) {
      const joined: Buffer = this.#parts.length === 1 ? this.#parts[0]! : Buffer.concat(this.#parts)
      this.#parts = [joined]
      const frameBytes = HEADER_BYTES + bodyBytes(joined)
      if (joined.length < frameBytes) {
        this.#needed = frameBytes
        return
      }
      this.#needed = HEADER_BYTES
      this.#byteCount = joined.length - frameBytes
      // An empty rest would be joined with the next part, which copies it.
      this.#parts = this.#byteCount ? [joined.subarray(frameBytes)] : []
      yield decodeResponse(joined.subarray(0, frameBytes))
    }
  }
}

function bodyBytes(header: Buffer): number {
  const magic = header[0]!
  if (magic !== ANSWER && magic !== ANSWER_FLEXIBLE && magic !== PUSHED) {
    throw new DecodingFailureError(`no answer starts with ${hex(magic)}`)
  }
  const byteCount = header.readUInt32BE(8)
  if (byteCount > BODY_BYTES_MAX) throw new DecodingFailureError(`a frame of ${byteCount} bytes is over the limit`)
  return byteCount
}

/**
 * Decodes a complete frame.
 *
 * @throws DecodingFailureError if its lengths contradict each other.
 */
export function decodeResponse(frame: Buffer): Response {
  if (frame.length < HEADER_BYTES) throw new DecodingFailureError(`${frame.length} bytes are no frame`)
  const flexible = frame[0] === ANSWER_FLEXIBLE
  const extrasAt = HEADER_BYTES + (flexible ? frame[2]! : 0)
  const keyAt = extrasAt + frame[4]!
  const valueAt = keyAt + (flexible ? frame[3]! : frame.readUInt16BE(2))
  const end = HEADER_BYTES + frame.readUInt32BE(8)
  if (frame.length !== end || valueAt > end) {
    throw new DecodingFailureError(`a frame of ${end} bytes cannot hold parts up to byte ${valueAt}`)
  }
  return {
    pushed: frame[0] === PUSHED,
    opcode: frame[1]!,
    status: frame.readUInt16BE(6),
    opaque: frame.readUInt32BE(12),
    cas: frame.readBigUInt64BE(16),
    datatype: frame[5]!,
    extras: frame.subarray(extrasAt, keyAt),
    key: frame.subarray(keyAt, valueAt),
    value: frame.subarray(valueAt),
  }
}
