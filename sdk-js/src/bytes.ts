/** Bytes of answers over HTTP, in every runtime. */

const decoder = new TextDecoder()

/** Parts, one behind the other. */
export function concat(parts: readonly Uint8Array[]): Uint8Array {
  if (parts.length === 1) return parts[0]!
  const whole = new Uint8Array(parts.reduce((total, part) => total + part.length, 0))
  let at = 0
  for (const part of parts) {
    whole.set(part, at)
    at += part.length
  }
  return whole
}

/** Text of parts in UTF-8. */
export function textOf(parts: readonly Uint8Array[]): string {
  return decoder.decode(concat(parts))
}

/** Bytes of text in base64; a Buffer where the runtime has it. */
export function fromBase64(text: string): Uint8Array {
  if (typeof Buffer !== 'undefined') return Buffer.from(text, 'base64')
  return Uint8Array.from(atob(text), (character) => character.charCodeAt(0))
}

/** A random UUID. Browsers offer it to pages that came over TLS only. */
export function uuid(): string {
  if (crypto.randomUUID) return crypto.randomUUID()
  const bytes = crypto.getRandomValues(new Uint8Array(16))
  bytes[6] = (bytes[6]! & 0x0f) | 0x40
  bytes[8] = (bytes[8]! & 0x3f) | 0x80
  const hex = [...bytes].map((byte) => byte.toString(16).padStart(2, '0')).join('')
  return hex.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, '$1-$2-$3-$4-$5')
}
