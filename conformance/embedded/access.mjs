// Reads and writes documents in an embedded database through its npm package; prints one line of JSON.
//
//     node access.mjs ENGINE PACKAGE FOLDER SECONDS
//
// ENGINE is `nacre`, `lmdb` or `libsql`. There are 10,000 documents of about 200 bytes of JSON; a read includes parsing, a
// write includes serialization. Writes are in memory or in the operating system; durable ones are on disk when the call or
// its promise completes.

import { createRequire } from 'node:module'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'

const [engine, target, folder, seconds] = process.argv.slice(2)
const KEY_COUNT = 10_000
const PORTION = 64
const DOCUMENT = { name: 'Ada Lovelace', tags: ['a', 'b', 'c'], address: { city: 'London', zip: '12345' }, text: 'x'.repeat(100) }
const key = (number) => `bench-${number % KEY_COUNT}`
const require = createRequire(import.meta.url)

/** Returns the mean microseconds of an operation; waits for its result if that is a promise. */
async function measure(operation, portion = PORTION) {
  const begun = performance.now()
  let count = 0
  while (performance.now() - begun < seconds * 1000) {
    for (const end = count + portion; count < end; count++) {
      const answer = operation(key(count))
      if (answer instanceof Promise) await answer
    }
  }
  return ((performance.now() - begun) / count) * 1000
}

const engines = {
  async nacre() {
    const { connect } = await import(pathToFileURL(require.resolve(target)).href)
    const open = async (options) => {
      const cluster = await connect(`nacre://${folder}/db${options}`)
      const documents = cluster.bucket('default').defaultCollection()
      return {
        get: async (key) => (await documents.get(key)).content,
        put: (key) => documents.upsert(key, DOCUMENT),
        close: () => cluster.close(),
      }
    }
    return { open: () => open(''), openDurable: () => open('?sync=always') }
  },
  lmdb() {
    const { open } = require(target)
    const opened = (options) => {
      const db = open({ path: join(folder, 'lmdb'), encoding: 'json', ...options })
      return {
        get: (key) => db.get(key),
        put: (key) => db.putSync(key, DOCUMENT),
        close: () => db.close(),
      }
    }
    return { open: () => opened({ noSync: true }), openDurable: () => opened({ overlappingSync: false }) }
  },
  libsql() {
    const Database = require(target)
    const open = () => {
      const db = new Database(join(folder, 'db.sqlite'))
      db.prepare('PRAGMA journal_mode = WAL').all()
      db.exec('PRAGMA synchronous = NORMAL')
      db.exec('CREATE TABLE IF NOT EXISTS d (k TEXT PRIMARY KEY, v TEXT) WITHOUT ROWID')
      const [read, write] = [db.prepare('SELECT v FROM d WHERE k = ?'), db.prepare('INSERT OR REPLACE INTO d VALUES (?, ?)')]
      return {
        get: (key) => JSON.parse(read.get(key).v),
        put: (key) => void write.run(key, JSON.stringify(DOCUMENT)),
        close: () => db.close(),
      }
    }
    // No durable writes: once a process has read, libsql 0.5.29 syncs none of its writes, whatever `synchronous` says.
    return { open }
  },
}

const { open, openDurable } = await engines[engine]()
const db = await open()
for (let number = 0; number < KEY_COUNT; number++) await db.put(key(number))
const figures = { getParsedUs: await measure(db.get), putUs: await measure(db.put) }
await db.close()
if (openDurable) {
  const durable = await openDurable()
  await durable.put(key(0))
  figures.durableUs = await measure(durable.put, 1)
  await durable.close()
}
const begun = performance.now()
const again = await open()
await again.get(key(0))
figures.openMs = performance.now() - begun
await again.close()
console.log(JSON.stringify(figures))
