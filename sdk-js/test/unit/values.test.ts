/** Specs, transcoders, expiries and maps: from values to bytes and back. */

import assert from 'node:assert/strict'
import { test } from 'node:test'

import { isNewer, nodeOf, nodesWith, parseClusterMap, replicaCount } from '../../src/cluster-map.js'
import { DecodingFailureError, EncodingFailureError, InvalidArgumentError } from '../../src/errors.js'
import { formBody } from '../../src/http-messages.js'
import { checkCas, wireExpiry } from '../../src/options.js'
import { decodeLookup, decodeMutation, encodeSpecs, LookupInSpec, MutateInSpec } from '../../src/subdocument.js'
import { DefaultTranscoder } from '../../src/transcoders.js'

const MAP = {
  rev: 3,
  revEpoch: 1,
  nodesExt: [
    { services: { kv: 11210, mgmt: 8091, capi: 8092 } },
    { hostname: 'b', services: { kv: 11210 } },
  ],
  vBucketServerMap: { serverList: ['$HOST:11210', 'b:11210'], vBucketMap: [[0, 1], [1, -1], [-1, 0]] },
}
const json = (value: unknown): Buffer => Buffer.from(JSON.stringify(value))

test('lookup specs are operation, flags and path, and attributes go first', () => {
  const specs = [LookupInSpec.get('a.b'), LookupInSpec.exists('x', { xattr: true })]
  const { value, order } = encodeSpecs(specs, 'lookup')
  assert.equal(value.toString('latin1'), '\xc6\x04\0\x01x\xc5\0\0\x03a.b')
  assert.deepEqual(order, [1, 0])
})

test('mutation specs carry JSON', () => {
  const spec = MutateInSpec.arrayAppend('t', [1, 'é'], { createPath: true, multi: true })
  const { value } = encodeSpecs([spec], 'mutation')
  assert.equal(value.toString('hex'), 'cb01000100000006' + Buffer.from('t1,"é"').toString('hex'))
})

test('macros are expanded in attributes only', () => {
  assert.equal(MutateInSpec.upsert('t', '${Mutation.CAS}', { xattr: true }).flags, 0x14)
  assert.equal(MutateInSpec.upsert('t', '${Mutation.CAS}').flags, 0)
})

test('specs of the wrong kind or number are refused', () => {
  const many = Array.from({ length: 17 }, () => LookupInSpec.get('a'))
  for (const specs of [[], many, [MutateInSpec.remove('a')], [LookupInSpec.get('a'.repeat(1025))], ['a']]) {
    assert.throws(() => encodeSpecs(specs as LookupInSpec[], 'lookup'), InvalidArgumentError)
  }
  assert.throws(() => MutateInSpec.increment('a', 0), InvalidArgumentError)
  assert.throws(() => MutateInSpec.arrayAppend('a', [], { multi: true }), InvalidArgumentError)
  assert.throws(() => LookupInSpec.get(1 as unknown as string), InvalidArgumentError)
})

test('sub-document answers that are cut off are refused', () => {
  const lookup = Buffer.from('0000000000013100c000000000', 'hex')
  assert.deepEqual(decodeLookup(lookup, 2).map(({ status }) => status), [0, 0xc0])
  for (let end = 0; end < lookup.length; end++) {
    assert.throws(() => decodeLookup(lookup.subarray(0, end), 2), DecodingFailureError)
  }
  const mutation = Buffer.from('010000000000023432', 'hex')
  assert.equal(decodeMutation(mutation, 2)[0]!.content.toString(), '42')
  for (let end = 1; end < mutation.length; end++) {
    assert.throws(() => decodeMutation(mutation.subarray(0, end), 2), DecodingFailureError)
  }
  assert.throws(() => decodeMutation(mutation, 1), DecodingFailureError)
})

test('values are JSON, text is text, and Buffers are bytes', () => {
  const transcoder = new DefaultTranscoder()
  assert.deepEqual(transcoder.encode({ a: [1, 'é'] }), [Buffer.from('{"a":[1,"é"]}'), 0x02000000])
  assert.deepEqual(transcoder.encode(Buffer.from([255])), [Buffer.from([255]), 0x03000002])
  assert.deepEqual(transcoder.encode('é'), [Buffer.from('é'), 0x04000004])
  assert.equal(transcoder.decode(Buffer.from('text'), 0x04000000), 'text')
  assert.equal(transcoder.decode(Buffer.from('1'), 0), 1)
  for (const value of [undefined, () => 1, 1n]) assert.throws(() => transcoder.encode(value), EncodingFailureError)
  assert.throws(() => transcoder.decode(Buffer.from('{'), 0x02000000), DecodingFailureError)
  assert.throws(() => transcoder.decode(Buffer.from('1'), 0x7f000000), DecodingFailureError)
})

test('expiries beyond thirty days are sent as a time', () => {
  const day = 86_400
  assert.deepEqual([wireExpiry(), wireExpiry(0), wireExpiry(30 * day)], [0, 0, 30 * day])
  assert.equal(wireExpiry(31 * day, 1_000_999), 31 * day + 1000)
  for (const expiry of [-1, 0.5, NaN, 2 ** 33, '60' as unknown as number]) {
    assert.throws(() => wireExpiry(expiry), InvalidArgumentError)
  }
})

test('a cas is an unsigned 64-bit bigint', () => {
  assert.equal(checkCas(undefined), 0n)
  for (const cas of [-1n, 1n << 64n, 5 as unknown as bigint]) assert.throws(() => checkCas(cas), InvalidArgumentError)
})

test('the map leads from vBuckets to nodes and replicas', () => {
  const map = parseClusterMap(json(MAP), 'a')
  assert.deepEqual(nodeOf(map, 0), { host: 'a', port: 11210 })
  assert.deepEqual(nodeOf(map, 0, 1), { host: 'b', port: 11210 })
  assert.equal(nodeOf(map, 2), undefined)
  assert.equal(nodeOf(map, 0, 2), undefined)
  assert.equal(replicaCount(map), 1)
  assert.deepEqual(nodesWith(map, 'capi'), [{ host: 'a', port: 8092 }])
  assert.deepEqual(nodesWith(map, 'n1ql'), [])
})

test('epochs count before revisions', () => {
  const older = parseClusterMap(json({ ...MAP, rev: 9, revEpoch: 0 }), 'a')
  const newer = parseClusterMap(json(MAP), 'a')
  assert.deepEqual([isNewer(newer, older), isNewer(older, newer), isNewer(older, undefined)], [true, false, true])
})

test('maps that contradict themselves are refused', () => {
  const servers = MAP.vBucketServerMap
  const broken = [
    {},
    [],
    null,
    { ...MAP, nodesExt: 1 },
    { ...MAP, rev: 'x' },
    { ...MAP, vBucketServerMap: { ...servers, vBucketMap: [[2]] } },
    { ...MAP, vBucketServerMap: { ...servers, vBucketMap: [[]] } },
    { ...MAP, vBucketServerMap: { ...servers, vBucketMap: [['0']] } },
    { ...MAP, vBucketServerMap: { ...servers, serverList: ['b'] } },
  ]
  for (const map of broken) assert.throws(() => parseClusterMap(json(map), 'a'), DecodingFailureError)
  assert.throws(() => parseClusterMap(Buffer.from('{'), 'a'), DecodingFailureError)
})

test('forms leave out what is not set', () => {
  assert.equal(formBody({ name: 'a b', flush: true, ttl: undefined }), 'name=a+b&flush=1')
})
