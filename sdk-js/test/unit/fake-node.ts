/** A node that answers as a test tells it to: for what a healthy node does not do on demand. */

import { createHmac, pbkdf2Sync } from 'node:crypto'
import { once } from 'node:events'
import { createServer as createHttpServer, type ServerResponse } from 'node:http'
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net'

const VBUCKETS = 16
const SALT = Buffer.from('salt')
const ITERATIONS = 2

/** A request as it arrived. */
export interface Asked {
  opcode: number
  opaque: number
  key: Buffer
  extras: Buffer
  value: Buffer
}

/** Status, extras and value; nothing to stay silent. */
export type Answer = [number, Buffer, Buffer] | undefined

/** Logs clients in; `on` says what to answer to the requests of a test, by opcode. */
export class FakeNode implements AsyncDisposable {
  readonly on: Map<number, (asked: Asked) => Answer> = new Map()
  readonly asked: Asked[] = []
  readonly sockets: Set<Socket> = new Set()
  connectionCount = 0
  password = 'password'
  rev = 1
  services: Record<string, number> = {}
  /** Services of the other nodes of its cluster. */
  neighbours: Record<string, number>[] = []
  /** Where each vBucket's replicas are; -1 is nowhere. */
  replicas: number[] = []
  readonly #server: Server = createServer((socket) => this.#serve(socket))

  static async start(): Promise<FakeNode> {
    const node = new FakeNode()
    node.#server.listen(0, '127.0.0.1')
    await once(node.#server, 'listening')
    return node
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port
  }

  get url(): string {
    return `couchbase://127.0.0.1:${this.port}`
  }

  /** Breaks all connections. */
  drop(): undefined {
    for (const socket of this.sockets) socket.destroy()
    this.sockets.clear()
  }

  /** How often an operation was asked for. */
  count(opcode: number): number {
    return this.asked.filter((asked) => asked.opcode === opcode).length
  }

  /** A map in which all vBuckets are on one port. */
  config(port: number = this.port): Buffer {
    const vBucketMap = Array.from({ length: VBUCKETS }, () => [0, ...this.replicas])
    return Buffer.from(
      JSON.stringify({
        rev: this.rev,
        nodesExt: [{ kv: port, ...this.services }, ...this.neighbours].map((services) => ({ services })),
        vBucketServerMap: { serverList: [`$HOST:${port}`], vBucketMap },
      }),
    )
  }

  /** The map that a connection without a bucket is given. */
  configWithoutBucket(): Buffer {
    return Buffer.from(JSON.stringify({ rev: this.rev, nodesExt: [] }))
  }

  /** Answers a request of the newest connection later. */
  answer(asked: Asked, answer: NonNullable<Answer>): void {
    ;[...this.sockets].at(-1)!.write(encode(asked, answer))
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.close()
    this.drop()
    await once(this.#server, 'close')
  }

  #serve(socket: Socket): void {
    this.sockets.add(socket)
    this.connectionCount++
    const login = { first: '', server: '' }
    let pending = Buffer.alloc(0)
    socket.on('error', () => socket.destroy())
    socket.on('data', (data) => {
      pending = Buffer.concat([pending, data])
      while (pending.length >= 24 && pending.length >= 24 + pending.readUInt32BE(8)) {
        const end = 24 + pending.readUInt32BE(8)
        const asked = read(pending.subarray(0, end))
        pending = pending.subarray(end)
        this.asked.push(asked)
        const answer = this.#answer(asked, login)
        if (answer) socket.write(encode(asked, answer))
      }
    })
  }

  #answer(asked: Asked, login: { first: string; server: string }): Answer {
    const scripted = this.on.get(asked.opcode)
    if (scripted) return scripted(asked)
    const ok = (value: Buffer | string, status = 0): Answer => [status, Buffer.alloc(0), Buffer.from(value as string)]
    switch (asked.opcode) {
      case 0x1f:
        return ok(asked.value)
      case 0x20:
        return ok('SCRAM-SHA512 PLAIN')
      case 0x21:
        login.first = asked.value.toString().slice(3)
        login.server = `r=${login.first.split('r=')[1]}server,s=${SALT.toString('base64')},i=${ITERATIONS}`
        return ok(login.server, 0x21)
      case 0x22:
        return ok(this.#signature(`${login.first},${login.server},${asked.value.toString().split(',p=')[0]}`))
      case 0x89:
        return ok('')
      case 0xb5:
        return ok(this.config())
      default:
        return ok('', 0x81)
    }
  }

  #signature(transcript: string): string {
    const salted = pbkdf2Sync(this.password, SALT, ITERATIONS, 64, 'sha512')
    const serverKey = createHmac('sha512', salted).update('Server Key').digest()
    return `v=${createHmac('sha512', serverKey).update(transcript).digest('base64')}`
  }
}

/** A service over HTTP. It answers all requests alike, unless `onRequest` does otherwise. */
export class FakeService implements AsyncDisposable {
  /** Method and path of each request. */
  readonly asked: string[] = []
  onRequest: (response: ServerResponse) => void = (response) => response.end('{"rows": [], "scopes": []}')
  readonly #server = createHttpServer((request, response) => {
    this.asked.push(`${request.method} ${request.url}`)
    this.onRequest(response)
  })

  static async start(): Promise<FakeService> {
    const service = new FakeService()
    service.#server.listen(0, '127.0.0.1')
    await once(service.#server, 'listening')
    return service
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.close()
    this.#server.closeAllConnections()
    await once(this.#server, 'close')
  }
}

/** An answer as bytes. */
export function encode({ opcode, opaque }: Asked, [status, extras, value]: NonNullable<Answer>): Buffer {
  const header = Buffer.alloc(24)
  header[0] = 0x81
  header[1] = opcode
  header[4] = extras.length
  header.writeUInt16BE(status, 6)
  header.writeUInt32BE(extras.length + value.length, 8)
  header.writeUInt32BE(opaque, 12)
  header[23] = 1
  return Buffer.concat([header, extras, value])
}

function read(frame: Buffer): Asked {
  const flexible = frame[0] === 0x08
  const extrasAt = 24 + (flexible ? frame[2]! : 0)
  const keyAt = extrasAt + frame[4]!
  const valueAt = keyAt + (flexible ? frame[3]! : frame.readUInt16BE(2))
  return {
    opcode: frame[1]!,
    opaque: frame.readUInt32BE(12),
    extras: frame.subarray(extrasAt, keyAt),
    key: frame.subarray(keyAt, valueAt),
    value: frame.subarray(valueAt),
  }
}
