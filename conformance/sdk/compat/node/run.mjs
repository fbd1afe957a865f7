// Runs the programs of this folder with one package, and prints the result of each as a line of JSON.
//
//     node run.mjs PACKAGE URL USER PASSWORD BUCKET SCOPE [PART-OF-A-NAME]
//
// PACKAGE is the file or folder that replaces `couchbase` in the programs. A line is {program, value} or {program,
// error}; `../compare.mjs` runs this for the official package and for ours, and compares the lines.

import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'

const [target, url, user, password, bucketName, scopeName, part = ''] = process.argv.slice(2)
const PROGRAMS = new URL('programs/', import.meta.url)
const PROGRAM_MS_MAX = 60_000
const COLLECTIONS = ['people', 'indexed', 'primary', 'scanned']

const entry = pathToFileURL(createRequire(import.meta.url).resolve(target)).href

/** Loads the programs. Only their import is changed. */
async function load() {
  const folder = mkdtempSync(join(tmpdir(), 'nacre-compat-'))
  const programs = []
  try {
    for (const name of readdirSync(PROGRAMS).sort()) {
      const text = readFileSync(new URL(name, PROGRAMS), 'utf8')
      const file = join(folder, name)
      writeFileSync(file, text.replaceAll(`from 'couchbase'`, `from '${entry}'`))
      const module = await import(pathToFileURL(file).href)
      const group = name.replace('.mjs', '')
      for (const [title, program] of Object.entries(module)) programs.push([`${group}: ${title}`, program])
    }
  } finally {
    rmSync(folder, { recursive: true })
  }
  return programs.filter(([name]) => name.includes(part))
}

/** Returns the name of the error that rejects a promise; null if it is not rejected. */
async function fails(promise) {
  try {
    await promise
    return null
  } catch (error) {
    return error.constructor.name
  }
}

async function prepare(cluster) {
  const collections = cluster.bucket(bucketName).collections()
  await collections.createScope(scopeName)
  for (const name of COLLECTIONS) await collections.createCollection(name, scopeName)
  const scope = cluster.bucket(bucketName).scope(scopeName)
  for (const name of COLLECTIONS) await scope.collection(name).upsert('ready', {}, { timeout: 10_000 })
  await cluster.queryIndexes().createPrimaryIndex(bucketName, { scopeName, collectionName: 'people', ignoreIfExists: true })
}

async function outcome(program, context) {
  let timer
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error('the program does not end')), PROGRAM_MS_MAX)
  })
  try {
    return { value: await Promise.race([program(context), late]) }
  } catch (error) {
    return { error: `${error?.constructor?.name}: ${error?.message}` }
  } finally {
    clearTimeout(timer)
  }
}

const plain = (_, value) => (typeof value === 'bigint' ? String(value) : value)

const programs = await load()
const { connect } = await import(entry).then((module) => (module.connect ? module : module.default))
const cluster = await connect(url, { username: user, password })
await prepare(cluster)
const bucket = cluster.bucket(bucketName)
for (const [name, program] of programs) {
  const key = `${scopeName}-${name.replace(/\W+/g, '-')}`
  const scope = bucket.scope(scopeName)
  const context = { cluster, bucket, scope, collection: bucket.defaultCollection(), key, fails, url, user, password }
  console.log(JSON.stringify({ program: name, ...(await outcome(program, context)) }, plain))
}
await bucket.collections().dropScope(scopeName)
await cluster.close()
