/** Frames, byte by byte. */

import assert from 'node:assert/strict'
import { test } from 'node:test'

import { DecodingFailureError } from '../../src/errors.js'
import { BODY_BYTES_MAX, decodeResponse, encodeRequest, FrameReader, PRESERVE_EXPIRY } from '../../src/frame.js'
import { Opcode } from '../../src/opcodes.js'

// Magic 81, opcode 00, no key, 4 bytes of extras, status 0, body 9, opaque 7, CAS 5; flags and "[1,2]".
const ANSWER = Buffer.from('81000000040000000000000900000007000000000000000502000000' + '5b312c325d', 'hex')

function changed(changes: Record<number, number>): Buffer {
  const frame = Buffer.from(ANSWER)
  for (const [at, byte] of Object.entries(changes)) frame[Number(at)] = byte
  return frame
}

test('a get is the documented bytes', () => {
  const encoded = encodeRequest({ opcode: Opcode.Get, key: Buffer.from('\0k1'), vbid: 526 }, 7)
  assert.equal(encoded.toString('hex'), '80000003' + '0000020e' + '00000003' + '00000007' + '00'.repeat(8) + '006b31')
})

test('framing extras make the frame flexible', () => {
  const [key, extras, value] = [Buffer.from('k'), Buffer.alloc(8), Buffer.from('1')]
  const encoded = encodeRequest({ opcode: Opcode.Set, key, extras, value, framing: PRESERVE_EXPIRY }, 1)
  assert.equal(encoded.subarray(0, 5).toString('hex'), '0801010108')
  assert.equal(encoded.subarray(24).toString('hex'), '50' + '00'.repeat(8) + '6b31')
})

test('an answer is taken apart', () => {
  const { status, opaque, cas, extras, value } = decodeResponse(ANSWER)
  assert.deepEqual([status, opaque, cas], [0, 7, 5n])
  assert.deepEqual([extras.toString('hex'), value.toString()], ['02000000', '[1,2]'])
})

test('a flexible answer loses its framing extras', () => {
  const header = changed({ 0: 0x18, 2: 3, 11: 12 })
  const frame = Buffer.concat([header.subarray(0, 24), Buffer.from('020001', 'hex'), header.subarray(24)])
  assert.equal(decodeResponse(frame).value.toString(), '[1,2]')
})

test('answers may arrive in any pieces', () => {
  const stream = Buffer.concat([ANSWER, ANSWER, ANSWER])
  for (const size of [1, 7, 30, 200]) {
    const reader = new FrameReader()
    const found: string[] = []
    for (let at = 0; at < stream.length; at += size) {
      for (const { value } of reader.feed(stream.subarray(at, at + size))) found.push(value.toString())
    }
    assert.deepEqual(found, ['[1,2]', '[1,2]', '[1,2]'])
  }
})

test('lengths that contradict each other are refused', () => {
  for (const changes of [{ 3: 200 }, { 4: 10 }, { 11: 3 }]) {
    assert.throws(() => decodeResponse(changed(changes)), DecodingFailureError)
  }
  assert.throws(() => decodeResponse(ANSWER.subarray(0, 20)), DecodingFailureError)
})

test('a body over the limit is refused before it arrives', () => {
  const header = Buffer.from(ANSWER.subarray(0, 24))
  header.writeUInt32BE(BODY_BYTES_MAX + 1, 8)
  assert.throws(() => [...new FrameReader().feed(header)], DecodingFailureError)
})

test('a stream that is another protocol is refused', () => {
  const stream = Buffer.from('HTTP/1.1 400 Bad Request\r\n\r\n')
  assert.throws(() => [...new FrameReader().feed(stream)], DecodingFailureError)
})
