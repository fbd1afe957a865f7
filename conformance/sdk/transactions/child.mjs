// Moves money between documents in transactions, until it is killed: like child.py.
//
//     node child.mjs PACKAGE URL USER PASSWORD BUCKET RUN ACCOUNTS SEED SECONDS
//
// PACKAGE is the file of the official package or of this project's. KILL_AT needs the latter.

import { createRequire } from 'node:module'
import { pathToFileURL } from 'node:url'

const [path, url, username, password, bucket, run, accounts, seed, seconds] = process.argv.slice(2)
const isOwn = path.endsWith('/index.js') && path.includes('/dist/src/')
const sdk = isOwn ? await import(pathToFileURL(path)) : createRequire(import.meta.url)(path)

let state = Number(seed) >>> 0
/** Returns a random number below `end`. */
function dice(end) {
  state = (Math.imul(state, 1664525) + 1013904223) >>> 0
  return Math.floor((state / 2 ** 32) * end)
}

if (process.env.KILL_AT) {
  const { KvClient } = await import(new URL('kv-client.js', pathToFileURL(path)))
  const real = KvClient.prototype.execute
  const end = () => process.kill(process.pid, 'SIGKILL')
  let count = 0
  let isReady = false
  globalThis.begin = () => (isReady = true)
  KvClient.prototype.execute = async function (operation, ...rest) {
    if (!isReady || operation.reads) return real.call(this, operation, ...rest)
    const ends = ++count === Number(process.env.KILL_AT)
    if (ends && process.env.KILL_WHEN === 'before') end()
    try {
      return await real.call(this, operation, ...rest)
    } finally {
      // Also after a write that the node refused.
      if (ends) end()
    }
  }
}

const cluster = await sdk.connect(url, { username, password, transactions: { timeout: Number(seconds) * 1000 } })
const collection = cluster.bucket(bucket).defaultCollection()
// A busy machine takes long to connect.
await collection.get(`${run}-account-0`, { timeout: 60_000 })
globalThis.begin?.()
const receipts = []
for (let number = 0; ; number++) {
  const one = dice(Number(accounts))
  const other = (one + 1 + dice(Number(accounts) - 1)) % Number(accounts)
  const receipt = `${run}-receipt-${process.pid}-${number}`
  const gone = receipts.length > 1 ? receipts[0] : undefined
  process.stdout.write(`${receipt}\n`)
  try {
    await cluster.transactions().run(async (ctx) => {
      const source = await ctx.get(collection, `${run}-account-${one}`)
      const target = await ctx.get(collection, `${run}-account-${other}`)
      await ctx.replace(source, { sum: source.content.sum - 1 })
      await ctx.replace(target, { sum: target.content.sum + 1 })
      await ctx.insert(collection, receipt, { of: run })
      if (gone) await ctx.remove(await ctx.get(collection, gone))
    })
  } catch (error) {
    process.stdout.write(`# ${error.name}: ${error.message}`.slice(0, 200).replaceAll('\n', ' ') + '\n')
    continue
  }
  receipts.push(receipt)
  if (gone) receipts.shift()
}
