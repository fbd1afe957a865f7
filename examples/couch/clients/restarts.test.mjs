// PouchDB and RxDB in Node.js and in Chromium, in step with one server that is stopped and killed 20 times.
//
// Needs Chromium (NACRE_CHROMIUM names it), and sdk-js as compiled for its tests, which have a driver for the browser.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { get } from 'node:http';
import { createRequire } from 'node:module';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';
import { Browser } from '../../../sdk-js/dist/test/integration/chromium.js';
import { servePages } from './pages.mjs';
import { Server, until } from './server.mjs';
import { PouchDB, leaves, local, numbers, restarted, rx, schema } from './stores.mjs';

/** Documents of each client before the first restart. */
const DOCUMENTS = 1000;
const RESTARTS = 20;
const PATIENCE_MS = 180_000;
/** A user who may only call plugins, as an app should have. */
const APP = { user: 'app', password: 'pass-1234' };
const TODO = fileURLToPath(new URL('todo/server.mjs', import.meta.url));

let server;
let browser;

before(async () => {
  server = await Server.start();
  const roles = new URLSearchParams({ password: APP.password, roles: 'plugin_invoke[default]' });
  await server.done('PUT', `/settings/rbac/users/local/${APP.user}`, { body: roles });
  browser = await Browser.start();
});
after(async () => {
  await browser?.[Symbol.asyncDispose]();
  await server?.close();
});

/** Calls a function in a page, with values that JSON can carry. */
const call = (page, work, ...values) => page.evaluate(`(${work})(${values.map((value) => JSON.stringify(value)).join(', ')})`);

/** Serves a page with a deployment of the plugin and a script, which defines a name, and opens it. */
async function open(deployment, script, name) {
  const files = {
    '/': { type: 'text/html', body: '<!doctype html><title>test</title><script src="/script.js"></script>' },
    '/script.js': { type: 'text/javascript', body: script },
  };
  const pages = await servePages({ files, node: server.url, deployment, ...APP });
  const page = await browser.open(`http://127.0.0.1:${pages.port}/`);
  await page.until(`typeof ${name} !== 'undefined'`);
  return { pages, page };
}

/** The bytes of the attachment that a client writes in a round. */
const text = (by, round) => `${by} ${round} `.repeat(2000);

/** A database of PouchDB in this process. */
async function pouchHere(url) {
  const database = local();
  await database.bulkDocs(numbers(DOCUMENTS, 'node'));
  const failures = [];
  const sync = database.sync(restarted(url), { live: true, retry: true, back_off_function: () => 100 });
  sync.on('error', (error) => failures.push(String(error)));
  const file = (round) => ({ file: { content_type: 'text/plain', data: Buffer.from(text('node', round)) } });
  return {
    by: 'node',
    async write(round) {
      await database.put({ _id: `away-node-${round}`, _attachments: file(round) });
      await database.put({ ...(await database.get('shared')), by: 'node', round, _attachments: file(round) });
    },
    leaves: () => leaves(database),
    attachment: async (id, rev) => (await database.getAttachment(id, 'file', { rev })).toString(),
    remove: (id, rev) => database.remove(id, rev),
    failures: async () => failures,
    end: async () => sync.cancel(),
  };
}

/** A database of PouchDB in Chromium. */
async function pouchInPage(deployment) {
  const script = await readFile(createRequire(import.meta.url).resolve('pouchdb/dist/pouchdb.min.js'), 'utf8');
  const { pages, page } = await open(deployment, script, 'PouchDB');
  const begin = async (name, count) => {
    globalThis.database = new PouchDB('here');
    await database.bulkDocs(
      Array.from({ length: count }, (_, index) => ({ _id: `page${String(index).padStart(4, '0')}`, index })),
    );
    globalThis.failures = [];
    globalThis.sync = database.sync(`${location.origin}/db/${name}`, { live: true, retry: true, back_off_function: () => 100 });
    sync.on('error', (error) => failures.push(String(error)));
  };
  await call(page, begin, deployment, DOCUMENTS);
  const write = async (round, content) => {
    const file = () => ({ file: { content_type: 'text/plain', data: new Blob([content], { type: 'text/plain' }) } });
    await database.put({ _id: `away-page-${round}`, _attachments: file() });
    await database.put({ ...(await database.get('shared')), by: 'page', round, _attachments: file() });
  };
  return {
    by: 'page',
    write: (round) => call(page, write, round, text('page', round)),
    leaves: () => page.evaluate(`(${leaves})(database)`),
    attachment: (id, rev) => call(page, async (id, rev) => (await database.getAttachment(id, 'file', { rev })).text(), id, rev),
    failures: () => page.evaluate('failures'),
    async end() {
      await page.evaluate('sync.cancel()');
      await pages.close();
    },
  };
}

const rowOf = ({ id, n, by }) => `${id} ${n} ${by}`;

/** A database of RxDB in this process. */
async function rxHere(url) {
  const { database, items, replication } = await rx('restarts', url);
  await items.bulkInsert(Array.from({ length: DOCUMENTS }, (_, n) => ({ id: `node${n}`, n, by: 'node' })));
  return {
    by: 'node',
    async write(round) {
      await items.insert({ id: `away-node-${round}`, n: round, by: 'node' });
      await (await items.findOne('shared').exec()).patch({ n: round * 10 + 1, by: 'node' });
    },
    has: async (id) => Boolean(await items.findOne(id).exec()),
    rows: async () => (await items.find().exec()).map((row) => rowOf(row)).sort().join('\n'),
    async end() {
      await replication.cancel();
      await database.close();
    },
  };
}

/** A database of RxDB in Chromium. */
async function rxInPage(deployment) {
  const contents = `
    import { createRxDatabase } from 'rxdb';
    import { getRxStorageMemory } from 'rxdb/plugins/storage-memory';
    import { replicateCouchDB } from 'rxdb/plugins/replication-couchdb';
    globalThis.rxdb = { createRxDatabase, getRxStorageMemory, replicateCouchDB };
  `;
  const { outputFiles } = await build({
    stdin: { contents, resolveDir: fileURLToPath(new URL('.', import.meta.url)) },
    bundle: true,
    format: 'iife',
    platform: 'browser',
    define: { global: 'globalThis', 'process.env.NODE_ENV': '"production"' },
    write: false,
  });
  const { pages, page } = await open(deployment, outputFiles[0].text, 'rxdb');
  const begin = async (name, schema, count) => {
    const { createRxDatabase, getRxStorageMemory, replicateCouchDB } = globalThis.rxdb;
    const database = await createRxDatabase({ name: 'restarts', storage: getRxStorageMemory(), multiInstance: false });
    const { items } = await database.addCollections({ items: { schema } });
    await items.bulkInsert(Array.from({ length: count }, (_, n) => ({ id: `page${n}`, n, by: 'page' })));
    globalThis.items = items;
    globalThis.replication = replicateCouchDB({
      replicationIdentifier: 'restarts',
      collection: items,
      url: `${location.origin}/db/${name}/`,
      live: true,
      retryTime: 200,
      waitForLeadership: false,
      // An error of the server must not look like changes.
      fetch: async (url, request) => {
        const response = await fetch(url, request);
        if (response.status >= 400) throw new Error(`${response.status} ${await response.text()}`);
        return response;
      },
      pull: { batchSize: 200 },
      push: { batchSize: 200 },
    });
  };
  await call(page, begin, deployment, schema, DOCUMENTS);
  const write = async (round) => {
    await items.insert({ id: `away-page-${round}`, n: round, by: 'page' });
    await (await items.findOne('shared').exec()).patch({ n: round * 10 + 2, by: 'page' });
  };
  return {
    by: 'page',
    write: (round) => call(page, write, round),
    has: (id) => call(page, async (id) => Boolean(await items.findOne(id).exec()), id),
    rows: () => page.evaluate(`items.find().exec().then((found) => found.map((row) => (${rowOf})(row)).sort().join('\\n'))`),
    async end() {
      await page.evaluate('replication.cancel()');
      await pages.close();
    },
  };
}

/** Stops or kills the server, runs `meanwhile`, and starts it again. */
async function restart(round, databases, meanwhile) {
  await server.stop(round % 2 ? 'SIGKILL' : 'SIGTERM');
  await meanwhile();
  await server.run();
  for (const database of databases) await server.ready(database);
}

test('PouchDB and RxDB in Node.js and Chromium stay in step through 20 restarts', async () => {
  const pouchUrl = await server.deploy('pouch');
  const rxUrl = await server.deploy('rx');
  const [pouchRemote, rxRemote] = [new PouchDB(pouchUrl), new PouchDB(rxUrl)];
  await pouchRemote.bulkDocs([...numbers(DOCUMENTS, 'there'), { _id: 'shared' }]);
  const items = Array.from({ length: DOCUMENTS }, (_, n) => ({ _id: `there${n}`, n, by: 'there' }));
  await rxRemote.bulkDocs([...items, { _id: 'shared', n: 0, by: 'there' }]);

  const pouches = [await pouchHere(pouchUrl), await pouchInPage('pouch')];
  const rxs = [await rxHere(rxUrl), await rxInPage('rx')];

  /** Waits until every database has the same leaves as the server; returns the number of documents. */
  const pouchesInStep = () =>
    until('the databases of PouchDB are in step', async () => {
      const there = await leaves(pouchRemote);
      const here = await Promise.all(pouches.map((pouch) => pouch.leaves()));
      return here.every((found) => found === there) && there.split('\n').length;
    }, PATIENCE_MS);
  const rxsInStep = () =>
    until('the databases of RxDB are in step', async () => {
      const { rows } = await rxRemote.allDocs({ include_docs: true });
      const there = rows.map(({ doc }) => rowOf({ ...doc, id: doc._id })).sort().join('\n');
      const here = await Promise.all(rxs.map((each) => each.rows()));
      return here.every((found) => found === there) && rows.length;
    }, PATIENCE_MS);

  const documents = (rounds) => 3 * DOCUMENTS + 1 + 2 * rounds;
  const both = async (rounds) => {
    await until('PouchDB has everything', async () => (await pouchesInStep()) === documents(rounds), PATIENCE_MS);
    await until('RxDB has everything', async () => (await rxsInStep()) === documents(rounds), PATIENCE_MS);
  };
  await both(0);

  for (let round = 0; round < RESTARTS; round++) {
    await restart(round, ['pouch', 'rx'], () => Promise.all([...pouches, ...rxs].map((client) => client.write(round))));
    await both(round + 1);

    // Both databases of PouchDB have changed the same revision: both branches are everywhere, with their attachments.
    const { _rev, _conflicts } = await pouchRemote.get('shared', { conflicts: true });
    assert.equal(_conflicts?.length, 1, `round ${round}`);
    const branches = new Map();
    for (const rev of [_rev, ..._conflicts]) {
      const { by } = await pouchRemote.get('shared', { rev });
      branches.set(by, rev);
      const there = (await pouchRemote.getAttachment('shared', 'file', { rev })).toString();
      assert.equal(there, text(by, round));
      for (const pouch of pouches) assert.equal(await pouch.attachment('shared', rev), there, `${rev} at ${pouch.by}`);
    }
    assert.deepEqual([...branches.keys()].sort(), ['node', 'page']);
    for (const [writer, reader] of [pouches, [...pouches].reverse()]) {
      assert.equal(await reader.attachment(`away-${writer.by}-${round}`), text(writer.by, round));
    }
    await pouches[0].remove('shared', _conflicts[0]);
    await until('the conflict is resolved everywhere', async () => {
      await pouchesInStep();
      return !(await pouchRemote.get('shared', { conflicts: true }))._conflicts;
    }, PATIENCE_MS);
  }

  for (const pouch of pouches) assert.deepEqual(await pouch.failures(), [], pouch.by);
  for (const client of [...pouches, ...rxs]) await client.end();
});

/** The items that a page shows. */
const SHOWN = "[...document.querySelectorAll('li label')].map((label) => label.textContent.trim())";

const shows = (page, items) => page.until(`JSON.stringify(${SHOWN}) === ${JSON.stringify(JSON.stringify(items))}`);
const add = (page, item) =>
  call(page, (item) => {
    document.querySelector('[name=text]').value = item;
    document.querySelector('form').requestSubmit();
  }, item);
const tick = (page, index) => call(page, (index) => document.querySelectorAll('[type=checkbox]')[index].click(), index);
const isDone = (page, index, done) => page.until(`document.querySelectorAll('[type=checkbox]')[${index}].checked === ${done}`);

test('a to-do list works without a network, opens without its server, and ends equal in two browsers', async () => {
  await server.deploy('todos');
  const serve = async (port) => {
    const process_ = spawn(process.execPath, [TODO, server.url, APP.user, APP.password, 'todos', String(port)], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    const ended = once(process_, 'exit');
    const [line] = await once(process_.stdout.setEncoding('utf8'), 'data');
    return { address: line.trim(), end: async () => (process_.kill(), await ended) };
  };
  let app = await serve(0);
  const { address } = app;
  // Two origins have separate databases, as two devices have.
  const places = [address, address.replace('127.0.0.1', 'localhost')];
  const [one, other] = [await browser.open(places[0]), await browser.open(places[1])];
  for (const page of [one, other]) await page.until("document.querySelector('ul').dataset.count === '0'");
  await add(one, 'buy milk');
  for (const page of [one, other]) await shows(page, ['buy milk']);
  for (const page of [one, other]) await page.until("document.querySelector('[role=status]').textContent === 'in step'");
  await one.evaluate('navigator.serviceWorker.ready.then(() => true)');

  // In the tunnel: neither the database nor the app's server can be reached.
  await app.end();
  await server.stop('SIGKILL');
  await add(one, 'bake bread');
  await shows(one, ['buy milk', 'bake bread']);
  await tick(one, 0);
  await isDone(one, 0, true);
  // The other one changes its mind, so that it has more revisions, and wins.
  for (const done of [true, false]) {
    await tick(other, 0);
    await isDone(other, 0, done);
  }
  const again = await browser.open(places[0]);
  await shows(again, ['buy milk', 'bake bread']);
  await isDone(again, 0, true);

  await server.run();
  await server.ready('todos');
  app = await serve(new URL(address).port);
  for (const page of [one, other, again]) {
    await shows(page, ['buy milk', 'bake bread']);
    // What was done on one device is done.
    await isDone(page, 0, true);
  }
  const remote = new PouchDB(server.database('todos'));
  await until('the conflict is resolved', async () => {
    const { rows } = await remote.allDocs({ include_docs: true, conflicts: true });
    return rows.length === 2 && rows.every(({ doc }) => !doc._conflicts) && rows[0].doc.done;
  });

  // Pages of other sites get nothing.
  const stranger = { headers: { origin: 'https://elsewhere.example' } };
  assert.equal((await fetch(`${address}/db/todos/_all_docs`, stranger)).status, 403);
  for (const path of ['/pools', '/server.mjs', '/../pages.mjs']) assert.equal((await fetch(address + path)).status, 404, path);
  // `fetch` would resolve the dots itself.
  for (const path of ['/db/../../pools', '/db/%2e%2e/other/todos']) {
    const [answer] = await once(get({ hostname: '127.0.0.1', port: new URL(address).port, path }), 'response');
    assert.equal(answer.resume().statusCode, 404, path);
  }
  await app.end();
});
