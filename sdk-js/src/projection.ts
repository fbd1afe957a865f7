/** Assembles parts of documents at their paths. */

import { PathInvalidError } from './errors.js'

type Step = string | number

/** The name of a member, plain or in back-ticks, or the index of an element. */
const STEP = /\.?(?:`((?:[^`]|``)*)`|([^.[\]`]+))|\[(-?\d+)\]/y

/**
 * Parses a path into its members and elements.
 *
 * @throws PathInvalidError if it is malformed.
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

/** Quotes the name of a member for a path. */
export function quoted(name: string): string {
  return `\`${name.replaceAll('`', '``')}\``
}

/** Inserts a value at a path in `root`, and creates missing containers. Returns the new root. */
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

/** Returns the value at a path, or undefined. */
export function valueAt(root: any, path: string): unknown {
  let value = root
  for (const step of parsePath(path)) {
    if (value === null || typeof value !== 'object') return undefined
    const name = typeof step === 'number' && step < 0 ? value.length + step : step
    value = Object.hasOwn(value, name) ? value[name] : undefined
  }
  return value
}

/** Sets an own property of the object, even if its name is `__proto__`. */
function define(parent: object, step: Step, value: unknown): void {
  Object.defineProperty(parent, step, { value, writable: true, enumerable: true, configurable: true })
}
