/**
 * SCRAM (RFC 5802, without channel binding) with SHA-512, SHA-256 or SHA-1: proves the password and authenticates the
 * server.
 *
 * This module uses no socket and no random numbers: the nonce is an argument, so that the test vectors of the RFCs can
 * be tests.
 */

import { createHash, createHmac, pbkdf2, timingSafeEqual } from 'node:crypto'
import { promisify } from 'node:util'

import { AuthenticationFailureError } from './errors.js'

/** Returns the digest of a mechanism by its name in this protocol, or undefined if it is not SCRAM. */
export function digestOf(mechanism: string): string | undefined {
  return /^SCRAM-(SHA\d+)$/.exec(mechanism)?.[1]!.toLowerCase()
}

/** Without this limit, a server could make the client compute for hours. */
const ITERATIONS_MAX = 10_000_000

const DIGEST_BYTES: Record<string, number> = { sha1: 20, sha256: 32, sha512: 64 }
const derive = promisify(pbkdf2)

/** One exchange: `first()`, then `final(…)`, then `verify(…)`. */
export class Scram {
  readonly #password: string
  readonly #nonce: string
  readonly #digest: string
  readonly #firstBare: string
  #serverSignature: Buffer | undefined

  constructor(username: string, password: string, nonce: string, digest = 'sha512') {
    this.#password = password
    this.#nonce = nonce
    this.#digest = digest
    this.#firstBare = `n=${username.replaceAll('=', '=3D').replaceAll(',', '=2C')},r=${nonce}`
  }

  /** Returns the first message. */
  first(): Buffer {
    return Buffer.from(`n,,${this.#firstBare}`)
  }

  /**
   * Returns the response to the server's challenge, with the proof. It is slow on purpose (PBKDF2).
   *
   * @throws AuthenticationFailureError if the challenge does not belong to this exchange.
   */
  async final(serverFirst: Buffer): Promise<Buffer> {
    const fields = readFields(serverFirst)
    const nonce = fields.get('r') ?? ''
    const iterations = Number(fields.get('i'))
    const salt = Buffer.from(fields.get('s') ?? '', 'base64')
    if (!nonce.startsWith(this.#nonce) || nonce === this.#nonce) {
      throw new AuthenticationFailureError("the server's challenge is for another exchange")
    }
    if (!Number.isInteger(iterations) || iterations < 1 || iterations > ITERATIONS_MAX || salt.length === 0) {
      throw new AuthenticationFailureError("the server's challenge cannot be used")
    }
    const withoutProof = `c=biws,r=${nonce}`
    const transcript = `${this.#firstBare},${serverFirst.toString()},${withoutProof}`
    const salted = await derive(this.#password, salt, iterations, DIGEST_BYTES[this.#digest]!, this.#digest)
    const clientKey = this.#hmac(salted, 'Client Key')
    const storedKey = createHash(this.#digest).update(clientKey).digest()
    const signature = this.#hmac(storedKey, transcript)
    const proof = Buffer.from(clientKey.map((byte, index) => byte ^ signature[index]!))
    this.#serverSignature = this.#hmac(this.#hmac(salted, 'Server Key'), transcript)
    return Buffer.from(`${withoutProof},p=${proof.toString('base64')}`)
  }

  /**
   * Checks that the server knows the password too.
   *
   * @throws AuthenticationFailureError if it does not, or reports an error.
   */
  verify(serverFinal: Buffer): void {
    const fields = readFields(serverFinal)
    if (fields.has('e')) throw new AuthenticationFailureError(`the server refuses: ${fields.get('e')}`)
    const given = Buffer.from(fields.get('v') ?? '', 'base64')
    const expected = this.#serverSignature
    if (!expected || given.length !== expected.length || !timingSafeEqual(given, expected)) {
      throw new AuthenticationFailureError('the server could not prove that it knows the password')
    }
  }

  #hmac(key: Buffer, message: string): Buffer {
    return createHmac(this.#digest, key).update(message).digest()
  }
}

function readFields(message: Buffer): Map<string, string> {
  const parts = message.toString().split(',').filter((part) => part[1] === '=')
  return new Map(parts.map((part) => [part[0]!, part.slice(2)]))
}
