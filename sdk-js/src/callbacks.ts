/**
 * Callbacks, for programs that were written before promises: `collection.get(key, (error, result) => …)`.
 *
 * They are supported at run time, as in the official SDK; the types contain promises only.
 */

type Method = (...args: any[]) => any

/** Wraps a method that returns a promise, so that it accepts a callback as its last argument. */
export function withCallback<M extends Method>(method: M): M {
  return function (this: unknown, ...args: unknown[]): unknown {
    const callback = args.at(-1)
    if (typeof callback !== 'function') return method.apply(this, args)
    const promise: PromiseLike<unknown> = method.apply(this, args.slice(0, -1))
    promise.then(
      (result) => callback(null, result),
      (error) => callback(error, null),
    )
    return promise
  } as M
}

/** Lets the methods of classes accept a callback as their last argument, except the named methods. */
export function takeCallbacks(kinds: { prototype: object }[], except: readonly string[] = []): void {
  for (const { prototype } of kinds) {
    for (const [name, { value: method }] of Object.entries(Object.getOwnPropertyDescriptors(prototype))) {
      if (typeof method !== 'function' || name === 'constructor' || except.includes(name)) continue
      Object.defineProperty(prototype, name, { value: withCallback(method), writable: true, configurable: true })
    }
  }
}
