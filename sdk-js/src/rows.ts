/**
 * Rows of a JSON answer, one by one while it arrives: the elements of one array of the top-level object.
 *
 *     {"requestID": "…", "results": [ row, row, … ], "status": "success"}
 *
 * Only the bytes of the row that is under way and those around the array are kept.
 */

import { concat, textOf } from './bytes.js'
import { DecodingFailureError } from './errors.js'

/** Largest row, and most that may stand around the rows. */
const BYTES_MAX = 64 * 1024 * 1024

const QUOTE = 0x22
const BACKSLASH = 0x5c
const COMMA = 0x2c
const [OPEN_ARRAY, CLOSE_ARRAY, OPEN_OBJECT, CLOSE_OBJECT] = [0x5b, 0x5d, 0x7b, 0x7d]

const EMPTY = new Uint8Array(0)

/** Takes the parts of an answer and gives its rows. */
export class RowScanner {
  readonly #member: string
  #depth = 0
  #inString = false
  #escaped = false
  /** Whether the array with the rows is open. */
  #inRows = false
  #found = false
  /** Bytes of the text that ended last outside of the rows, to find the array by its name. */
  #name: Uint8Array = EMPTY
  #row: Uint8Array[] = []
  #rowBytes = 0
  #rest: Uint8Array[] = []
  #restBytes = 0

  /** `member` is the name of the array. */
  constructor(member: string) {
    this.#member = `"${member}"`
  }

  /**
   * The rows that are complete with this part.
   *
   * @throws DecodingFailureError a row is not JSON, or larger than any limit.
   */
  feed(part: Uint8Array): any[] {
    const rows: any[] = []
    let begin = 0
    for (let at = 0; at < part.length; at++) {
      if (this.#inString) {
        at = this.#skipString(part, at)
        continue
      }
      const byte = part[at]!
      if (byte === QUOTE) {
        this.#inString = true
        if (!this.#inRows) {
          this.#keep(part.subarray(begin, at))
          begin = at
          this.#name = EMPTY
        }
      } else if (byte === OPEN_OBJECT || byte === OPEN_ARRAY) {
        this.#depth++
        if (byte === OPEN_ARRAY && this.#depth === 2 && !this.#found && this.#isNamed(part.subarray(begin, at))) {
          this.#keep(part.subarray(begin, at + 1))
          begin = at + 1
          this.#inRows = this.#found = true
        }
      } else if (byte === CLOSE_OBJECT || byte === CLOSE_ARRAY) {
        this.#depth--
        if (this.#inRows && this.#depth === 1) {
          this.#take(part.subarray(begin, at), rows)
          begin = at
          this.#inRows = false
        }
      } else if (byte === COMMA && this.#inRows && this.#depth === 2) {
        this.#take(part.subarray(begin, at), rows)
        begin = at + 1
      }
    }
    if (this.#inRows) this.#keepRow(part.subarray(begin))
    else this.#keep(part.subarray(begin))
    return rows
  }

  /**
   * The answer without its rows, once it is complete.
   *
   * @throws DecodingFailureError it is not JSON, or ends too early.
   */
  rest(): any {
    try {
      return JSON.parse(textOf(this.#rest))
    } catch (error) {
      throw new DecodingFailureError(`the answer cannot be read: ${error}`, {}, error)
    }
  }

  /** Where the text that is open ends in this part, or its end. */
  #skipString(part: Uint8Array, from: number): number {
    for (let at = from; at < part.length; at++) {
      if (this.#escaped) this.#escaped = false
      else if (part[at] === BACKSLASH) this.#escaped = true
      else if (part[at] === QUOTE) {
        this.#inString = false
        return at
      }
    }
    return part.length
  }

  /** Whether the bytes in front of an array, back to the last text that began, give it the name. */
  #isNamed(bytes: Uint8Array): boolean {
    const text = textOf([this.#name, bytes]).trimEnd()
    return text.endsWith(':') && text.slice(0, -1).trimEnd() === this.#member
  }

  #keep(bytes: Uint8Array): void {
    this.#restBytes += bytes.length
    if (this.#restBytes > BYTES_MAX) throw new DecodingFailureError('the answer is over the limit')
    this.#rest.push(bytes)
    // A name may be cut in two by the parts.
    if (this.#name.length < 256) this.#name = concat([this.#name, bytes.subarray(0, 256)])
  }

  #keepRow(bytes: Uint8Array): void {
    this.#rowBytes += bytes.length
    if (this.#rowBytes > BYTES_MAX) throw new DecodingFailureError('a row is over the limit')
    this.#row.push(bytes)
  }

  #take(last: Uint8Array, rows: any[]): void {
    this.#keepRow(last)
    const text = textOf(this.#row)
    this.#row = []
    this.#rowBytes = 0
    // Nothing but blanks stands in an array without rows.
    if (!text.trim()) return
    try {
      rows.push(JSON.parse(text))
    } catch (error) {
      throw new DecodingFailureError(`a row cannot be read: ${error}`, {}, error)
    }
  }
}
