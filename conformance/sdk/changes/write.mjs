// Repeatedly writes documents with our SDK, each durably, while nodes of the cluster fail.
//
//     node write.mjs PACKAGE URL USER PASSWORD BUCKET MUTATIONS TABLE
//
// Prints the completed share of the writes, in whole per cent, as lines. The file TABLE gets the last number of each document.

import { renameSync, writeFileSync } from 'node:fs'
import { pathToFileURL } from 'node:url'

const [target, url, user, password, bucketName, mutations, table] = process.argv.slice(2)
const { connect, DurabilityLevel } = await import(pathToFileURL(target).href)
const total = Number(mutations)
const KEYS = Math.max(100, Math.floor(total / 20))
const WORKERS = 256
const PATIENCE_MS = 300_000

const cluster = await connect(url, { username: user, password })
await cluster.waitUntilReady(30_000)
const collection = cluster.bucket(bucketName).defaultCollection()
const last = new Map()
let done = 0
let printed = -1

/** Writes until the node has confirmed the write: a write with an unknown outcome is repeated with the same number. */
async function write(key, number) {
  const end = Date.now() + PATIENCE_MS
  for (;;) {
    try {
      await collection.upsert(key, { number }, { durabilityLevel: DurabilityLevel.Majority, timeout: 10_000 })
      return
    } catch (error) {
      if (Date.now() > end) throw error
    }
  }
}

// Each worker has separate keys, so that the order of the writes of a key is known.
async function work(worker) {
  for (let turn = worker; turn < total; turn += WORKERS) {
    const key = `change-${worker}-${Math.floor(turn / WORKERS) % Math.ceil(KEYS / WORKERS)}`
    await write(key, turn)
    last.set(key, turn)
    done++
    const share = Math.floor((done * 100) / total)
    if (share > printed) console.log(String((printed = share)))
  }
}
await Promise.all(Array.from({ length: WORKERS }, (_, worker) => work(worker)))
// Readers look for the file, which must be complete when it appears.
writeFileSync(`${table}.part`, JSON.stringify(Object.fromEntries(last)))
renameSync(`${table}.part`, table)
await cluster.close()
