/**
 * Streams the rows of a JSON response while it arrives: the elements of one array in the top-level object.
 *
 *     {"requestID": "…", "results": [ row, row, … ], "status": "success"}
 *
 * The scanner keeps only the bytes of the current row and those around the array.
 */

import { concat, textOf } from './bytes.js'
import { DecodingFailureError } from './errors.js'

/** Maximum size of a row, and of the text around the rows. */
const BYTES_MAX = 64 * 1024 * 1024

const QUOTE = 0x22
const BACKSLASH = 0x5c
const COMMA = 0x2c
const [OPEN_ARRAY, CLOSE_ARRAY, OPEN_OBJECT, CLOSE_OBJECT] = [0x5b, 0x5d, 0x7b, 0x7d]

const EMPTY = new Uint8Array(0)

/** Receives the parts of a response, and returns its rows. */
export class RowScanner {
  readonly #member: string
  #depth = 0
  #inString = false
  #escaped = false
  /** True while the array with the rows is open. */
  #inRows = false
  #found = false
  /** The last string outside the rows, which may be the name of the array. */
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
   * Returns the rows that this part completes.
   *
   * @throws DecodingFailureError if a row is not JSON, or too large.
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
   * Returns the response without its rows, once it is complete.
   *
   * @throws DecodingFailureError if it is not JSON, or ends too early.
   */
  rest(): any {
    try {
      return JSON.parse(textOf(this.#rest))
    } catch (error) {
      throw new DecodingFailureError(`the answer cannot be read: ${error}`, {}, error)
    }
  }

  /** Returns the end of the open string in this part, or the end of the part. */
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

  /** Returns true if the bytes before an array, from the last string on, give the array its name. */
  #isNamed(bytes: Uint8Array): boolean {
    const text = textOf([this.#name, bytes]).trimEnd()
    return text.endsWith(':') && text.slice(0, -1).trimEnd() === this.#member
  }

  #keep(bytes: Uint8Array): void {
    this.#restBytes += bytes.length
    if (this.#restBytes > BYTES_MAX) throw new DecodingFailureError('the answer is over the limit')
    this.#rest.push(bytes)
    // A name may be split over two parts.
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
    // An empty array contains only white space.
    if (!text.trim()) return
    try {
      rows.push(JSON.parse(text))
    } catch (error) {
      throw new DecodingFailureError(`a row cannot be read: ${error}`, {}, error)
    }
  }
}
