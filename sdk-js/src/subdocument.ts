/**
 * Specs of `lookupIn` and `mutateIn`: an operation and the path in the document to which it applies.
 *
 *     await collection.mutateIn('order', [MutateInSpec.upsert('total', 9), MutateInSpec.increment('revision', 1)])
 */

import { DecodingFailureError, InvalidArgumentError } from './errors.js'
import { Opcode, Status } from './opcodes.js'
import { checkOptions } from './option-names.js'
import { encodeJson } from './transcoders.js'

const SPECS_MAX = 16
const PATH_BYTES_MAX = 1024
const CREATE_PATH = 0x01
const XATTR = 0x04
const MACROS = 0x10
const NOTHING: Buffer = Buffer.alloc(0)

/** Options of every spec. */
export interface SpecOptions {
  /** True if the path refers to an extended attribute. */
  xattr?: boolean
}

/** Options of specs that can add a member. */
export interface AddSpecOptions extends SpecOptions {
  /** True if missing parents of the path are created. */
  createPath?: boolean
}

/** Options of specs that add to arrays. */
export interface ArraySpecOptions extends AddSpecOptions {
  /** The value is an array of the values to add. */
  multi?: boolean
}

/** A path of `lookupIn` to a virtual attribute of a document. */
export class LookupInMacro {
  readonly path: string

  private constructor(path: string) {
    this.path = path
  }

  /** All the following attributes. */
  static readonly Document: LookupInMacro = new LookupInMacro('$document')
  /** Expiry in Unix seconds; 0 for never. */
  static readonly Expiry: LookupInMacro = new LookupInMacro('$document.exptime')
  /** The CAS in hexadecimal. */
  static readonly Cas: LookupInMacro = new LookupInMacro('$document.CAS')
  /** Seqno of the last mutation, in hexadecimal. */
  static readonly SeqNo: LookupInMacro = new LookupInMacro('$document.seqno')
  /** Time of the last change, in Unix seconds as text. */
  static readonly LastModified: LookupInMacro = new LookupInMacro('$document.last_modified')
  /** True if the document is deleted. */
  static readonly IsDeleted: LookupInMacro = new LookupInMacro('$document.deleted')
  /** Size of the value in bytes. */
  static readonly ValueSizeBytes: LookupInMacro = new LookupInMacro('$document.value_bytes')
  /** Number of changes, as text. */
  static readonly RevId: LookupInMacro = new LookupInMacro('$document.revid')
}

/** A placeholder in an extended attribute, which the server replaces in `mutateIn`. */
export class MutateInMacro {
  readonly value: string

  private constructor(value: string) {
    this.value = value
  }

  /** The CAS of the mutation. */
  static readonly Cas: MutateInMacro = new MutateInMacro('${Mutation.CAS}')
  /** The seqno of the mutation. */
  static readonly SeqNo: MutateInMacro = new MutateInMacro('${Mutation.seqno}')
  /** CRC-32C of the new value. */
  static readonly ValueCrc32c: MutateInMacro = new MutateInMacro('${Mutation.value_crc32c}')
}

/** One operation at one path. */
abstract class Spec {
  readonly opcode: number
  readonly path: string
  readonly flags: number
  readonly value: Buffer

  protected constructor(opcode: number, path: string, options?: AddSpecOptions, value?: Buffer, flags: number = 0) {
    if (typeof path !== 'string') throw new InvalidArgumentError(`a path is a string, not ${typeof path}`)
    this.opcode = opcode
    this.path = path
    this.flags = flags | (options?.createPath ? CREATE_PATH : 0) | (options?.xattr ? XATTR : 0)
    this.value = value ?? NOTHING
  }

  /** True if the path refers to an extended attribute. */
  get xattr(): boolean {
    return (this.flags & XATTR) !== 0
  }
}

/** A spec of `lookupIn`. */
export class LookupInSpec extends Spec {
  /** The path of a document's expiry. */
  static get Expiry(): LookupInMacro {
    return LookupInMacro.Expiry
  }

  /** Reads the value at a path. The empty path means the whole document. */
  static get(path: string | LookupInMacro, options?: SpecOptions): LookupInSpec {
    checkOptions('LookupInSpec.get', options)
    return LookupInSpec.#of(path === '' ? Opcode.Get : Opcode.SubdocGet, path, options)
  }

  /** Checks whether a path exists. */
  static exists(path: string | LookupInMacro, options?: SpecOptions): LookupInSpec {
    checkOptions('LookupInSpec.exists', options)
    return LookupInSpec.#of(Opcode.SubdocExists, path, options)
  }

  /** Counts the elements or members of the array or object at a path. */
  static count(path: string | LookupInMacro, options?: SpecOptions): LookupInSpec {
    checkOptions('LookupInSpec.count', options)
    return LookupInSpec.#of(Opcode.SubdocGetCount, path, options)
  }

  static #of(opcode: number, path: string | LookupInMacro, options?: SpecOptions): LookupInSpec {
    const macro = path instanceof LookupInMacro
    return new LookupInSpec(opcode, macro ? path.path : path, macro ? { ...options, xattr: true } : options)
  }
}

/** A spec of `mutateIn`. */
export class MutateInSpec extends Spec {
  /** The placeholder for the CAS of the mutation. */
  static get CasPlaceholder(): MutateInMacro {
    return MutateInMacro.Cas
  }

  /** Sets a member of an object. */
  static upsert(path: string, value: any, options?: AddSpecOptions): MutateInSpec {
    checkOptions('MutateInSpec.upsert', options)
    return MutateInSpec.#of(Opcode.SubdocDictUpsert, path, value, options)
  }

  /** Adds a member to an object, which must not have it yet. */
  static insert(path: string, value: any, options?: AddSpecOptions): MutateInSpec {
    checkOptions('MutateInSpec.insert', options)
    return MutateInSpec.#of(Opcode.SubdocDictAdd, path, value, options)
  }

  /** Replaces the value at a path. The empty path means the whole document. */
  static replace(path: string, value: any, options?: SpecOptions): MutateInSpec {
    checkOptions('MutateInSpec.replace', options)
    return MutateInSpec.#of(path === '' ? Opcode.Set : Opcode.SubdocReplace, path, value, options)
  }

  /** Removes the value at a path. The empty path means the whole document. */
  static remove(path: string, options?: SpecOptions): MutateInSpec {
    checkOptions('MutateInSpec.remove', options)
    return new MutateInSpec(path === '' ? Opcode.Delete : Opcode.SubdocDelete, path, options)
  }

  /** Appends a value, or several with `multi`, to an array. */
  static arrayAppend(path: string, value: any, options?: ArraySpecOptions): MutateInSpec {
    checkOptions('MutateInSpec.arrayAppend', options)
    return MutateInSpec.#array(Opcode.SubdocArrayPushLast, path, value, options)
  }

  /** Prepends a value, or several with `multi`, to an array. */
  static arrayPrepend(path: string, value: any, options?: ArraySpecOptions): MutateInSpec {
    checkOptions('MutateInSpec.arrayPrepend', options)
    return MutateInSpec.#array(Opcode.SubdocArrayPushFirst, path, value, options)
  }

  /** Inserts a value before an element, whose index is the end of the path, as in `tags[2]`. */
  static arrayInsert(path: string, value: any, options?: Omit<ArraySpecOptions, 'createPath'>): MutateInSpec {
    checkOptions('MutateInSpec.arrayInsert', options)
    return MutateInSpec.#array(Opcode.SubdocArrayInsert, path, value, options)
  }

  /** Adds a string, number, boolean or null to an array that must not contain it. */
  static arrayAddUnique(path: string, value: any, options?: AddSpecOptions): MutateInSpec {
    checkOptions('MutateInSpec.arrayAddUnique', options)
    return MutateInSpec.#of(Opcode.SubdocArrayAddUnique, path, value, options)
  }

  /** Adds to the number at a path, and creates it if it is missing. The result contains the new value. */
  static increment(path: string, value: number, options?: AddSpecOptions): MutateInSpec {
    checkOptions('MutateInSpec.increment', options)
    if (!Number.isSafeInteger(value) || value === 0) throw new InvalidArgumentError('a counter changes by an integer')
    return MutateInSpec.#of(Opcode.SubdocCounter, path, value, options)
  }

  /** Subtracts from the number at a path. */
  static decrement(path: string, value: number, options?: AddSpecOptions): MutateInSpec {
    checkOptions('MutateInSpec.decrement', options)
    return MutateInSpec.increment(path, -value, options)
  }

  /** Replaces the document with the value at a path of an extended attribute. @internal */
  static replaceBodyWith(path: string): MutateInSpec {
    return new MutateInSpec(Opcode.SubdocReplaceBodyWithXattr, path, { xattr: true })
  }

  /** Replaces the document with bytes. @internal */
  static setBody(bytes: Buffer): MutateInSpec {
    return new MutateInSpec(Opcode.Set, '', undefined, bytes)
  }

  static #of(opcode: number, path: string, value: any, options: AddSpecOptions = {}): MutateInSpec {
    if (value instanceof MutateInMacro) {
      return new MutateInSpec(opcode, path, { ...options, xattr: true }, encodeJson(value.value), MACROS)
    }
    const macro = options.xattr && typeof value === 'string' && /^\$\{(Mutation\.|\$document)/.test(value)
    return new MutateInSpec(opcode, path, options, encodeJson(value), macro ? MACROS : 0)
  }

  static #array(opcode: number, path: string, value: any, options: ArraySpecOptions = {}): MutateInSpec {
    if (!options.multi) return MutateInSpec.#of(opcode, path, value, options)
    if (!Array.isArray(value) || !value.length) throw new InvalidArgumentError('there is no value to add')
    return new MutateInSpec(opcode, path, options, Buffer.from(value.map((item) => encodeJson(item)).join(',')))
  }
}

/**
 * Encodes specs as the value of a request. Returns it with the order of the specs: those for attributes come first.
 *
 * @throws InvalidArgumentError if there are none or too many, one is of the other kind, or a path is too long.
 */
export function encodeSpecs(specs: readonly Spec[], kind: 'lookup' | 'mutation'): { value: Buffer; order: number[] } {
  if (!Array.isArray(specs) || specs.length < 1 || specs.length > SPECS_MAX) {
    throw new InvalidArgumentError(`1 to ${SPECS_MAX} specs are allowed`)
  }
  const expected = kind === 'lookup' ? LookupInSpec : MutateInSpec
  for (const spec of specs) {
    if (!(spec instanceof expected)) throw new InvalidArgumentError(`a spec is no ${expected.name}`)
  }
  const order = [...specs.keys()].sort((a, b) => Number(specs[b]!.xattr) - Number(specs[a]!.xattr) || a - b)
  return { value: Buffer.concat(order.map((index) => encodeSpec(specs[index]!, kind))), order }
}

function encodeSpec(spec: Spec, kind: 'lookup' | 'mutation'): Buffer {
  const path = Buffer.from(spec.path)
  if (path.length > PATH_BYTES_MAX) throw new InvalidArgumentError(`a path has up to ${PATH_BYTES_MAX} bytes`)
  const head = Buffer.alloc(kind === 'lookup' ? 4 : 8)
  head[0] = spec.opcode
  head[1] = spec.flags
  head.writeUInt16BE(path.length, 2)
  if (kind === 'mutation') head.writeUInt32BE(spec.value.length, 4)
  return Buffer.concat([head, path, spec.value])
}

/** The server's result for one spec. */
export interface Part {
  index: number
  status: number
  content: Buffer
}

/**
 * Decodes the results of a lookup, in the order in which the specs were sent.
 *
 * @throws DecodingFailureError if the response is truncated or has another number of parts.
 */
export function decodeLookup(value: Buffer, specCount: number): Part[] {
  const parts: Part[] = []
  let at = 0
  for (let index = 0; index < specCount; index++) {
    require(value, at, 6)
    const byteCount = value.readUInt32BE(at + 2)
    parts.push({ index, status: value.readUInt16BE(at), content: slice(value, at + 6, byteCount) })
    at += 6 + byteCount
  }
  if (at !== value.length) throw new DecodingFailureError('the answer has more parts than specs')
  return parts
}

/**
 * Decodes the values of specs that return one, or the first failed spec.
 *
 * @throws DecodingFailureError if the response is truncated or names a spec that was not sent.
 */
export function decodeMutation(value: Buffer, specCount: number): Part[] {
  const parts: Part[] = []
  for (let at = 0; at < value.length; ) {
    require(value, at, 3)
    const index = value[at]!
    const status = value.readUInt16BE(at + 1)
    at += 3
    if (index >= specCount) throw new DecodingFailureError(`the answer is about spec ${index} of ${specCount}`)
    let content = NOTHING
    if (status === Status.Success) {
      require(value, at, 4)
      content = slice(value, at + 4, value.readUInt32BE(at))
      at += 4 + content.length
    }
    parts.push({ index, status, content })
  }
  return parts
}

function require(value: Buffer, at: number, byteCount: number): void {
  if (at + byteCount > value.length) throw new DecodingFailureError(`the answer is cut off at byte ${at}`)
}

function slice(value: Buffer, at: number, byteCount: number): Buffer {
  require(value, at, byteCount)
  return value.subarray(at, at + byteCount)
}
