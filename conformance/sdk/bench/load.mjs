// Measures a node through a JavaScript SDK, and prints the results as one line of JSON.
//
//     node load.mjs PACKAGE URL USER PASSWORD BUCKET SECONDS
//
// PACKAGE is the file or folder of the SDK. Each cell is an operation with a number of concurrent requests; there are
// 10,000 documents of about 200 bytes of JSON.

import { createRequire } from 'node:module'
import { pathToFileURL } from 'node:url'

const [target, url, user, password, bucketName, seconds] = process.argv.slice(2)
const CONCURRENCIES = [1, 64, 1024]
const KEY_COUNT = 10_000
/** Latencies of a cell. They are numbers outside of the heap, so that a fast client does not seem to need more memory. */
const samples = new Float64Array(1 << 20)
const DOCUMENT = { name: 'Ada Lovelace', tags: ['a', 'b', 'c'], address: { city: 'London', zip: '12345' }, text: 'x'.repeat(100) }

const before = process.memoryUsage.rss()
const begun = performance.now()
const module = await import(pathToFileURL(createRequire(import.meta.url).resolve(target)).href)
const importMs = performance.now() - begun
const { connect } = module.connect ? module : module.default
const cluster = await connect(url, { username: user, password })
const collection = cluster.bucket(bucketName).defaultCollection()
const key = (number) => `bench-${number % KEY_COUNT}`
const operations = {
  upsert: (number) => collection.upsert(key(number), DOCUMENT, { timeout: 20_000 }),
  get: (number) => collection.get(key(number), { timeout: 20_000 }),
}

for (let number = 0; number < KEY_COUNT; number += 500) {
  await Promise.all(Array.from({ length: 500 }, (_, offset) => operations.upsert(number + offset)))
}

async function measure(operation, concurrency, ms) {
  let count = 0
  let next = 0
  const end = performance.now() + ms
  const start = performance.now()
  const used = process.cpuUsage()
  const work = async () => {
    // At least once, so that each cell has results even on a slow machine.
    let now = performance.now()
    do {
      await operation(next++)
      const done = performance.now()
      samples[count++ % samples.length] = done - now
      now = done
    } while (now < end)
  }
  await Promise.all(Array.from({ length: concurrency }, work))
  const elapsed = performance.now() - start
  const { user, system } = process.cpuUsage(used)
  const latencies = samples.subarray(0, count).sort()
  const at = (share) => latencies[Math.floor(latencies.length * share)] * 1000
  return { perSecond: (count / elapsed) * 1000, p50Us: at(0.5), p99Us: at(0.99), cpuUs: (user + system) / count }
}

const cells = {}
for (const concurrency of CONCURRENCIES) {
  for (const [name, operation] of Object.entries(operations)) {
    await measure(operation, concurrency, 300)
    cells[`${name} ${concurrency}`] = await measure(operation, concurrency, Number(seconds) * 1000)
  }
}
const memoryBytes = process.memoryUsage.rss() - before
await cluster.close()
console.log(JSON.stringify({ importMs, memoryBytes, cells }))
process.exit(0)
