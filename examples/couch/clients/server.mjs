// A nacre node for tests, which can be stopped and restarted, and deployments of the plugin on it.
//
// NACRE_BINARY names the program, COUCH_PACKAGE the package built by `nacre plugin build`, and NACRE_PLUGIN_CACHE a folder for
// compiled plugins.

import { execFile, spawn } from 'node:child_process';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';

const run = promisify(execFile);
const USER = 'Administrator';
const PASSWORD = 'password';

/** Runs `check` until it returns a true value, for at most a minute. */
export async function until(what, check, patienceMs = 60_000) {
  const end = Date.now() + patienceMs;
  let last;
  for (;;) {
    try {
      const value = await check();
      if (value) return value;
      last = undefined;
    } catch (error) {
      last = error;
    }
    if (Date.now() > end) throw new Error(`in vain: ${what}`, { cause: last });
    await new Promise((resolve) => setTimeout(resolve, 25));
  }
}

/** Number of ports of a node, from the base. */
const PORTS = 18;

function isFree(port) {
  return new Promise((resolve) => {
    const server = createServer();
    server.once('error', () => resolve(false));
    server.listen(port, '127.0.0.1', () => server.close(() => resolve(true)));
  });
}

/** Returns a base of free ports, below those that systems use for outgoing connections. */
async function freePorts() {
  for (let attempt = 0; attempt < 100; attempt++) {
    const base = 15_000 + PORTS * Math.floor(Math.random() * 900);
    const ports = Array.from({ length: PORTS }, (_, index) => base + index);
    if ((await Promise.all(ports.map(isFree))).every(Boolean)) return base;
  }
  throw new Error('there are no free ports for a node');
}

export class Server {
  static async start() {
    const server = new Server();
    server.base = await freePorts();
    server.folder = await mkdtemp(join(tmpdir(), 'nacre-couch-'));
    await server.run();
    return server;
  }

  async run() {
    const options = ['--data-dir', this.folder, '--port-base', String(this.base), '--user', USER];
    options.push('--password', PASSWORD, '--buckets', 'default');
    const cache = process.env.NACRE_PLUGIN_CACHE;
    if (cache) options.push('--plugin-cache', cache);
    const binary = process.env.NACRE_BINARY ?? 'nacre';
    this.process = spawn(binary, ['serve', ...options], {
      env: { ...process.env, NACRE_LOG: process.env.NACRE_LOG ?? 'error' },
      stdio: ['ignore', 'ignore', 'inherit'],
    });
    this.ended = new Promise((resolve) => this.process.once('exit', resolve));
    const early = this.ended.then((status) => Promise.reject(new Error(`the node has ended: ${status}`)));
    await Promise.race([early, until('the node answers', async () => (await this.rest('GET', '/pools')).ok)]);
    early.catch(() => {});
  }

  /** Ends the node: cleanly, or like a crash. */
  async stop(signal = 'SIGTERM') {
    this.process.kill(signal);
    await this.ended;
  }

  async close() {
    await this.stop();
    await rm(this.folder, { recursive: true, force: true });
  }

  get url() {
    return `http://127.0.0.1:${this.base}`;
  }

  get connection() {
    return `couchbase://127.0.0.1:${this.base + 10}`;
  }

  rest(method, path, { body, headers, user = USER, password = PASSWORD } = {}) {
    const authorization = `Basic ${Buffer.from(`${user}:${password}`).toString('base64')}`;
    return fetch(this.url + path, { method, body, headers: { authorization, ...headers } });
  }

  async done(method, path, options) {
    const answer = await this.rest(method, path, options);
    if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${await answer.text()}`);
    return answer;
  }

  async collection(name) {
    const path = '/pools/default/buckets/default/scopes/_default/collections';
    const body = new URLSearchParams({ name });
    const answer = await this.rest('POST', path, { body });
    const text = await answer.text();
    if (!answer.ok && !text.includes('exist')) throw new Error(`${name}: ${answer.status} ${text}`);
  }

  /** Deploys the plugin for a database on a collection of that name; returns the URL of the database. */
  async deploy(database) {
    await this.collection('couch');
    await this.collection(database);
    const archive = await readFile(process.env.COUCH_PACKAGE);
    await this.done('POST', '/plugins', { body: archive });
    const wanted = {
      package: 'couch',
      version: '0.1.0',
      bucket: 'default',
      scope: '_default',
      collection: database,
      config: { database },
      grants: { kv: { write: ['*'] } },
    };
    const headers = { 'content-type': 'application/json' };
    const body = JSON.stringify(wanted);
    await this.done('PUT', `/deployments/${database}`, { body, headers });
    await this.ready(database);
    return this.database(database);
  }

  ready(database) {
    return until(`${database} answers`, async () => {
      return (await this.rest('GET', `/_plugin/${database}/${database}`)).ok;
    });
  }

  /** Returns the URL of a database in the form for PouchDB and RxDB. */
  database(name, user = USER, password = PASSWORD) {
    return `http://${user}:${password}@127.0.0.1:${this.base}/_plugin/${name}/${name}`;
  }

  async memoryKib() {
    const status = await readFile(`/proc/${this.process.pid}/status`, 'utf8');
    return Number(/VmRSS:\s+(\d+)/.exec(status)[1]);
  }
}

export { PASSWORD, USER, run };
