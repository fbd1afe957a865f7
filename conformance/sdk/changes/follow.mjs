// Follows the changes of a collection with our SDK; repeatedly leaves the feed and continues from its token.
//
//     node follow.mjs PACKAGE URL USER PASSWORD BUCKET DISCONNECTS TABLE
//
// Prints `ready` when it has begun, and ends when it has seen the last number of each document in the file TABLE, which the
// writer creates at its end. Prints its observations as JSON. Fails if a change is missing, or a vBucket's changes are out of
// order.

import { existsSync, readFileSync } from 'node:fs'
import { pathToFileURL } from 'node:url'

const [target, url, user, password, bucketName, disconnects, table] = process.argv.slice(2)
const { connect } = await import(pathToFileURL(target).href)
const PATIENCE_MS = 120_000
const PASS_MS = 1000

const cluster = await connect(url, { username: user, password })
await cluster.waitUntilReady(30_000)
const collection = cluster.bucket(bucketName).defaultCollection()
const seen = new Map()
let token = 0
let changes = 0
let passes = 0
let backwards = 0
let finished
let end = Infinity

function missing() {
  if (finished === undefined) return undefined
  const wrong = Object.entries(finished).filter(([key, number]) => seen.get(key) !== number)
  return wrong.map(([key, number]) => `${key}: ${number}, seen ${seen.get(key)}`)
}

async function pass() {
  const stop = new AbortController()
  const feed = collection.changes({ since: token, signal: stop.signal })
  // The last pass continues to the end; the others stop after a moment.
  const timer = passes < Number(disconnects) ? setTimeout(() => stop.abort(), PASS_MS) : undefined
  const watch = setInterval(() => {
    if (finished === undefined && existsSync(table)) {
      finished = JSON.parse(readFileSync(table, 'utf8'))
      end = Date.now() + PATIENCE_MS
    }
    if (missing()?.length === 0 || Date.now() > end) stop.abort()
  }, 250)
  const sequence = new Map()
  try {
    for await (const { id, content, partitionId, sequenceNumber } of feed) {
      if (sequenceNumber <= (sequence.get(partitionId) ?? 0)) backwards++
      sequence.set(partitionId, sequenceNumber)
      seen.set(id, content?.number)
      changes++
    }
  } finally {
    clearTimeout(timer)
    clearInterval(watch)
  }
  token = feed.token ?? token
  passes++
}

console.log('ready')
for (;;) {
  await pass()
  if (missing()?.length === 0) break
  if (Date.now() > end) throw new Error(`${missing().length} changes are missing: ${missing().slice(0, 5).join('; ')}`)
}
await cluster.close()
console.log(JSON.stringify({ documents: seen.size, changes, passes, backwards }))
