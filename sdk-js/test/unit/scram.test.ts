/** SCRAM against the exchanges printed in RFC 5802 (SHA-1) and RFC 7677 (SHA-256). */

import assert from 'node:assert/strict'
import { test } from 'node:test'

import { AuthenticationFailureError } from '../../src/errors.js'
import { Scram } from '../../src/scram.js'

const EXCHANGES = [
  {
    digest: 'sha1',
    nonce: 'fyko+d2lbbFgONRv9qkxdawL',
    challenge: 'r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096',
    proof: 'c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=',
    signature: 'v=rmF9pqV8S7suAoZWja4dJRkFsKQ=',
  },
  {
    digest: 'sha256',
    nonce: 'rOprNGfwEbeRWgbNEkqO',
    challenge: 'r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096',
    proof:
      'c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=',
    signature: 'v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=',
  },
]

test('the exchanges of the RFCs are reproduced', async () => {
  for (const { digest, nonce, challenge, proof, signature } of EXCHANGES) {
    const scram = new Scram('user', 'pencil', nonce, digest)
    assert.equal(scram.first().toString(), `n,,n=user,r=${nonce}`)
    assert.equal((await scram.final(Buffer.from(challenge))).toString(), proof)
    scram.verify(Buffer.from(signature))
  }
})

test('a server that does not know the password is refused', async () => {
  const { digest, nonce, challenge, signature } = EXCHANGES[1]!
  const scram = new Scram('user', 'another', nonce, digest)
  await scram.final(Buffer.from(challenge))
  for (const message of [signature, '', 'v=', 'e=other-error']) {
    assert.throws(() => scram.verify(Buffer.from(message)), AuthenticationFailureError)
  }
})

test('a signature before the proof is refused', () => {
  assert.throws(() => new Scram('user', 'pencil', 'abc').verify(Buffer.from('v=')), AuthenticationFailureError)
})

test('challenges for another exchange are refused', async () => {
  const salt = 's=QSXCR+Q6sek8bf92'
  for (const challenge of [
    `r=other,${salt},i=4096`,
    `r=abc,${salt},i=4096`,
    'r=abcdef,s=!,i=4096',
    `r=abcdef,${salt},i=0`,
    `r=abcdef,${salt},i=99999999999`,
    `r=abcdef,${salt},i=many`,
    'r=abcdef',
    '',
  ]) {
    const scram = new Scram('user', 'pencil', 'abc')
    await assert.rejects(scram.final(Buffer.from(challenge)), AuthenticationFailureError, challenge)
  }
})

test('names with separators are escaped', () => {
  assert.equal(new Scram('a=b,c', 'p', 'n').first().toString(), 'n,,n=a=3Db=2Cc,r=n')
})
