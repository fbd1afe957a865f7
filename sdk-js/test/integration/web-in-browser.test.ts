/** The tests of the entry for browsers, in Chromium. */

import assert from 'node:assert/strict'
import { createServer, type IncomingMessage, request as send, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { fileURLToPath } from 'node:url'

import { build, type Plugin } from 'esbuild'

import { Browser } from './chromium.js'
import { managementUrl, type Node, nodeTest } from './node.js'

const HERE = fileURLToPath(new URL('./', import.meta.url))
const SHIM = `${HERE}in-browser.js`

/** Has the tests import what there is in browsers. */
const forBrowsers: Plugin = {
  name: 'for browsers',
  setup(builder) {
    builder.onResolve({ filter: /^(node:test|node:assert\/strict|\.\/node\.js)$/ }, () => ({ path: SHIM }))
  },
}

/** Ports of the services, as the node lists them. */
async function portsOf({ user, password }: Node, url: string): Promise<Record<string, number>> {
  const authorization = `Basic ${Buffer.from(`${user}:${password}`).toString('base64')}`
  const answer = await fetch(`${url}/pools/default/nodeServices`, { headers: { authorization } })
  const { nodesExt }: any = await answer.json()
  return nodesExt[0].services
}

/** Passes a request of the page on to the node: browsers let pages ask their own site only, as does the node. */
function passOn(ports: Record<string, number>, incoming: IncomingMessage, outgoing: ServerResponse): void {
  const path = incoming.url!
  if (path === '/pools/default/nodeServices') {
    const own = Number(incoming.headers.host!.split(':')[1])
    const services = Object.fromEntries(Object.keys(ports).map((name) => [name, own]))
    return void outgoing.end(JSON.stringify({ nodesExt: [{ thisNode: true, services }] }))
  }
  const service = path.startsWith('/query/') ? 'n1ql' : path.endsWith('/_changes') ? 'capi' : 'mgmt'
  const headers = Object.fromEntries(
    Object.entries(incoming.headers).filter(([name]) => !/^(host|origin|referer|connection|sec-)/.test(name)),
  )
  const to = { hostname: '127.0.0.1', port: ports[service], path, method: incoming.method!, headers }
  const request = send(to, (response) => {
    outgoing.writeHead(response.statusCode!, response.headers)
    outgoing.flushHeaders()
    response.pipe(outgoing)
  })
  request.on('error', () => outgoing.destroy())
  outgoing.on('close', () => request.destroy())
  incoming.pipe(request)
}

nodeTest('the tests of nacre/http pass in Chromium', async ({ node, bucket, collection }) => {
  const { outputFiles } = await build({
    stdin: {
      contents: `
        import './web.test.js'
        import { runTests } from './in-browser.js'
        runTests().then((outcome) => (globalThis.outcome = outcome))
      `,
      resolveDir: HERE,
    },
    bundle: true,
    // The package says that its modules have no effect, which tests have.
    ignoreAnnotations: true,
    format: 'iife',
    platform: 'browser',
    plugins: [forBrowsers],
    write: false,
  })
  const ports = await portsOf(node, await managementUrl(node))
  const store = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const parts: Buffer[] = []
    for await (const part of request) parts.push(part)
    await collection.upsert(decodeURIComponent(request.url!.slice('/bytes/'.length)), Buffer.concat(parts))
    response.writeHead(204).end()
  }
  const server = createServer((request, response) => {
    if (request.url!.startsWith('/bytes/')) return void store(request, response)
    const { host } = request.headers
    if (request.url !== '/') return passOn(ports, request, response)
    const setting = { ...node, bucketName: bucket.name, managementUrl: `http://${host}` }
    const text = outputFiles[0]!.text.replaceAll('</script', '<\\/script')
    const script = `globalThis.setting = ${JSON.stringify(setting)};\n${text}`
    response.setHeader('content-type', 'text/html').end(`<!doctype html><meta charset="utf-8"><script>${script}</script>`)
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  try {
    await using browser = await Browser.start()
    const page = await browser.open(`http://127.0.0.1:${(server.address() as AddressInfo).port}`)
    const { passed, failures } = await page.until('globalThis.outcome')
    assert.deepEqual(failures, [])
    assert(passed >= 7, `${passed} tests`)
  } finally {
    server.closeAllConnections()
    server.close()
  }
})
