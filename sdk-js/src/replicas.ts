/** Reads of all copies of a document: the active one, and the replicas, which may lag behind. */

import { replicaCount } from './cluster-map.js'
import { now, type OperationOptions } from './deadline.js'
import type { Documents } from './documents.js'
import {
  type CouchbaseError,
  DocumentNotFoundError,
  DocumentUnretrievableError,
  InvalidArgumentError,
} from './errors.js'
import { vbucketOf } from './keys.js'
import { ReadPreference } from './options.js'

/** Selects the copies in the preferred server group, or all copies if the group has none. */
export const GROUP_OR_ALL = 'selected_server_group_or_all'

interface Options extends OperationOptions {
  readPreference?: ReadPreference | typeof GROUP_OR_ALL
}

type Read<R> = (copy: number, options: OperationOptions) => Promise<R>
type Copy<R> = R & { isReplica: boolean }

/** Returns the copy that arrives first, and cancels the other requests. */
export async function readAny<R>(documents: Documents, key: string, options: Options, read: Read<R>): Promise<Copy<R>> {
  const copies = readAll(documents, key, options, read)
  const { value } = await copies.next()
  await copies.return()
  return value as Copy<R>
}

/**
 * Yields the available copies as they arrive.
 *
 * @throws DocumentUnretrievableError if there is none. Its `cause` is the error of the active copy, if that was read.
 */
export async function* readAll<R>(
  documents: Documents,
  key: string,
  options: Options,
  read: Read<R>,
): AsyncGenerator<Copy<R>, void, void> {
  const { readPreference, ...operation } = options
  const timeout = options.timeout ?? documents.timeouts.kvTimeout
  const end = now() + timeout
  await documents.client.bootstrap(operation, timeout)
  const controller = new AbortController()
  const abort = (): void => controller.abort(options.signal?.reason)
  if (options.signal?.aborted) abort()
  options.signal?.addEventListener('abort', abort)
  const limits = { ...operation, timeout: Math.max(1, end - now()), signal: controller.signal }
  const failures: CouchbaseError[] = []
  const pending = new Map<number, Promise<{ copy: number; found?: R; error?: CouchbaseError }>>()
  for (const copy of copiesOf(documents, key, readPreference)) {
    const reading = read(copy, limits).then(
      (found) => ({ copy, found }),
      (error) => ({ copy, error }),
    )
    pending.set(copy, reading)
  }
  let count = 0
  try {
    while (pending.size) {
      const { copy, found, error } = await Promise.race(pending.values())
      pending.delete(copy)
      if (error) {
        if (error instanceof InvalidArgumentError || options.signal?.aborted) throw error
        failures.push(error)
        continue
      }
      count++
      yield { ...found!, isReplica: copy !== 0 }
    }
  } finally {
    options.signal?.removeEventListener('abort', abort)
    controller.abort()
  }
  if (count) return
  const cause = failures.find((error) => error instanceof DocumentNotFoundError) ?? failures[0]
  throw new DocumentUnretrievableError(undefined, cause?.context ?? { key }, cause)
}

/** Returns the numbers of the copies to read. */
function copiesOf({ client, scope }: Documents, key: string, preference?: Options['readPreference']): number[] {
  const map = client.map!
  const copies = Array.from({ length: replicaCount(map) + 1 }, (_, copy) => copy)
  if (preference !== ReadPreference.SelectedServerGroup && preference !== GROUP_OR_ALL) return copies
  const group = scope.bucket.serverGroup
  const isNeeded = preference !== GROUP_OR_ALL
  if (group === undefined && isNeeded) throw new InvalidArgumentError('no preferredServerGroup was given to connect')
  const row = map.vbuckets[vbucketOf(Buffer.from(key), map.vbuckets.length)]!
  const near = copies.filter((copy) => group !== undefined && map.groups[row[copy]!] === group)
  return near.length || isNeeded ? near : copies
}
