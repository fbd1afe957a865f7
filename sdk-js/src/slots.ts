/** Values by numbers that this class gives out, for short-lived values. */

const SLOTS_MIN = 16
const SLOTS_KEPT_MAX = 4096

/**
 * Values by the numbers that they get when they are added: 32 bits, in ascending order, with gaps.
 *
 * A `Map` would keep values alive that were deleted. When it makes room, its former table refers to the values and to the
 * next table. Once the collector has moved such a table to the old generation, all further ones follow.
 */
export class Slots<T> {
  #values: (T | undefined)[] = empty(SLOTS_MIN)
  #numbers = new Uint32Array(SLOTS_MIN)
  #last = 0
  #size = 0

  /** Number of values. */
  get size(): number {
    return this.#size
  }

  /** Adds a value and returns its number. */
  add(value: T & object): number {
    // With half of the slots free, the next one is free or near.
    if (this.#size * 2 >= this.#values.length) this.#resize(this.#values.length * 2)
    do this.#last = (this.#last + 1) >>> 0
    while (this.#values[this.#slot(this.#last)] !== undefined)
    this.#put(this.#last, value)
    this.#size++
    return this.#last
  }

  /** Returns the value with a number, if there is one. */
  get(number: number): T | undefined {
    const slot = this.#slot(number)
    return this.#numbers[slot] === number ? this.#values[slot] : undefined
  }

  /** Removes the value with a number, if there is one. */
  delete(number: number): void {
    if (this.get(number) === undefined) return
    this.#values[this.#slot(number)] = undefined
    this.#size--
    if (!this.#size && this.#values.length > SLOTS_KEPT_MAX) this.#resize(SLOTS_MIN)
  }

  /** Returns all values. */
  values(): T[] {
    return this.#values.filter((value) => value !== undefined)
  }

  #slot(number: number): number {
    return number & (this.#values.length - 1)
  }

  #put(number: number, value: T): void {
    const slot = this.#slot(number)
    this.#values[slot] = value
    this.#numbers[slot] = number
  }

  #resize(length: number): void {
    const [values, numbers] = [this.#values, this.#numbers]
    this.#values = empty(length)
    this.#numbers = new Uint32Array(length)
    values.forEach((value, slot) => {
      if (value !== undefined) this.#put(numbers[slot]!, value)
    })
  }
}

function empty(length: number): undefined[] {
  return Array.from({ length }, () => undefined)
}
