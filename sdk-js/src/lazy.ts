/** Parts that are loaded when they are used, so that programs that do not use them neither load nor bundle them. */

import { withCallback } from './callbacks.js'

/**
 * Stands for an object all of whose members are methods that give promises; the object is made with the first call.
 *
 * It is no instance of the object's class, and has no members but methods.
 */
export function lazy<T extends object>(load: () => Promise<T>): T {
  let loading: Promise<any> | undefined
  const known: Record<string, (...args: unknown[]) => Promise<unknown>> = {}
  return new Proxy({} as T, {
    // A manager that is awaited by mistake is no promise.
    get: (_, name) =>
      typeof name === 'symbol' || name === 'then'
        ? undefined
        : (known[name] ??= withCallback(async (...args) => (await (loading ??= load()))[name](...args))),
  })
}
