// The console against a made-up node: what a real one rarely does, at once and each time.

import assert from 'node:assert/strict';
import { readFileSync, readdirSync, statSync } from 'node:fs';
import { after, before, describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import { XSS } from './answers.mjs';
import { launch, open } from './browser.mjs';
import { POLICY, serve } from './serve.mjs';

const SCREENS = ['dashboard', 'servers', 'flows', 'buckets', 'buckets/travel', 'documents/travel', 'query', 'indexes', 'search', 'search/travel.inventory.hotels', 'search/travel.inventory.hotels?tab=definition', 'search/travel.inventory.hotels?tab=analysis', 'views/travel', 'eventing', 'eventing/enrich', 'plugins', 'plugins/orders-audit', 'replication', 'replication/u1/travel/copy', 'backup', 'security', 'logs', 'settings'];
const DIST = fileURLToPath(new URL('../dist/', import.meta.url));

let browser;
let made;
before(async () => {
  browser = await launch();
  made = await serve();
});
after(async () => {
  await browser?.close();
  await made?.close();
});

/** A page of the console after its login, and the node behind it. */
async function shown(path, options = {}, state = {}) {
  Object.assign(made.node, { claimed: true, session: true, conflict: false, empty: false, forbidden: false, broken: false, off: [], held: [], uuid: 'aa', paused: false, requests: [] }, state);
  const view = await open(browser, options);
  await view.go(`${made.url}/ui/index.html#/${path}`);
  await view.page.locator('main h1').first().waitFor();
  return view;
}
const settled = (page) => page.waitForFunction(() => !document.querySelector('[aria-busy=true]'));

describe('files', () => {
  const files = readdirSync(DIST, { recursive: true }).filter((name) => statSync(DIST + name).isFile());
  const bytes = (name) => (/\.(js|css|html|svg)$/.test(name) ? gzipSync(readFileSync(DIST + name), { level: 9 }).length : statSync(DIST + name).size);

  it('take at most 800 KB in the binary', () => {
    const sum = files.reduce((all, name) => all + bytes(name), 0);
    assert.ok(sum <= 800_000, `${sum} bytes`);
    console.log(`all: ${Math.round(sum / 1000)} KB`);
  });

  it('are at most 100 KB of scripts and styles, in few requests, before the dashboard is there', async () => {
    const view = await shown('dashboard', {}, { session: true });
    await view.page.locator('canvas').first().waitFor();
    const loaded = await view.page.evaluate(() => performance.getEntriesByType('resource').map(({ name }) => name).concat(performance.getEntriesByType('navigation')[0].name));
    const names = loaded.map((url) => new URL(url).pathname.slice('/ui/'.length)).filter((name) => /^(assets\/.*\.(js|css)|index.html)$/.test(name));
    const sum = [...new Set(names)].reduce((all, name) => all + bytes(name), 0);
    console.log(`first load: ${Math.round(sum / 1000)} KB in ${names.length} files`);
    assert.ok(sum <= 100_000, `${sum} bytes: ${names.join(' ')}`);
    await view.check();
    await view.close();
  });

  it('are served here under the policy of the node', () => {
    const source = readFileSync(new URL('../../server/nacre-server/src/rest/console/files.rs', import.meta.url), 'utf8');
    const text = /POLICY: &str = "([^"]+)"/.exec(source)[1].replace(/\\\n\s*/g, '');
    assert.equal(text, POLICY);
  });
});

describe('each screen', () => {
  for (const path of SCREENS) {
    it(`${path}: runs no value as code, asks no other origin, and is accessible in both colours`, async () => {
      for (const scheme of ['light', 'dark']) {
        const view = await shown(path, { scheme });
        await settled(view.page);
        await view.page.waitForTimeout(50);
        assert.deepEqual(await view.accessibility(), [], scheme);
        await view.check();
        await view.close();
      }
    });
  }

  it('says what is empty, forbidden and broken', async () => {
    const states = [
      [{ empty: true }, 'indexes', 'There is no index yet'],
      [{ empty: true }, 'buckets', 'There is no bucket yet'],
      [{ empty: true }, 'eventing', 'No function yet'],
      [{ forbidden: true }, 'security', 'You may not see this'],
      [{ forbidden: true }, 'dashboard', 'You may not see measurements'],
      [{ broken: true }, 'logs', 'This could not be read'],
      [{ empty: true }, 'search', 'No search index yet'],
      [{ off: ['/_p/fts'] }, 'search', 'This service does not run here'],
      [{ forbidden: true }, 'search', 'You may not see this'],
      [{ broken: true }, 'search', 'This could not be read'],
      [{}, 'search/travel.inventory.gone', 'There is no index travel.inventory.gone'],
      [{ empty: true }, 'replication', 'No bucket is replicated'],
      [{ off: ['/pools/default/remoteClusters'] }, 'replication', 'This service does not run here'],
      [{ forbidden: true }, 'replication', 'You may not see this'],
      [{ broken: true }, 'replication', 'This could not be read'],
      [{}, 'replication/u1/gone/copy', 'There is no such replication'],
      [{ empty: true }, 'backup', 'There is no bucket yet'],
      [{ forbidden: true }, 'backup', 'You may not see this'],
      [{ broken: true }, 'backup', 'This could not be read'],
      [{ off: ['/_p/event'] }, 'eventing', 'This service does not run here'],
    ];
    for (const [state, path, text] of states) {
      const view = await shown(path, {}, state);
      await view.page.getByText(text).first().waitFor();
      await view.check();
      await view.close();
    }
  });

  it('says what is awaited, and what is no longer up to date', async () => {
    for (const [path, held] of [['search', '/_p/fts'], ['replication', '/pools/default/replicationInfos'], ['backup', '/pools/default/buckets']]) {
      const view = await shown(path, {}, { held: [held] });
      await view.page.locator('[aria-busy=true]').first().waitFor();
      await view.close();
      const old = await shown(path);
      await settled(old.page);
      await old.page.locator('tbody tr').first().waitFor();
      made.node.broken = true;
      await old.page.getByText('Not up to date.').first().waitFor();
      assert.ok((await old.page.locator('tbody tr').count()) > 0, 'what was read stays');
      await old.check();
      await old.close();
    }
  });

  it('can be read on a narrow screen', async () => {
    for (const path of ['dashboard', 'buckets', 'query', 'search/travel.inventory.hotels?tab=definition', 'replication', 'backup']) {
      const view = await shown(path, { width: 360, height: 740 });
      await settled(view.page);
      const wide = await view.page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      assert.ok(wide <= 0, `${path} is ${wide} px too wide`);
      await view.close();
    }
  });
});

describe('a person', () => {
  it('claims a new node', async () => {
    const view = await shown('', {}, { claimed: false, session: false });
    await view.page.getByRole('heading', { name: 'A new node' }).waitFor();
    assert.deepEqual(await view.accessibility(), []);
    await view.page.getByLabel('Password').fill('password');
    await view.page.getByRole('button', { name: 'Begin a new cluster' }).click();
    await view.page.getByRole('heading', { name: 'Dashboard' }).waitFor();
    await view.check();
    await view.close();
  });

  it('signs in, and is told when the password is wrong', async () => {
    const view = await shown('logs', {}, { session: false });
    assert.deepEqual(await view.accessibility(), []);
    await view.page.getByLabel('User').fill('Administrator');
    await view.page.getByLabel('Password').fill('wrong');
    await view.page.getByRole('button', { name: 'Sign in' }).click();
    await view.page.getByText('the user or the password is wrong').waitFor();
    await view.page.getByLabel('Password').fill('password');
    await view.page.keyboard.press('Enter');
    await view.page.getByRole('heading', { name: 'Logs' }).waitFor();
    await view.close();
  });

  it('loses nothing that was typed when the session ends', async () => {
    const view = await shown('documents/travel?id=airline_12');
    const editor = view.page.getByLabel('Document', { exact: true }).last();
    await view.page.getByText('Medway').first().waitFor();
    await editor.click();
    await view.page.keyboard.press('Control+End');
    await view.page.keyboard.type(' ');
    made.node.session = false;
    await view.page.getByRole('button', { name: 'Save' }).click();
    await view.page.getByRole('heading', { name: 'Session ended' }).waitFor();
    await view.page.getByLabel('Password').fill('password');
    await view.page.keyboard.press('Enter');
    await view.page.getByRole('heading', { name: 'Session ended' }).waitFor({ state: 'detached' });
    await view.page.getByText('not saved').waitFor();
    await view.page.getByRole('button', { name: 'Save' }).click();
    await view.page.getByText('airline_12 was saved').waitFor();
    assert.match(made.node.stored, /9007199254740993/, 'a number beyond those of JavaScript is as it was');
    await view.check();
    await view.close();
  });

  it('sees both versions when somebody else was faster', async () => {
    const view = await shown('documents/travel?id=airline_12', {}, { conflict: true });
    await view.page.getByText('Medway').first().waitFor();
    await view.page.getByLabel('Document', { exact: true }).last().click();
    await view.page.keyboard.press('Control+End');
    await view.page.keyboard.type(' ');
    await view.page.keyboard.press('Control+Enter');
    const dialog = view.page.getByRole('dialog');
    await dialog.getByText('"theirs"').waitFor();
    assert.deepEqual(await view.accessibility(), []);
    await dialog.getByRole('button', { name: 'Replace theirs with mine' }).click();
    await view.page.getByText('airline_12 was saved').waitFor();
    await view.check();
    await view.close();
  });

  it('runs a query, sees its rows, its plan and where it is wrong', async () => {
    const view = await shown('query?q=SELECT%20*%20FROM%20hotel');
    await view.page.getByLabel('Statement', { exact: true }).last().waitFor();
    await view.page.getByRole('button', { name: 'Run' }).click();
    await view.page.getByText('2,000 rows').waitFor();
    await view.page.getByText('9007199254740993').first().waitFor();
    const drawn = await view.page.locator('tbody tr').count();
    assert.ok(drawn < 100, `${drawn} rows are drawn`);
    await view.page.getByRole('button', { name: 'Explain' }).click();
    await view.page.locator('svg .name', { hasText: 'HashJoin' }).waitFor();
    assert.deepEqual(await view.accessibility(), []);
    await view.check();
    await view.close();
    const wrong = await shown('query?q=WRONG');
    await wrong.page.getByLabel('Statement', { exact: true }).last().waitFor();
    await wrong.page.getByRole('button', { name: 'Run' }).click();
    await wrong.page.getByText('syntax error - line 1').first().waitFor();
    await wrong.check();
    await wrong.close();
  });

  it('searches, sees why a document was found, and what did not answer', async () => {
    const view = await shown('search/travel.inventory.hotels');
    await view.page.getByLabel('Query', { exact: true }).fill('+plot:strangers');
    await view.page.getByLabel('Count by').fill('country');
    await view.page.getByLabel('Explain scores').check();
    await view.page.getByRole('button', { name: 'Search', exact: true }).click();
    await view.page.getByText('25 hits').waitFor();
    await view.page.locator('mark', { hasText: 'strangers' }).waitFor();
    await view.page.getByText('1 part of 3 did not answer').waitFor();
    await view.page.getByRole('region', { name: 'Counts of country' }).getByText('france').waitFor();
    await view.page.getByText('Why this score').first().click();
    await view.page.getByText('sum of:').waitFor();
    assert.deepEqual(await view.accessibility(), []);
    await view.page.getByRole('button', { name: 'Next' }).click();
    await view.page.getByText('There are no more.').waitFor();
    await view.page.getByLabel('Kind of query').selectOption('json');
    await view.page.getByLabel('Query', { exact: true }).fill('[]');
    await view.page.getByRole('button', { name: 'Search', exact: true }).click();
    await view.page.getByText('the query must be a JSON object').waitFor();
    await view.page.getByRole('tab', { name: 'Analysis' }).click();
    await view.page.getByRole('button', { name: 'Show its terms' }).click();
    await view.page.getByText('stranger', { exact: true }).waitFor();
    await view.check();
    await view.close();
  });

  it('edits the definition of an index as a form, and loses nothing to a session that ends or to somebody faster', async () => {
    const view = await shown('search/travel.inventory.hotels?tab=definition');
    await view.page.getByLabel('Field for inventory.hotel').fill('address.city');
    await view.page.getByRole('button', { name: 'Add a field' }).first().click();
    await view.page.getByText('address.city').first().waitFor();
    await view.page.getByLabel('Kind of address.city').selectOption('number');
    made.node.session = false;
    await view.page.getByRole('button', { name: 'Save' }).click();
    await view.page.getByRole('heading', { name: 'Session ended' }).waitFor();
    await view.page.getByLabel('Password').fill('password');
    await view.page.keyboard.press('Enter');
    await view.page.getByRole('heading', { name: 'Session ended' }).waitFor({ state: 'detached' });
    await view.page.getByText('not saved').waitFor();
    made.node.uuid = 'other';
    await view.page.getByRole('button', { name: 'Save' }).click();
    await view.page.getByText('concurrent index definition update').waitFor();
    await view.page.getByRole('link', { name: 'Logs' }).click();
    await view.page.getByRole('dialog', { name: 'Leave without saving?' }).waitFor();
    await view.page.getByRole('button', { name: 'Cancel' }).click();
    await view.page.getByRole('button', { name: 'Replace theirs with mine' }).click();
    await view.page.getByText('was saved').waitFor();
    await view.page.getByText('not saved').waitFor({ state: 'detached' });
    const stored = JSON.parse(made.node.stored);
    assert.equal(stored.params.mapping.types['inventory.hotel'].properties.address.properties.city.fields[0].type, 'number');
    assert.equal(stored.params.mapping.types['inventory.hotel'].properties[XSS].fields[0].type, 'text', 'what was there stays');
    await view.check();
    await view.close();
  });

  it('follows a replication, pauses it and changes its rules', async () => {
    const view = await shown('replication');
    await view.page.getByText('94 %').or(view.page.getByText('93.8 %')).first().waitFor();
    await view.page.locator('tbody tr').first().click();
    await view.page.getByText('2 documents').waitFor();
    await view.page.getByText('put aside').waitFor();
    await view.page.getByRole('button', { name: 'Pause', exact: true }).click();
    await view.page.getByRole('button', { name: 'Resume' }).waitFor();
    const rules = view.page.getByLabel('Rules').last();
    await rules.click();
    await view.page.keyboard.press('Control+a');
    await view.page.keyboard.insertText('{"a.b": "c.d"}');
    await view.page.getByRole('region', { name: 'Collections' }).or(view.page.locator('section', { has: view.page.getByRole('heading', { name: 'Collections' }) })).getByRole('button', { name: 'Save' }).first().click();
    await view.page.getByText('The rules were saved').waitFor();
    assert.deepEqual(JSON.parse(made.node.rules), { 'a.b': 'c.d' });
    await view.check();
    await view.close();
  });

  it('is told what is wrong with another cluster, in the form, with what was typed', async () => {
    const view = await shown('replication');
    await view.page.getByRole('button', { name: 'Add a cluster' }).click();
    const dialog = view.page.getByRole('dialog');
    await dialog.getByLabel('Name').fill('second');
    await dialog.getByLabel('A node of it').fill('10.0.2.1');
    await dialog.getByLabel('User there').fill('ann');
    await dialog.getByLabel('Password there').fill('secret');
    await dialog.getByRole('button', { name: 'Add', exact: true }).click();
    await dialog.getByText('Could not connect').first().waitFor();
    assert.equal(await dialog.getByLabel('Name').inputValue(), 'second');
    assert.deepEqual(await view.accessibility(), []);
    await view.check();
    await view.close();
  });

  it('is told how to back up what was chosen', async () => {
    const view = await shown('backup');
    await view.page.getByLabel('Back up travel').check();
    await view.page.getByText('nacre backup create backups --bucket travel').waitFor();
    await view.page.getByLabel(`Back up ${XSS}`).check();
    await view.page.getByText(`--bucket '<img`).first().waitFor();
    await view.check();
    await view.close();
  });

  it('sees rows of a view while typing it, and what is wrong with it', async () => {
    const view = await shown('views/travel');
    await view.page.getByText('µs a document').waitFor();
    await view.page.getByText('The time was not enough').waitFor();
    const before = made.node.requests.filter((request) => request.endsWith('/_preview')).length;
    await view.page.getByLabel('Map function').last().click();
    await view.page.keyboard.press('Control+Home');
    await view.page.keyboard.insertText('/* WRONG */');
    await view.page.getByText('SyntaxError').waitFor();
    await view.page.keyboard.press('Control+z');
    await view.page.getByText('SyntaxError').waitFor({ state: 'detached' });
    assert.ok(made.node.requests.filter((request) => request.endsWith('/_preview')).length > before);
    await view.page.getByLabel('Reduced').check();
    await view.page.getByText('917').waitFor();
    assert.deepEqual(await view.accessibility(), []);
    await view.check();
    await view.close();
  });

  it('tries a function without effects and filters its log', async () => {
    const view = await shown('eventing/enrich');
    const code = view.page.getByLabel('Code', { exact: true }).last();
    await code.click();
    await view.page.keyboard.press('Control+a');
    await view.page.keyboard.insertText('function OnUpdate(doc, meta) {}');
    await view.page.getByText('not saved').waitFor();
    await view.page.getByLabel('IDs of documents').fill('order_9');
    await view.page.getByRole('button', { name: 'Try this code' }).click();
    const outcome = view.page.getByRole('region', { name: 'Outcome' });
    await outcome.getByText('order_9').waitFor();
    await outcome.getByText('sets the timer').waitFor();
    await view.page.getByLabel('Filter the log').fill('totalled');
    assert.equal(await view.page.getByRole('log').getByText('order_7').count() > 0, true);
    assert.deepEqual(await view.accessibility(), []);
    await view.check();
    await view.close();
  });

  it('goes anywhere by the palette and by keys', async () => {
    const view = await shown('dashboard');
    await view.page.keyboard.press('Control+k');
    const field = view.page.getByRole('combobox', { name: 'Go to' });
    await field.fill('orders');
    await view.page.getByRole('option', { name: /Documents of orders/ }).waitFor();
    assert.deepEqual(await view.accessibility(), []);
    await field.fill('secur');
    await view.page.keyboard.press('Enter');
    await view.page.getByRole('heading', { name: 'Security' }).waitFor();
    await view.page.keyboard.press('g');
    await view.page.keyboard.press('l');
    await view.page.getByRole('heading', { name: 'Logs' }).waitFor();
    await view.page.keyboard.press('.');
    await view.page.getByRole('button', { name: 'Paused' }).waitFor();
    await view.check();
    await view.close();
  });

  it('works below the prefix of a proxy, and by a name without TLS', async () => {
    const below = await serve({ prefix: '/db/one' });
    const view = await open(browser);
    await view.go(`${below.url.replace('127.0.0.1', 'db.test')}/ui/index.html#/buckets`);
    await view.page.getByText('travel').first().waitFor();
    await view.page.locator('[data-live=live]').waitFor();
    assert.deepEqual(await view.page.evaluate(() => isSecureContext), false);
    await view.check();
    await view.close();
    await below.close();
  });

  it('asks for a name before everything is dropped', async () => {
    const view = await shown('buckets/travel');
    await view.page.getByRole('button', { name: 'Drop', exact: true }).click();
    const drop = view.page.getByRole('button', { name: 'Drop the bucket' });
    assert.equal(await drop.isDisabled(), true);
    await view.page.getByLabel(/Type/).fill(XSS);
    assert.equal(await drop.isDisabled(), true);
    await view.page.getByLabel(/Type/).fill('travel');
    await drop.click();
    await view.page.getByText('travel was dropped').waitFor();
    assert.ok(made.node.requests.includes('DELETE /pools/default/buckets/travel'));
    await view.close();
  });
});
