// Serves the sessions of an embedded database on a port of this machine, and its views on another.
//
//     node serve.mjs MODULE FOLDER
//
// MODULE is the file `embedded.js` of sdk-js. The conformance cases reach the database through this program, on the way that
// sdk-js takes. It prints both ports, and ends when its standard input ends. Needs the addon (NACRE_ADDON).

import { once } from 'node:events'
import { createServer as createHttpServer } from 'node:http'
import { createServer } from 'node:net'
import { pathToFileURL } from 'node:url'

const [module, folder] = process.argv.slice(2)
const { Database, parsePlace } = await import(pathToFileURL(module).href)
const database = Database.open(parsePlace(`nacre://${folder}`))

const server = createServer((socket) => {
  const session = database.connect()
  socket.setNoDelay(true)
  for (const [one, other] of [[socket, session], [session, socket]]) {
    // The end of either side is the end of both, whatever its reason.
    one.on('error', () => {})
    one.on('close', () => other.destroy())
    one.pipe(other)
  }
})

const views = createHttpServer({ maxHeaderSize: 1 << 20 }, async (request, response) => {
  const body = []
  for await (const part of request) body.push(part)
  const { status, text } = await database.manageLater(request.method, request.url, Buffer.concat(body).toString())
  response.writeHead(status, { 'content-type': 'application/json' }).end(text)
})
for (const one of [server, views]) await once(one.listen(0, '127.0.0.1'), 'listening')
console.log(server.address().port, views.address().port)

process.stdin.resume().on('end', () => {
  server.close()
  database.leave()
  process.exit()
})
