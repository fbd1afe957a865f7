/** Lists, maps, queues and sets, each stored in one document. */

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

/** Maximum number of attempts of a change when others change the document concurrently. */
const ATTEMPTS_MAX = 16
const CREATES = { storeSemantics: StoreSemantics.Upsert }

/** Base class of the data structures. */
abstract class Structure {
  protected readonly collection: Collection
  protected readonly key: string

  constructor(collection: Collection, key: string) {
    this.collection = collection
    this.key = key
  }

  /** Returns the number of items. */
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

  /** Reads the document, and checks its kind. */
  protected async read(isKind: (content: any) => boolean): Promise<{ content: any; cas: bigint }> {
    const result = await this.collection.get(this.key)
    if (!isKind(result.content)) throw new CouchbaseError(`the document ${this.key} has another structure`)
    return result
  }
}

/** Retries `attempt` until nobody else changes the document concurrently. */
async function untilUndisturbed<T>(attempt: () => Promise<T>): Promise<T> {
  for (let left = ATTEMPTS_MAX; ; left--) {
    try {
      return await attempt()
    } catch (error) {
      if (!left || !(error instanceof CasMismatchError || error instanceof DocumentExistsError)) throw error
    }
  }
}

/** A list, stored as an array. Adding the first item creates the document. */
export class CouchbaseList extends Structure {
  /** Returns all items. */
  async getAll(): Promise<any[]> {
    return (await this.read(Array.isArray)).content
  }

  /** Calls `callback` for each item. */
  async forEach(callback: (value: any, index: number, list: CouchbaseList) => void): Promise<void> {
    ;(await this.getAll()).forEach((value, index) => callback(value, index, this))
  }

  /** Yields all items, as they are at the start. */
  async *[Symbol.asyncIterator](): AsyncGenerator<any> {
    yield* await this.getAll()
  }

  /**
   * Returns an item. Negative indexes count from the end.
   *
   * @throws PathNotFoundError if the list is shorter.
   */
  async getAt(index: number): Promise<any> {
    return this.lookup(LookupInSpec.get(element(index)))
  }

  /** Removes an item. */
  async removeAt(index: number): Promise<void> {
    await this.mutate(MutateInSpec.remove(element(index)))
  }

  /** Returns the index of the first equal item, or -1. */
  async indexOf(value: any): Promise<number> {
    return (await this.getAll()).indexOf(value)
  }

  /** Appends an item. */
  async push(value: any): Promise<void> {
    await this.mutate(MutateInSpec.arrayAppend('', value), CREATES)
  }

  /** Prepends an item. */
  async unshift(value: any): Promise<void> {
    await this.mutate(MutateInSpec.arrayPrepend('', value), CREATES)
  }
}

/** A map, stored as an object. Setting the first item creates the document. */
export class CouchbaseMap extends Structure {
  /** Returns all items. */
  async getAll(): Promise<Record<string, any>> {
    return (await this.read(isObject)).content
  }

  /** Calls `callback` for each item. */
  async forEach(callback: (value: any, key: string, map: CouchbaseMap) => void): Promise<void> {
    for (const [key, value] of Object.entries(await this.getAll())) callback(value, key, this)
  }

  /** Yields all values with their names, as they are at the start. */
  async *[Symbol.asyncIterator](): AsyncGenerator<[any, string]> {
    for (const [key, value] of Object.entries(await this.getAll())) yield [value, key]
  }

  /** Sets an item. */
  async set(item: string, value: any): Promise<void> {
    await this.mutate(MutateInSpec.upsert(member(item), value), CREATES)
  }

  /**
   * Returns an item.
   *
   * @throws PathNotFoundError if it does not exist.
   */
  async get(item: string): Promise<any> {
    return this.lookup(LookupInSpec.get(member(item)))
  }

  /** Removes an item. */
  async remove(item: string): Promise<void> {
    await this.mutate(MutateInSpec.remove(member(item)))
  }

  /** Reports whether an item exists. */
  async exists(item: string): Promise<boolean> {
    return this.lookup(LookupInSpec.exists(member(item)))
  }

  /** Returns the names of all items. */
  async keys(): Promise<string[]> {
    return Object.keys(await this.getAll())
  }

  /** Returns the values of all items. */
  async values(): Promise<any[]> {
    return Object.values(await this.getAll())
  }
}

/** A queue, stored as an array: first in, first out. */
export class CouchbaseQueue extends Structure {
  /** Adds an item. */
  async push(value: any): Promise<void> {
    await this.mutate(MutateInSpec.arrayPrepend('', value), CREATES)
  }

  /**
   * Removes the oldest item, and returns it.
   *
   * @throws PathNotFoundError if the queue is empty.
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

/** A set of strings, numbers, booleans and null, stored as an array. */
export class CouchbaseSet extends Structure {
  /** Adds an item. Returns false if the set contains it already. */
  async add(item: any): Promise<boolean> {
    try {
      await this.mutate(MutateInSpec.arrayAddUnique('', item), CREATES)
      return true
    } catch (error) {
      if (error instanceof PathExistsError) return false
      throw error
    }
  }

  /** Reports whether the set contains an item. */
  async contains(item: any): Promise<boolean> {
    return (await this.values()).includes(item)
  }

  /**
   * Removes an item.
   *
   * @throws PathNotFoundError if the set does not contain it.
   */
  async remove(item: any): Promise<void> {
    await untilUndisturbed(async () => {
      const { content, cas } = await this.read(Array.isArray)
      const index = content.indexOf(item)
      if (index < 0) throw new PathNotFoundError('the set does not contain the item')
      await this.mutate(MutateInSpec.remove(element(index)), { cas })
    })
  }

  /** Returns all items. */
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
