// A server for pages that sync: it serves the files of the page, and passes requests below /db/ on to the plugin with the login of
// the app. So a browser holds no login, and needs no permission for requests to another site.

import { createServer, request as send } from 'node:http';

/** Headers of requests that are passed on. The node learns nothing else about the page. */
const SENT = ['accept', 'content-type', 'if-match', 'last-event-id'];

/** The answer while the node is away, in the form of CouchDB's errors. */
const AWAY = JSON.stringify({ error: 'bad_gateway', reason: 'The database cannot be reached.' });
const JSON_TYPE = { 'content-type': 'application/json' };

/** Returns true if a page of this server sends the request, and no page of another site. */
function isOwn({ headers: { host, origin, 'sec-fetch-site': site } }, port) {
  const hosts = [`127.0.0.1:${port}`, `localhost:${port}`];
  return hosts.includes(host) && (!origin || origin === `http://${host}`) && (!site || ['same-origin', 'none'].includes(site));
}

/** Returns true if a path has no segments of dots, which could lead out of the deployment. */
const isPlain = (path) => new URL(path, 'http://localhost').pathname === path.split('?')[0];

/**
 * Serves `files`, which are types and bodies by path, and the databases of a deployment of the plugin at `node` below /db/.
 */
export async function servePages({ files, node, deployment, user, password, port = 0 }) {
  const authorization = `Basic ${Buffer.from(`${user}:${password}`).toString('base64')}`;
  const { hostname, port: nodePort } = new URL(node);

  function passOn(incoming, outgoing) {
    const headers = { authorization };
    for (const name of SENT) if (incoming.headers[name] !== undefined) headers[name] = incoming.headers[name];
    // The path as it was sent: `a%2Fb` is another document than `a/b`.
    const path = `/_plugin/${deployment}${incoming.url.slice('/db'.length)}`;
    const request = send({ hostname, port: nodePort, path, method: incoming.method, headers }, (response) => {
      outgoing.writeHead(response.statusCode, response.headers);
      outgoing.flushHeaders();
      response.on('error', () => outgoing.destroy());
      response.pipe(outgoing);
    });
    request.on('error', () => (outgoing.headersSent ? outgoing.destroy() : outgoing.writeHead(502, JSON_TYPE).end(AWAY)));
    outgoing.on('close', () => request.destroy());
    incoming.pipe(request);
  }

  const server = createServer((incoming, outgoing) => {
    if (!isOwn(incoming, server.address().port)) return outgoing.writeHead(403).end();
    if (incoming.url.startsWith('/db/') && isPlain(incoming.url)) return passOn(incoming, outgoing);
    const file = files[incoming.url];
    if (!file) return outgoing.writeHead(404).end();
    outgoing.writeHead(200, { 'content-type': file.type, 'cache-control': 'no-cache' }).end(file.body);
  });
  await new Promise((resolve, reject) => server.once('error', reject).listen(port, '127.0.0.1', resolve));
  return {
    port: server.address().port,
    close() {
      server.closeAllConnections();
      return new Promise((resolve) => server.close(resolve));
    },
  };
}
