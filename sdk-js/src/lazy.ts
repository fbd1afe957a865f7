/** Lazy loading of optional parts, so that programs that do not use them neither load nor bundle them. */

import { withCallback } from './callbacks.js'

/**
 * Returns a proxy for an object that consists of asynchronous methods. The first call creates the object.
 *
 * It is not an instance of the object's class, and has only methods.
 */
export function lazy<T extends object>(load: () => Promise<T>): T {
  let loading: Promise<any> | undefined
  const known: Record<string, (...args: unknown[]) => Promise<unknown>> = {}
  return new Proxy({} as T, {
    // Awaiting a manager by mistake must not treat it as a promise.
    get: (_, name) =>
      typeof name === 'symbol' || name === 'then'
        ? undefined
        : (known[name] ??= withCallback(async (...args) => (await (loading ??= load()))[name](...args))),
  })
}
