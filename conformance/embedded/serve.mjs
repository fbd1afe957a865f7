// Serves the sessions of an embedded database on a port of this machine.
//
//     node serve.mjs MODULE FOLDER
//
// MODULE is the file `embedded.js` of sdk-js. The conformance cases reach the database through this program, on the way that
// sdk-js takes. It prints the port, and ends when its standard input ends. Needs the addon (NACRE_ADDON).

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
server.listen(0, '127.0.0.1', () => console.log(server.address().port))

process.stdin.resume().on('end', () => {
  server.close()
  database.leave()
  process.exit()
})
