// Serves a to-do list that works without a network: `node todo/server.mjs http://127.0.0.1:8091 USER PASSWORD DEPLOYMENT [PORT]`.
//
// The page has its own database in the browser, and syncs it with the database `todos` of the deployment whenever it can.

import { readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { servePages } from '../pages.mjs';

const [node, user, password, deployment, port = '8080'] = process.argv.slice(2);
if (!deployment) throw new Error('usage: server.mjs URL USER PASSWORD DEPLOYMENT [PORT]');

const pouchdb = createRequire(import.meta.url).resolve('pouchdb/dist/pouchdb.min.js');
const own = (name) => new URL(name, import.meta.url);
const file = async (type, path) => ({ type, body: await readFile(path) });
const files = {
  '/': await file('text/html; charset=utf-8', own('index.html')),
  '/todo.js': await file('text/javascript', own('todo.js')),
  '/worker.js': await file('text/javascript', own('worker.js')),
  '/pouchdb.min.js': await file('text/javascript', pouchdb),
};
const pages = await servePages({ files, node, deployment, user, password, port: Number(port) });
console.log(`http://127.0.0.1:${pages.port}`);

for (const signal of ['SIGINT', 'SIGTERM']) process.once(signal, () => pages.close());
