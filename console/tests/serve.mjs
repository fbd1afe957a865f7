// A made-up node: the built console with the headers that a node sends, and the answers of answers.mjs.

import { createReadStream, existsSync } from 'node:fs';
import { createServer } from 'node:http';
import { extname, join, normalize } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Node, measured } from './answers.mjs';

const DIST = fileURLToPath(new URL('../dist', import.meta.url));
const TYPES = { '.html': 'text/html; charset=utf-8', '.js': 'text/javascript; charset=utf-8', '.css': 'text/css; charset=utf-8', '.svg': 'image/svg+xml', '.woff2': 'font/woff2' };
/** As in server/nacre-rest/src/console/files.rs, which a test compares. */
export const POLICY =
  "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; connect-src 'self'; worker-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types svelte-trusted-html nacre";

/** Serves at a free port; `prefix` is a path of a proxy. */
export async function serve({ prefix = '', port = 0 } = {}) {
  const node = new Node();
  let streams = 0;
  const server = createServer((request, reply) => {
    const address = new URL(request.url, 'http://node');
    if (!address.pathname.startsWith(prefix)) return reply.writeHead(404).end();
    const path = address.pathname.slice(prefix.length);
    if (path.startsWith('/ui/')) {
      const file = normalize(join(DIST, path.slice(4)));
      if (!file.startsWith(DIST) || !existsSync(file)) return reply.writeHead(404).end();
      reply.writeHead(200, { 'content-type': TYPES[extname(file)] ?? 'application/octet-stream', 'content-security-policy': POLICY, 'x-content-type-options': 'nosniff' });
      return createReadStream(file).pipe(reply);
    }
    if (path === '/_nacre/stream') {
      if (!node.session || node.forbidden) return reply.writeHead(401).end();
      reply.writeHead(200, { 'content-type': 'text/event-stream' });
      const tell = () => {
        const values = measured(undefined, node.empty ? [] : undefined);
        const keys = Object.keys(values).sort();
        reply.write(`event: snapshot\ndata: ${JSON.stringify({ t: Date.now(), keys, nodes: { '127.0.0.1:8091': keys.map((key) => values[key]) }, missing: node.missing ?? [] })}\n\n`);
      };
      reply.write('event: revision\ndata: {"rev":1}\n\n');
      tell();
      streams += 1;
      const timer = setInterval(tell, 1000);
      return reply.on('close', () => ((streams -= 1), clearInterval(timer)));
    }
    let body = '';
    request.setEncoding('utf8');
    request.on('data', (piece) => (body += piece));
    request.on('end', () => {
      if (node.held.some((held) => path.startsWith(held))) return;
      const [status, value] = node.answer(request.method, path, address.searchParams, body);
      setTimeout(() => {
        reply.writeHead(status, { 'content-type': 'application/json', 'cache-control': 'no-store' });
        reply.end(typeof value === 'string' ? value : JSON.stringify(value));
      }, node.slow[path] ?? 0);
    });
  });
  await new Promise((resolve) => server.listen(port, '127.0.0.1', resolve));
  const url = `http://127.0.0.1:${server.address().port}${prefix}`;
  return { node, url, streams: () => streams, close: () => (server.closeAllConnections(), new Promise((resolve) => server.close(resolve))) };
}
