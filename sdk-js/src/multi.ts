/** Operations on several documents, whose requests are sent together. */

import { CouchbaseError, InvalidArgumentError } from './errors.js'
import type { MultiDocuments, MultiResult } from './results.js'

/** Maximum number of requests in flight for one call. */
const IN_FLIGHT_MAX = 1024

/** Runs an operation for each key, and collects the results. */
export async function each<R>(keys: Iterable<string>, operation: (key: string) => Promise<R>): Promise<MultiResult<R>> {
  if (typeof keys === 'string' || typeof keys?.[Symbol.iterator] !== 'function') {
    throw new InvalidArgumentError('keys are a list of strings')
  }
  const wanted = [...new Set(keys)]
  const outcomes = new Map<string, R | CouchbaseError>()
  const rest = wanted.values()
  const work = async (): Promise<void> => {
    for (const key of rest) {
      try {
        outcomes.set(key, await operation(key))
      } catch (error) {
        if (!(error instanceof CouchbaseError)) throw error
        outcomes.set(key, error)
      }
    }
  }
  await Promise.all(Array.from({ length: Math.min(wanted.length, IN_FLIGHT_MAX) }, work))
  const [results, errors] = [new Map<string, R>(), new Map<string, CouchbaseError>()]
  for (const key of wanted) {
    const outcome = outcomes.get(key)!
    if (outcome instanceof CouchbaseError) errors.set(key, outcome)
    else results.set(key, outcome)
  }
  return { results, errors, allOk: !errors.size }
}

/** Runs an operation for each document, and collects the results. */
export async function eachDocument<T, R>(
  documents: MultiDocuments<T>,
  operation: (key: string, value: T) => Promise<R>,
): Promise<MultiResult<R>> {
  if (typeof documents !== 'object' || documents === null || Array.isArray(documents)) {
    throw new InvalidArgumentError('documents are an object or a Map, by key')
  }
  const entries = new Map(documents instanceof Map ? documents : Object.entries(documents))
  return each(entries.keys(), (key) => operation(key, entries.get(key)!))
}
