/** Lists, maps, queues and sets, each kept in one document. */

import type { Collection } from './collection.js'
import {
  CasMismatchError,
  CouchbaseError,
  DocumentExistsError,
  InvalidArgumentError,
  PathExistsError,
  PathNotFoundError,
} from './errors.js'
import { StoreSemantics } from './options.js'
import { quoted } from './projection.js'
import { LookupInSpec, MutateInSpec } from './subdocument.js'

/** How often a change is tried again that others interfere with. */
const ATTEMPTS_MAX = 16
const CREATES = { storeSemantics: StoreSemantics.Upsert }

/** What the structures share. */
abstract class Structure {
  protected readonly collection: Collection
  protected readonly key: string

  constructor(collection: Collection, key: string) {
    this.collection = collection
    this.key = key
  }

  /** How many items there are. */
  async size(): Promise<number> {
    return this.lookup(LookupInSpec.count(''))
  }

  protected async lookup(spec: LookupInSpec): Promise<any> {
    const { content } = await this.collection.lookupIn(this.key, [spec])
    if (content[0]!.error) throw content[0]!.error
    return content[0]!.value
  }

  protected async mutate(
    spec: MutateInSpec,
    options: { cas?: bigint; storeSemantics?: StoreSemantics } = {},
  ): Promise<void> {
    await this.collection.mutateIn(this.key, [spec], options)
  }

  /** The document, which has to be of the kind. */
  protected async read(isKind: (content: any) => boolean): Promise<{ content: any; cas: bigint }> {
    const result = await this.collection.get(this.key)
    if (!isKind(result.content)) throw new CouchbaseError(`the document ${this.key} has another structure`)
    return result
  }
}

/** Does something until nobody else changes the document meanwhile. */
async function untilUndisturbed<T>(attempt: () => Promise<T>): Promise<T> {
  for (let left = ATTEMPTS_MAX; ; left--) {
    try {
      return await attempt()
    } catch (error) {
      if (!left || !(error instanceof CasMismatchError || error instanceof DocumentExistsError)) throw error
    }
  }
}

/** An array as a list. The document is made by the first item that is added. */
export class CouchbaseList extends Structure {
  /** All items. */
  async getAll(): Promise<any[]> {
    return (await this.read(Array.isArray)).content
  }

  /** Calls back for each item. */
  async forEach(callback: (value: any, index: number, list: CouchbaseList) => void): Promise<void> {
    ;(await this.getAll()).forEach((value, index) => callback(value, index, this))
  }

  /** All items, as they are at the beginning. */
  async *[Symbol.asyncIterator](): AsyncGenerator<any> {
    yield* await this.getAll()
  }

  /**
   * One item; negative numbers count from the end.
   *
   * @throws PathNotFoundError the list is shorter.
   */
  async getAt(index: number): Promise<any> {
    return this.lookup(LookupInSpec.get(element(index)))
  }

  /** Removes an item. */
  async removeAt(index: number): Promise<void> {
    await this.mutate(MutateInSpec.remove(element(index)))
  }

  /** Number of the first item that is equal, or -1. */
  async indexOf(value: any): Promise<number> {
    return (await this.getAll()).indexOf(value)
  }

  /** Adds an item at the end. */
  async push(value: any): Promise<void> {
    await this.mutate(MutateInSpec.arrayAppend('', value), CREATES)
  }

  /** Adds an item at the start. */
  async unshift(value: any): Promise<void> {
    await this.mutate(MutateInSpec.arrayPrepend('', value), CREATES)
  }
}

/** An object as a map. The document is made by the first item that is set. */
export class CouchbaseMap extends Structure {
  /** All items. */
  async getAll(): Promise<Record<string, any>> {
    return (await this.read(isObject)).content
  }

  /** Calls back for each item. */
  async forEach(callback: (value: any, key: string, map: CouchbaseMap) => void): Promise<void> {
    for (const [key, value] of Object.entries(await this.getAll())) callback(value, key, this)
  }

  /** All values with their names, as they are at the beginning. */
  async *[Symbol.asyncIterator](): AsyncGenerator<[any, string]> {
    for (const [key, value] of Object.entries(await this.getAll())) yield [value, key]
  }

  /** Sets an item. */
  async set(item: string, value: any): Promise<void> {
    await this.mutate(MutateInSpec.upsert(member(item), value), CREATES)
  }

  /**
   * One item.
   *
   * @throws PathNotFoundError there is none of this name.
   */
  async get(item: string): Promise<any> {
    return this.lookup(LookupInSpec.get(member(item)))
  }

  /** Removes an item. */
  async remove(item: string): Promise<void> {
    await this.mutate(MutateInSpec.remove(member(item)))
  }

  /** Whether there is an item. */
  async exists(item: string): Promise<boolean> {
    return this.lookup(LookupInSpec.exists(member(item)))
  }

  /** The names of all items. */
  async keys(): Promise<string[]> {
    return Object.keys(await this.getAll())
  }

  /** The values of all items. */
  async values(): Promise<any[]> {
    return Object.values(await this.getAll())
  }
}

/** An array as a queue: first in, first out. */
export class CouchbaseQueue extends Structure {
  /** Adds an item. */
  async push(value: any): Promise<void> {
    await this.mutate(MutateInSpec.arrayPrepend('', value), CREATES)
  }

  /**
   * Removes the oldest item and gives it.
   *
   * @throws PathNotFoundError the queue is empty.
   */
  async pop(): Promise<any> {
    return untilUndisturbed(async () => {
      const { content, cas } = await this.collection.lookupIn(this.key, [LookupInSpec.get('[-1]')])
      if (content[0]!.error) throw content[0]!.error
      await this.mutate(MutateInSpec.remove('[-1]'), { cas })
      return content[0]!.value
    })
  }
}

/** An array as a set of strings, numbers, booleans and null. */
export class CouchbaseSet extends Structure {
  /** Adds an item; false if it was there. */
  async add(item: any): Promise<boolean> {
    try {
      await this.mutate(MutateInSpec.arrayAddUnique('', item), CREATES)
      return true
    } catch (error) {
      if (error instanceof PathExistsError) return false
      throw error
    }
  }

  /** Whether an item is there. */
  async contains(item: any): Promise<boolean> {
    return (await this.values()).includes(item)
  }

  /**
   * Removes an item.
   *
   * @throws PathNotFoundError it is not there.
   */
  async remove(item: any): Promise<void> {
    await untilUndisturbed(async () => {
      const { content, cas } = await this.read(Array.isArray)
      const index = content.indexOf(item)
      if (index < 0) throw new PathNotFoundError('the set does not contain the item')
      await this.mutate(MutateInSpec.remove(element(index)), { cas })
    })
  }

  /** All items. */
  async values(): Promise<any[]> {
    return (await this.read(Array.isArray)).content
  }
}

function isObject(content: unknown): boolean {
  return content !== null && typeof content === 'object' && !Array.isArray(content)
}

function element(index: number): string {
  if (!Number.isInteger(index)) throw new InvalidArgumentError('an item is named by a whole number')
  return `[${index}]`
}

function member(item: string): string {
  if (typeof item !== 'string') throw new InvalidArgumentError('an item is named by a string')
  return quoted(item)
}
