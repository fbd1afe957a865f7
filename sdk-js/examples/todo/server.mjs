// Serves a to-do list that follows the database, to any number of browsers.
//
//     node server.mjs http://127.0.0.1:8091 Administrator password default [port]
//
// Pages use `nacre/http`. Their requests for the database go to this server, which passes on those to the list's collection
// with a token that can do no more: browsers hold no login, and need no rights at other sites. The token is revoked at
// the end.

import { readFile } from 'node:fs/promises'
import { createServer, request as send } from 'node:http'
import { fileURLToPath } from 'node:url'

const [url, user, password, bucket, port = '8080'] = process.argv.slice(2)
if (!bucket) throw new Error('usage: server.mjs URL USER PASSWORD BUCKET [PORT]')

const HERE = new URL('./', import.meta.url)
const PACKAGE = new URL('../../dist/src/', import.meta.url)
const TYPES = { html: 'text/html; charset=utf-8', js: 'text/javascript', css: 'text/css' }

const administrator = {
  authorization: `Basic ${Buffer.from(`${user}:${password}`).toString('base64')}`,
  'content-type': 'application/json',
}

async function ask(method, path, body) {
  const response = await fetch(new URL(path, url), { method, headers: administrator, body: body && JSON.stringify(body) })
  if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${await response.text()}`)
  return response.status === 204 ? undefined : response.json()
}

const scopes = ['data_reader', 'data_writer', 'query_select'].map((role) => `${role}[${bucket}]`)
const token = await ask('POST', '/api/v1/tokens', { name: `to-do ${process.pid}`, scopes, ttl: 86_400 })
const { nodesExt } = await ask('GET', '/pools/default/nodeServices')
const { services } = nodesExt.find(({ thisNode }) => thisNode) ?? nodesExt[0]

/** Paths that are passed on, and the ports of the services that answer them. */
const documents = `/api/v1/buckets/${encodeURIComponent(bucket)}/scopes/_default/collections/_default/documents/`
const SERVICES = [
  [(path) => path.startsWith(documents), services.mgmt],
  [(path) => path === '/query/service', services.n1ql],
  [(path) => path === `/${encodeURIComponent(bucket)}/_default/_default/_changes`, services.capi],
]

/** Whether a page of this server asks, and not one of another site, which has no business with the token. */
function isOwn({ headers: { host, origin, 'sec-fetch-site': site } }) {
  const { port: own } = server.address()
  const hosts = [`127.0.0.1:${own}`, `localhost:${own}`]
  return hosts.includes(host) && (!origin || origin === `http://${host}`) && (!site || site === 'same-origin')
}

function passOn(incoming, outgoing, port) {
  if (!isOwn(incoming)) return outgoing.writeHead(403).end()
  // Of the page the node knows nothing.
  const { accept, 'content-type': type, 'if-match': match, 'if-none-match': none } = incoming.headers
  const headers = { accept, 'content-type': type, 'if-match': match, 'if-none-match': none, authorization: `Bearer ${token.token}` }
  for (const name of Object.keys(headers)) if (headers[name] === undefined) delete headers[name]
  const to = { hostname: new URL(url).hostname, port, path: incoming.url, method: incoming.method, headers }
  const request = send(to, (response) => {
    outgoing.writeHead(response.statusCode, response.headers)
    outgoing.flushHeaders()
    response.pipe(outgoing)
  })
  request.on('error', () => (outgoing.headersSent ? outgoing.destroy() : outgoing.writeHead(502).end()))
  outgoing.on('close', () => request.destroy())
  incoming.pipe(request)
}

async function file(path, response) {
  const name = path === '/' ? 'index.html' : path.slice(1)
  const place = /^nacre\/[\w-]+\.js$/.test(name) ? new URL(name.slice(6), PACKAGE) : new URL(name, HERE)
  if (!/^(nacre\/)?[\w-]+\.(html|js|css)$/.test(name)) return response.writeHead(404).end()
  try {
    const text = await readFile(fileURLToPath(place))
    response.writeHead(200, { 'content-type': TYPES[name.split('.').at(-1)], 'cache-control': 'no-cache' }).end(text)
  } catch {
    response.writeHead(404).end()
  }
}

const server = createServer((incoming, outgoing) => {
  const { pathname } = new URL(incoming.url, 'http://here')
  if (pathname === '/setting') return outgoing.end(JSON.stringify({ bucket }))
  const [, port] = SERVICES.find(([matches]) => matches(pathname)) ?? []
  return port ? passOn(incoming, outgoing, port) : file(pathname, outgoing)
})
server.listen(Number(port), '127.0.0.1', () => {
  console.log(`http://127.0.0.1:${server.address().port}`)
})

for (const signal of ['SIGINT', 'SIGTERM']) {
  process.once(signal, async () => {
    server.closeAllConnections()
    server.close()
    await ask('DELETE', `/api/v1/tokens/${token.id}`)
  })
}
