// Tests sdk-js's use of the addon, and the calls that the addon refuses. Run with the addon's file and a
// folder.

const assert = require('node:assert/strict')
const { constants } = require('node:os')

const [, , file, folder] = process.argv
const module_ = { exports: {} }
process.dlopen(module_, file, constants.dlopen.RTLD_NOW)
const { Database } = module_.exports

assert.throws(() => new Database(folder, { create: false }), /there is no database/)
assert.throws(() => new Database(folder, { sync: 'sometimes' }), /INVALID_ARGUMENT: .*sync is/)
assert.throws(() => new Database(folder, { vbuckets: 70_000 }), /INVALID_ARGUMENT: .*1024/)
const database = new Database(folder, { sync: 'always' })
assert.throws(() => new Database(folder, {}), new RegExp(`IN_USE: .*process ${process.pid}`))

const session = database.session(() => {})
const noop = Buffer.alloc(24)
noop.writeUInt16BE(0x800a)
assert.equal(session.receive(noop.subarray(0, 11)).length, 0)
const response = session.receive(noop.subarray(11))
assert.deepEqual([response.length, response.readUInt16BE()], [24, 0x810a])
assert.equal(session.poll().length, 0)
assert.ok(session.ended == null)
session.receive(Buffer.from('GET / HTTP/1.1\r\nHost: localhost\r\n\r\n'))
assert.match(session.ended, /the session has ended/)

const scopes = '/pools/default/buckets/default/scopes'
assert.equal(database.manage('POST', scopes, Buffer.from('name=shop')).status, 200)
assert.equal(database.manage('POST', scopes, Buffer.from('name=shop')).status, 400)
assert.match(database.manage('GET', scopes, Buffer.alloc(0)).body, /"shop"/)
assert.equal(database.manage('GET', '/pools/default', Buffer.alloc(0)).status, 404)

// The promise must be settled before the end of this script: nothing else waits for it.
const views = (async () => {
  const database = new Database(':memory:', {})
  const ask = (method, path, body = '') => database.manageLater(method, path, Buffer.from(body))
  const design = { views: { v: { map: 'function (doc, meta) { emit([1, 2].map(function (n) { return n })); }' } } }
  assert.equal((await ask('PUT', '/default/_design/d', JSON.stringify(design))).status, 201)
  assert.deepEqual(JSON.parse((await ask('GET', '/default/_design/d/_view/v')).body), { total_rows: 0, rows: [] })
  assert.equal((await ask('GET', '/default/_design/d/_view/w')).status, 404)
  const shop = { query_context: 'default:`default`._default' }
  const query = async (statement, members) => {
    const { status, body } = await ask('POST', '/query/service', JSON.stringify({ ...shop, ...members, statement }))
    return { http: status, ...JSON.parse(body) }
  }
  const insert = await query('INSERT INTO `_default` (KEY, VALUE) VALUES ("k", {"n": $n}) RETURNING RAW META().id', { $n: 3 })
  assert.deepEqual([insert.http, insert.results, insert.metrics.mutationCount], [200, ['k'], 1])
  const failed = await query('SELECT FROM')
  assert.deepEqual([failed.http, failed.errors[0].code], [400, 3000])
  database.close()
  assert.throws(() => database.manageLater('GET', '/default/_design/d', Buffer.alloc(0)), /CLOSED/)
})()

// Nobody listens at the address: the database works, and sync reports the problem.
const away = { url: 'http://127.0.0.1:1/default', user: 'u', password: 'p', collections: ['shop.orders'] }
assert.throws(() => database.sync('{}'), /INVALID_ARGUMENT/)
assert.throws(() => database.sync(JSON.stringify({ ...away, speed: 1 })), /INVALID_ARGUMENT: .*speed/)
const sync = database.sync(JSON.stringify(away))
assert.throws(() => database.sync(JSON.stringify(away)), /sync runs already/)
assert.match(JSON.parse(sync.status()).state, /^(offline|connecting)$/)
sync.retry()
// The wait ends by its timeout or by the stop, whichever comes first.
sync.waitInStep(20).then(
  (isInStep) => assert.equal(isInStep, false),
  (error) => assert.match(error.message, /sync has stopped/),
)
sync.nextEvent(20).then((event) => assert.ok(event === '' || JSON.parse(event).event === 'state', event))
sync.stop()
sync.stop()
assert.throws(() => sync.status(), /sync has stopped/)
assert.throws(() => sync.nextEvent(20), /sync has stopped/)

// Close ends every session, so that the folder can be opened again at once, although the garbage collector
// still has objects.
const open = database.session(() => {})
database.close()
database.close()
assert.throws(() => database.session(() => {}), /CLOSED/)
open.receive(noop)
assert.match(open.ended, /closed/)
open.close()
new Database(folder, {}).close()

const encrypted = `${folder}-encrypted`
const key = Buffer.alloc(32, 7)
assert.throws(() => new Database(folder, { key }), /^Error: NOT_ENCRYPTED: /)
assert.throws(() => new Database(encrypted, { key: Buffer.alloc(31) }), /INVALID_ARGUMENT: .*32 bytes/)
assert.throws(() => new Database(encrypted, { key, passphrase: 'p' }), /INVALID_ARGUMENT: .*not both/)
const locked = new Database(encrypted, { key })
assert.throws(() => locked.rekey(null, null), /INVALID_ARGUMENT: .*missing/)
locked.rekey(null, 'open sesame')
locked.close()
assert.throws(() => new Database(encrypted, {}), /^Error: ENCRYPTED: /)
assert.throws(() => new Database(encrypted, { key }), /^Error: WRONG_KEY: /)
new Database(encrypted, { passphrase: 'open sesame' }).close()
views.then(() => console.log('all well'))
