/** Parts of documents put together again at their paths. */

import { PathInvalidError } from './errors.js'

type Step = string | number

/** A member's name, plain or between back-ticks, or an element's number. */
const STEP = /\.?(?:`((?:[^`]|``)*)`|([^.[\]`]+))|\[(-?\d+)\]/y

/**
 * Members and elements that a path goes through.
 *
 * @throws PathInvalidError it cannot be read.
 */
export function parsePath(path: string): Step[] {
  const steps: Step[] = []
  STEP.lastIndex = 0
  while (STEP.lastIndex < path.length) {
    const match = STEP.exec(path)
    if (!match) throw new PathInvalidError(undefined, { detail: `path ${JSON.stringify(path)}` })
    const [, quoted, plain, element] = match
    steps.push(element === undefined ? (plain ?? quoted!.replaceAll('``', '`')) : Number(element))
  }
  return steps
}

/** A member's name as a path may contain it. */
export function quoted(name: string): string {
  return `\`${name.replaceAll('`', '``')}\``
}

/** Puts a value where the path says, into `root` or what is made where that is missing; gives the new root. */
export function insertAt(root: any, path: string, value: unknown): any {
  const steps = parsePath(path)
  const holder: any[] = [root]
  let parent: any = holder
  let step: Step = 0
  for (const next of steps) {
    const found: unknown = Object.hasOwn(parent, step) ? parent[step] : undefined
    const kept: any = found !== null && typeof found === 'object' ? found : typeof next === 'number' ? [] : {}
    define(parent, step, kept)
    parent = kept
    step = typeof next === 'number' && next < 0 ? Math.max(0, kept.length + (next === -1 ? 0 : next)) : next
  }
  define(parent, step, value)
  return holder[0]
}

/** Value at a path, or undefined. */
export function valueAt(root: any, path: string): unknown {
  let value = root
  for (const step of parsePath(path)) {
    if (value === null || typeof value !== 'object') return undefined
    const name = typeof step === 'number' && step < 0 ? value.length + step : step
    value = Object.hasOwn(value, name) ? value[name] : undefined
  }
  return value
}

/** Sets a member of the object's own, also one that is named `__proto__`. */
function define(parent: object, step: Step, value: unknown): void {
  Object.defineProperty(parent, step, { value, writable: true, enumerable: true, configurable: true })
}
