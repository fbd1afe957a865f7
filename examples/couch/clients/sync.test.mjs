// PouchDB, RxDB and a Couchbase SDK on the same documents.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import couchbase from 'couchbase';
import { PASSWORD, Server, USER, until } from './server.mjs';
import { PouchDB, leaves, local, numbers, restarted, rx } from './stores.mjs';

let server;

before(async () => {
  server = await Server.start();
});
after(() => server?.close());

async function sdk(database) {
  const cluster = await couchbase.connect(server.connection, { username: USER, password: PASSWORD });
  return { cluster, collection: cluster.bucket('default').scope('_default').collection(database) };
}

test('PouchDB syncs 1,000 documents each way, live, with deletions and a restart', async () => {
  const url = await server.deploy('both');
  const remote = new PouchDB(url);
  const database = local();
  await database.bulkDocs(numbers(1000, 'here'));
  await remote.bulkDocs(numbers(1000, 'there'));
  const sync = database.sync(restarted(url), { live: true, retry: true, back_off_function: () => 100 });
  sync.on('error', (error) => assert.fail(error));
  const count = async (of, wanted) => (await of.info()).doc_count === wanted;
  await until('all are here', () => count(database, 2000));
  await until('all are there', () => count(remote, 2000));
  assert.equal(await leaves(remote), await leaves(database));

  await database.remove(await database.get('there0001'));
  await remote.remove(await remote.get('here0001'));
  await until('the deletion is there', async () => (await remote.get('there0001').catch((e) => e)).reason === 'deleted');
  await until('the deletion is here', async () => (await database.get('here0001').catch((e) => e)).reason === 'deleted');

  // Live sync continues by itself after the server was away, stopped cleanly or killed.
  for (const [round, signal] of ['SIGTERM', 'SIGKILL'].entries()) {
    await server.stop(signal);
    await database.put({ _id: `away${round}`, round });
    await server.run();
    await server.ready('both');
    await until('what was written meanwhile is there', async () => (await remote.get(`away${round}`)).round === round);
    await remote.put({ _id: `back${round}`, round });
    await until('and what was written after is here', async () => (await database.get(`back${round}`)).round === round);
  }
  await until('both have the same', async () => (await leaves(remote)) === (await leaves(database)));
  sync.cancel();
  assert.equal((await remote.info()).doc_count, 2002);

  // A second client gets everything, and nothing again once it has it.
  const second = local();
  const first = await second.replicate.from(url);
  assert.equal(first.docs_written, 2004);
  assert.equal(await leaves(second), await leaves(remote));
  const again = await second.replicate.from(url);
  assert.equal(again.docs_read, 0);
});

test('conflicts have the same winner everywhere, and can be resolved', async () => {
  const url = await server.deploy('conflicts');
  const [one, other] = [local(), local()];
  await one.put({ _id: 'a', from: 'begin' });
  await one.replicate.to(url);
  await other.replicate.from(url);
  await one.put({ ...(await one.get('a')), from: 'one' });
  await other.put({ ...(await other.get('a')), from: 'other' });
  for (const database of [one, other, one]) await database.sync(url);
  const remote = new PouchDB(url);
  const seen = await Promise.all([one, other, remote].map((db) => db.get('a', { conflicts: true })));
  assert.deepEqual(seen[1], seen[0]);
  assert.deepEqual(seen[2], seen[0]);
  assert.equal(seen[0]._conflicts.length, 1);
  const loser = await remote.get('a', { rev: seen[0]._conflicts[0] });
  assert.notEqual(loser.from, seen[0].from);

  // SDKs see the winner, as plain JSON.
  const { cluster, collection } = await sdk('conflicts');
  assert.deepEqual((await collection.get('a')).content, { from: seen[0].from });

  await other.remove('a', seen[0]._conflicts[0]);
  for (const database of [other, one]) await database.sync(url);
  for (const database of [one, other, remote]) {
    assert.equal((await database.get('a', { conflicts: true }))._conflicts, undefined);
  }

  // The winner is deleted, so that the other branch wins.
  await one.bulkDocs([{ _id: 'b', _rev: '1-x', n: 1 }, { _id: 'b', _rev: '1-y', n: 2 }], { new_edits: false });
  await one.sync(url);
  await remote.remove('b', '1-y');
  assert.equal((await remote.get('b'))._rev, '1-x');
  assert.deepEqual((await collection.get('b')).content, { n: 1 });
  await cluster.close();
});

test('documents of an SDK are revisions, and those of PouchDB are documents of an SDK', async () => {
  const url = await server.deploy('mixed');
  const { cluster, collection } = await sdk('mixed');
  const database = local();
  const sync = database.sync(restarted(url), { live: true, retry: true });
  await collection.upsert('s', { by: 'sdk', n: 1 });
  const first = await until('it is in PouchDB', () => database.get('s'));
  assert.match(first._rev, /^1-/);
  assert.deepEqual({ by: first.by, n: first.n }, { by: 'sdk', n: 1 });

  await database.put({ ...first, n: 2 });
  await until('the SDK has the edit', async () => (await collection.get('s')).content.n === 2);
  assert.deepEqual((await collection.get('s')).content, { by: 'sdk', n: 2 });

  await collection.mutateIn('s', [couchbase.MutateInSpec.upsert('tags', ['new'])]);
  const third = await until('PouchDB has the third', async () => {
    const found = await database.get('s', { revs: true, conflicts: true });
    return found.tags && found;
  });
  assert.match(third._rev, /^3-/);
  assert.equal(third._revisions.ids.length, 3);
  assert.equal(third._conflicts, undefined);

  // Only the expiry time changes, which is not a revision.
  await collection.touch('s', 3600);
  await collection.remove('s');
  await until('it is deleted in PouchDB', async () => (await database.get('s').catch((e) => e)).reason === 'deleted');
  const tombstone = (await database.get('s', { open_revs: 'all' }))[0].ok;
  assert.match(tombstone._rev, /^4-/);
  await collection.insert('s', { by: 'sdk', again: true });
  const back = await until('it is back', async () => {
    const found = await database.get('s', { conflicts: true });
    return found.again && found;
  });
  assert.match(back._rev, /^5-/);
  assert.equal(back._conflicts, undefined);

  // The SDK makes many edits while PouchDB edits: nothing is lost, and both end equal.
  for (let n = 0; n < 100; n++) await collection.upsert(`many${n % 10}`, { n });
  await until('all are here', async () => {
    const found = await database.allDocs({ include_docs: true, startkey: 'many', endkey: 'many\uffff' });
    return found.rows.length === 10 && found.rows.every(({ doc }) => doc.n >= 90);
  });
  const { rows } = await database.allDocs({ include_docs: true, conflicts: true });
  assert.ok(rows.every(({ doc }) => !doc._conflicts));

  // A document that is not a JSON object is not replicated, and does no harm.
  await collection.upsert('list', [1, 2]);
  await collection.upsert('reserved', { _secret: 1 });
  await collection.upsert('last', { n: 1 });
  await until('the one behind them is here', () => database.get('last'));
  assert.equal((await database.get('list').catch((e) => e)).status, 404);
  sync.cancel();
  await cluster.close();
});

test('attachments are replicated both ways', async () => {
  const url = await server.deploy('attachments');
  const [one, other] = [local(), local()];
  const bytes = Buffer.alloc(300_000, 'nacre');
  await one.put({ _id: 'a', _attachments: { 'photo.bin': { content_type: 'application/x-photo', data: bytes } } });
  await one.replicate.to(url);
  await other.replicate.from(url);
  assert.ok(bytes.equals(await other.getAttachment('a', 'photo.bin')));
  const remote = new PouchDB(url);
  assert.ok(bytes.equals(await remote.getAttachment('a', 'photo.bin')));
  const { rev } = await remote.putAttachment('a', 'dir/note.txt', (await remote.get('a'))._rev, Buffer.from('hello'), 'text/plain');
  await one.replicate.from(url);
  const found = await one.get('a', { attachments: true });
  assert.equal(found._rev, rev);
  assert.equal(Buffer.from(found._attachments['dir/note.txt'].data, 'base64').toString(), 'hello');
  assert.ok(bytes.equals(Buffer.from(found._attachments['photo.bin'].data, 'base64')));
  // An edit keeps the attachments that it names as stubs.
  await one.put({ ...(await one.get('a')), edited: true });
  await one.replicate.to(url);
  assert.ok(bytes.equals(await remote.getAttachment('a', 'photo.bin')));
  const { cluster, collection } = await sdk('attachments');
  assert.deepEqual((await collection.get('a')).content, { edited: true });
  await cluster.close();
});

test('RxDB syncs 1,000 documents each way, live, with conflicts, deletions and a restart', async () => {
  const url = await server.deploy('rx');
  const { cluster, collection } = await sdk('rx');
  const one = await rx('rx-one', url);
  const other = await rx('rx-other', url);
  await one.items.bulkInsert(Array.from({ length: 1000 }, (_, n) => ({ id: `one${n}`, n, by: 'one' })));
  await Promise.all(Array.from({ length: 1000 }, (_, n) => collection.upsert(`sdk${n}`, { n, by: 'sdk' })));
  for (const { items } of [one, other]) {
    await until('all are here', async () => (await items.count().exec()) === 2000);
  }
  assert.deepEqual((await collection.get('one7')).content, { n: 7, by: 'one' });
  assert.equal((await other.items.findOne('sdk7').exec()).by, 'sdk');

  await (await one.items.findOne('one1').exec()).remove();
  await until('the deletion arrives', async () => !(await other.items.findOne('one1').exec()));
  await collection.remove('sdk1');
  await until('that of the SDK, too', async () => !(await one.items.findOne('sdk1').exec()));

  // Both change the same document: the later one gets the state of the other.
  await Promise.all([one, other].map(async ({ items }, n) => (await items.findOne('one2').exec()).patch({ n: 1000 + n })));
  await until('both have the same', async () => {
    const [a, b] = await Promise.all([one, other].map(({ items }) => items.findOne('one2').exec()));
    const stored = (await collection.get('one2')).content;
    return a.n === b.n && a.n === stored.n && a.n >= 1000;
  });

  await server.stop();
  await one.items.insert({ id: 'away', n: 1, by: 'one' });
  await server.run();
  await server.ready('rx');
  await until('what was written meanwhile arrives', () => other.items.findOne('away').exec());
  for (const { replication, database } of [one, other]) {
    await replication.cancel();
    await database.close();
  }
  await cluster.close();
});

async function lines(response, count) {
  const found = [];
  let text = '';
  for await (const piece of response.body) {
    text += Buffer.from(piece).toString();
    const parts = text.split('\n');
    text = parts.pop();
    found.push(...parts);
    if (found.filter(Boolean).length >= count) return found;
  }
  return found;
}

test('feeds that stay open say what happens, and that they are there', async () => {
  await server.deploy('feeds');
  const path = '/_plugin/feeds/feeds';
  const put = (id) => server.done('PUT', `${path}/${id}`, { body: '{}' });
  await put('a');
  const continuous = await server.rest('GET', `${path}/_changes?feed=continuous&heartbeat=200`);
  const reading = lines(continuous, 3);
  await put('b');
  await put('c');
  const seen = await reading;
  const ids = seen.filter(Boolean).map((line) => JSON.parse(line).id);
  assert.deepEqual([...ids].sort(), ['a', 'b', 'c']);

  const quiet = await server.rest('GET', `${path}/_changes?feed=continuous&heartbeat=100&since=now`);
  let beats = 0;
  for await (const piece of quiet.body) {
    beats += Buffer.from(piece).toString().length;
    if (beats >= 3) break;
  }

  const events = await server.rest('GET', `${path}/_changes?feed=eventsource&heartbeat=200`);
  assert.equal(events.headers.get('content-type'), 'text/event-stream');
  const some = await lines(events, 6);
  const last = some.filter((line) => line.startsWith('id: ')).at(-1).slice(4);
  await put('d');
  const resumed = await server.rest('GET', `${path}/_changes?feed=eventsource`, { headers: { 'last-event-id': last } });
  const [data] = await lines(resumed, 1);
  assert.equal(JSON.parse(data.slice(6)).id, 'd');

  const { last_seq: since } = await (await server.rest('GET', `${path}/_changes`)).json();
  const begun = Date.now();
  const waiting = server.rest('GET', `${path}/_changes?feed=longpoll&since=${since}`);
  const nothing = await (await server.rest('GET', `${path}/_changes?feed=longpoll&since=${since}&timeout=300`)).json();
  assert.deepEqual(nothing, { results: [], last_seq: since, pending: 0 });
  assert.ok(Date.now() - begun >= 300);
  await put('e');
  const { results } = await (await waiting).json();
  assert.deepEqual(results.map(({ id }) => id), ['e']);

  // 200 waiting clients hold no thread: others are answered meanwhile.
  const control = new AbortController();
  const many = Array.from({ length: 200 }, () =>
    fetch(`${server.url}${path}/_changes?feed=longpoll&since=now&heartbeat=10000`, {
      signal: control.signal,
      headers: { authorization: `Basic ${Buffer.from(`${USER}:${PASSWORD}`).toString('base64')}` },
    }).then((answer) => answer.json()),
  );
  await new Promise((resolve) => setImmediate(resolve));
  await put('f');
  // Clients that began to wait after `f` get `g`.
  const answered = Promise.all(many);
  await until('all are answered', async () => {
    await put(`g${Date.now()}`);
    return Promise.race([answered.then(() => true), new Promise((resolve) => setTimeout(resolve, 200, false))]);
  });
  control.abort();
});

test('strangers and users without the right are refused', async () => {
  await server.deploy('guarded');
  const path = '/_plugin/guarded/guarded';
  assert.equal((await fetch(server.url + path)).status, 401);
  const wrong = await server.rest('GET', path, { password: 'wrong' });
  assert.equal(wrong.status, 401);
  const user = (name, roles) =>
    server.done('PUT', `/settings/rbac/users/local/${name}`, { body: new URLSearchParams({ password: 'pass-1234', roles }) });
  await user('reader', 'data_reader[default]');
  await user('app', 'plugin_invoke[default]');
  const as = (name, method, rest = '', body) =>
    server.rest(method, path + rest, { user: name, password: 'pass-1234', body });
  for (const [method, rest, body] of [['GET', ''], ['GET', '/_changes'], ['PUT', '/a', '{}'], ['GET', '/_local/x']]) {
    assert.equal((await as('reader', method, rest, body)).status, 403, `${method} ${rest}`);
  }
  assert.equal((await as('app', 'PUT', '/a', '{}')).status, 201);
  const remote = new PouchDB(server.database('guarded', 'app', 'pass-1234'));
  assert.equal((await local().replicate.from(remote)).docs_written, 1);
});

test('lying clients get clear errors, and memory stays bounded', async () => {
  await server.deploy('hostile');
  const path = '/_plugin/hostile/hostile';
  const headers = { 'content-type': 'application/json' };
  const post = (what, body) => server.rest('POST', `${path}/${what}`, { headers, body: typeof body === 'string' ? body : JSON.stringify(body) });
  const replicated = async (doc) => {
    const answer = await post('_bulk_docs', { docs: [doc], new_edits: false });
    return { status: answer.status, rows: await answer.json() };
  };

  // Invalid trees.
  const lie = (revisions, rev = '3-c') => replicated({ _id: 'lie', _rev: rev, _revisions: revisions });
  for (const revisions of [
    { start: 1, ids: ['c', 'b', 'a'] },
    { start: 3, ids: [] },
    { start: 3, ids: ['x', 'b', 'a'] },
    { start: 2 ** 53, ids: ['c'] },
    { start: 6000, ids: Array(6000).fill('a') },
    { start: -3, ids: ['c'] },
    { start: 3, ids: 'c' },
  ]) {
    const { status, rows } = await lie(revisions);
    assert.equal(status, 201);
    assert.equal(rows[0].error, 'doc_validation', JSON.stringify(rows));
    assert.ok(rows[0].reason.length > 10);
  }
  for (const rev of ['x', '0-a', '-1-a', '1-', `1-${'a'.repeat(300)}`, '99999999999999999999-a']) {
    const { rows } = await replicated({ _id: 'lie', _rev: rev });
    assert.equal(rows[0].error, 'bad_request', rev);
  }
  // The same revision with two histories: the first one stays.
  assert.deepEqual((await lie({ start: 3, ids: ['c', 'b', 'a'] })).rows, []);
  assert.deepEqual((await lie({ start: 3, ids: ['c', 'y', 'x'] })).rows, []);
  const told = await (await server.rest('GET', `${path}/lie?revs=true`)).json();
  assert.deepEqual(told._revisions, { start: 3, ids: ['c', 'b', 'a'] });

  // 10,000 conflicting revisions of one document: the first 1,000 stay, the others are refused by name.
  const before = await server.memoryKib();
  let refused = 0;
  for (let batch = 0; batch < 20; batch++) {
    const docs = Array.from({ length: 500 }, (_, n) => ({ _id: 'torn', _rev: `1-${batch * 500 + n}`, text: 'x'.repeat(50) }));
    const answer = await post('_bulk_docs', { docs, new_edits: false });
    assert.equal(answer.status, 201);
    for (const row of await answer.json()) {
      assert.equal(row.error, 'forbidden');
      assert.match(row.reason, /1000 conflicting revisions/);
      refused++;
    }
  }
  assert.equal(refused, 9000);
  const torn = await (await server.rest('GET', `${path}/torn?conflicts=true`)).json();
  assert.equal(torn._conflicts.length, 999);

  // 100 MB in one request are refused before they are buffered.
  const piece = Buffer.alloc(1 << 20, 'x');
  async function* large() {
    yield Buffer.from('{"docs":[{"_id":"large","text":"');
    for (let n = 0; n < 100; n++) yield piece;
    yield Buffer.from('"}]}');
  }
  const authorization = `Basic ${Buffer.from(`${USER}:${PASSWORD}`).toString('base64')}`;
  const answer = await fetch(`${server.url}${path}/_bulk_docs`, {
    method: 'POST', headers: { ...headers, authorization }, body: large(), duplex: 'half',
  }).then((response) => response.status, (error) => error.cause?.code ?? error.message);
  // The server answers and closes; a client that still sends may see only that.
  assert.ok([413, 'ECONNRESET', 'EPIPE', 'UND_ERR_SOCKET'].includes(answer), String(answer));
  assert.equal((await server.rest('GET', `${path}/large`)).status, 404);
  const said = await server.rest('POST', `${path}/_bulk_docs`, { headers, body: Buffer.alloc(33 << 20, ' ') });
  assert.equal(said.status, 413);
  assert.match(await said.text(), /large|bytes|MiB/);
  const grown = (await server.memoryKib()) - before;
  assert.ok(grown < 600 << 10, `${grown} KiB more`);

  // 20,000 documents in one request are returned in pieces.
  const docs = numbers(20_000, 'bulk');
  const rows = await (await post('_bulk_docs', { docs })).json();
  assert.equal(rows.filter(({ ok }) => ok).length, 20_000);
  const all = await (await server.rest('GET', `${path}/_all_docs?startkey="bulk"&endkey="bulk~"`)).json();
  assert.equal(all.rows.length, 20_000);

  for (const body of ['', '{', '[]', '{"docs":1}', '{"docs":[1]}', '{"docs":[{"_id":"a"}],"new_edits":false}', '\u0000']) {
    const wrong = await post('_bulk_docs', body);
    assert.equal(wrong.status, 400, body);
    assert.equal((await wrong.json()).error, 'bad_request');
  }
});
