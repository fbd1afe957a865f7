// Passes the frames of key-value clients on to a gateway, whose devices reach it by WebSockets.
//
//     node hub.mjs ADDRESS
//
// Each connection becomes a session at `/_sync/default`. The conformance cases for views store their documents through this
// program. It prints the port, and ends when its standard input ends.

import { randomBytes } from 'node:crypto'
import { request } from 'node:http'
import { createServer } from 'node:net'

const [hostname, port] = process.argv[2].split(':')
const PROTOCOL = 'nacre-sync-1'
/** Opcodes of frames (RFC 6455, section 5.2). */
const [BINARY, CLOSE, PING, PONG] = [2, 8, 9, 10]
/** Bytes of a frame: so many that 16 bits hold their number. */
const PIECE_BYTES = 32 << 10

/** Returns a frame, masked as those of clients have to be. */
function frame(opcode, payload) {
  const mask = randomBytes(4)
  const size = payload.length < 126 ? [0x80 | payload.length] : [0x80 | 126, payload.length >> 8, payload.length & 255]
  const masked = Buffer.from(payload)
  for (let at = 0; at < masked.length; at++) masked[at] ^= mask[at & 3]
  return Buffer.concat([Buffer.from([0x80 | opcode, ...size]), mask, masked])
}

/** Returns a function that takes bytes, and passes opcode and payload of each frame in them to `take`. */
function reader(take) {
  let rest = Buffer.alloc(0)
  return (bytes) => {
    rest = Buffer.concat([rest, bytes])
    while (rest.length >= 2) {
      const short = rest[1] & 127
      const start = short < 126 ? 2 : short === 126 ? 4 : 10
      if (rest.length < start) return
      const size = short < 126 ? short : short === 126 ? rest.readUInt16BE(2) : Number(rest.readBigUInt64BE(2))
      if (rest.length < start + size) return
      take(rest[0] & 15, rest.subarray(start, start + size))
      rest = rest.subarray(start + size)
    }
  }
}

const server = createServer((client) => {
  client.setNoDelay(true)
  const headers = {
    connection: 'Upgrade',
    upgrade: 'websocket',
    'sec-websocket-version': '13',
    'sec-websocket-key': randomBytes(16).toString('base64'),
    'sec-websocket-protocol': PROTOCOL,
  }
  const upgrade = request({ hostname, port, path: '/_sync/default', headers })
  upgrade.on('response', ({ statusCode }) => client.destroy(new Error(`the gateway refuses a session: ${statusCode}`)))
  upgrade.on('error', (error) => client.destroy(error))
  upgrade.on('upgrade', (_, socket, head) => {
    socket.setNoDelay(true)
    // The first message is a text about the hub, which a client of the key-value protocol does not need.
    const read = reader((opcode, payload) => {
      if (opcode === BINARY) client.write(payload)
      else if (opcode === PING) socket.write(frame(PONG, payload))
      else if (opcode === CLOSE) client.end()
    })
    read(head)
    socket.on('data', read)
    client.on('data', (bytes) => {
      for (let at = 0; at < bytes.length; at += PIECE_BYTES) {
        socket.write(frame(BINARY, bytes.subarray(at, at + PIECE_BYTES)))
      }
    })
    for (const [one, other] of [[client, socket], [socket, client]]) {
      one.on('error', () => {})
      one.on('close', () => other.destroy())
    }
  })
  client.on('error', (error) => console.error(error.message))
  upgrade.end()
})
server.listen(0, '127.0.0.1', () => console.log(server.address().port))

process.stdin.resume().on('end', () => process.exit())
