/** Keys and connection strings: where documents and nodes are. */

import assert from 'node:assert/strict'
import { test } from 'node:test'

import { addressText, parseConnectionString } from '../../src/connection-string.js'
import { InvalidArgumentError } from '../../src/errors.js'
import { checkKey, crc32, leb128, vbucketOf } from '../../src/keys.js'

// As official clients route them with 1,024 vBuckets.
const ROUTES = { k1: 526, k2: 775, g1: 699, raw: 691, kd: 271, cnt: 454 }

test('the checksum is the published one', () => {
  assert.equal(crc32(Buffer.from('123456789')), 0xcbf43926)
})

test('keys go where official clients send them', () => {
  for (const [key, vbid] of Object.entries(ROUTES)) {
    assert.equal(vbucketOf(Buffer.from(key), 1024), vbid)
    assert.equal(vbucketOf(Buffer.from(key), 128), vbid % 128)
  }
})

test('leb128 takes seven bits a byte', () => {
  const encoded = [0, 8, 127, 128, 0x555, 0xffffffff].map((number) => leb128(number).toString('hex'))
  assert.deepEqual(encoded, ['00', '08', '7f', '8001', 'd50a', 'ffffffff0f'])
})

test('keys are limited in UTF-8 bytes', () => {
  assert.equal(checkKey('é'.repeat(125), true).length, 250)
  assert.throws(() => checkKey('', true), InvalidArgumentError)
  assert.throws(() => checkKey('é'.repeat(126), true), InvalidArgumentError)
  assert.throws(() => checkKey('k'.repeat(247), false), InvalidArgumentError)
  assert.throws(() => checkKey(7 as unknown as string, true), InvalidArgumentError)
})

test('hosts have the default port unless they name one', () => {
  const { seeds, bucket } = parseConnectionString('couchbase://a,b:21010,[::1]:7/travel')
  assert.deepEqual(seeds, [{ host: 'a', port: 11210 }, { host: 'b', port: 21010 }, { host: '::1', port: 7 }])
  assert.equal(bucket, 'travel')
  assert.deepEqual(seeds.map(addressText), ['a:11210', 'b:21010', '[::1]:7'])
})

test('what cannot be connected to is refused', () => {
  const hosts = ['', 'a,,b', 'a:0', 'a:65536', 'a:b', 'a b', 'a?network=external'].map((host) => `couchbase://${host}`)
  for (const text of ['', 'localhost', 'http://a:8091', ...hosts]) {
    assert.throws(() => parseConnectionString(text), InvalidArgumentError, text)
  }
})
