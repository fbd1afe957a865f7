/** The entry for browsers in Chromium: a page of another site reads and changes documents with a token. */

import assert from 'node:assert/strict'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { fileURLToPath } from 'node:url'

import { build } from 'esbuild'

import { Browser } from './chromium.js'
import { createToken, managementUrl, nodeTest } from './node.js'

const ROOT = fileURLToPath(new URL('../../../', import.meta.url))

/** What the page does. */
const PAGE = `
import * as nacre from './dist/src/web.js'

const { url, token, bucket, key } = await (await fetch('/setting')).json()
const seen = []
try {
  const cluster = nacre.connect(url, { token })
  const documents = cluster.bucket(bucket).defaultCollection()
  const { cas } = await documents.insert(key, { n: 1 })
  seen.push((await documents.get(key)).content)
  await documents.replace(key, { n: 2 }, { cas })
  for (const change of [() => documents.replace(key, { n: 3 }, { cas }), () => documents.insert(key, {})]) {
    await change().catch(({ name }) => seen.push(name))
  }
  await documents.upsert(key, { n: 4 }, { expiry: 1000 })
  const { content, expiryTime } = await documents.get(key, { withExpiry: true })
  seen.push(content, expiryTime > Date.now() / 1000)
  await documents.remove(key)
  seen.push(await documents.exists(key))
} catch (error) {
  seen.push(String(error))
}
globalThis.seen = seen
`

nodeTest('a page of another site uses documents with a token', async ({ node, bucket, key }) => {
  const url = await managementUrl(node)
  const token = await createToken(node, url, [`data_reader[${bucket.name}]`, `data_writer[${bucket.name}]`])
  const { outputFiles } = await build({
    stdin: { contents: PAGE, resolveDir: ROOT },
    bundle: true,
    format: 'esm',
    platform: 'browser',
    write: false,
  })
  const server = createServer((request, response) => {
    if (request.url === '/setting') {
      response.end(JSON.stringify({ url, token: token.text, bucket: bucket.name, key }))
    } else if (request.url === '/page.js') {
      response.setHeader('content-type', 'text/javascript').end(outputFiles[0]!.text)
    } else {
      response.setHeader('content-type', 'text/html').end('<!doctype html><script type="module" src="/page.js"></script>')
    }
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  const before = await origins(node, url)
  await origins(node, url, [...before, origin])
  try {
    await using browser = await Browser.start()
    const page = await browser.open(origin)
    assert.deepEqual(await page.until('globalThis.seen'), [
      { n: 1 },
      'CasMismatchError',
      'DocumentExistsError',
      { n: 4 },
      true,
      { exists: false },
    ])
  } finally {
    server.closeAllConnections()
    server.close()
    await origins(node, url, before)
    await token.revoke()
  }
})

/** The sites whose pages may use the API; with `allowed`, sets them. */
async function origins(node: { user: string; password: string }, url: string, allowed?: string[]): Promise<string[]> {
  const authorization = `Basic ${Buffer.from(`${node.user}:${node.password}`).toString('base64')}`
  const answer = await fetch(`${url}/api/v1/settings/cors`, {
    headers: { authorization, 'content-type': 'application/json' },
    ...(allowed ? { method: 'PUT', body: JSON.stringify({ allowed_origins: allowed }) } : {}),
  })
  const { allowed_origins: found }: any = await answer.json()
  if (!Array.isArray(found)) throw new Error(`the sites cannot be set: ${answer.status}`)
  return found
}
