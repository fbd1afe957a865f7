/** Byte operations for HTTP bodies that work in every runtime. */

const decoder = new TextDecoder()

/** Concatenates parts. */
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

/** Decodes concatenated parts as UTF-8. */
export function textOf(parts: readonly Uint8Array[]): string {
  return decoder.decode(concat(parts))
}

/** Decodes base64, into a Buffer if the runtime has this class. */
export function fromBase64(text: string): Uint8Array {
  if (typeof Buffer !== 'undefined') return Buffer.from(text, 'base64')
  return Uint8Array.from(atob(text), (character) => character.charCodeAt(0))
}

/** Returns a random UUID. The built-in function of browsers is only available to pages loaded over TLS. */
export function uuid(): string {
  if (crypto.randomUUID) return crypto.randomUUID()
  const bytes = crypto.getRandomValues(new Uint8Array(16))
  bytes[6] = (bytes[6]! & 0x0f) | 0x40
  bytes[8] = (bytes[8]! & 0x3f) | 0x80
  const hex = [...bytes].map((byte) => byte.toString(16).padStart(2, '0')).join('')
  return hex.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, '$1-$2-$3-$4-$5')
}
