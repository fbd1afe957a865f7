// The console against a real node, from the first run to the first query; takes the screenshots of the manual.
//
// NACRE_URL is a node that nobody administers yet. NACRE_OTHER, where it is set, is the host and port of another one, with the same
// administrator, that joins; NACRE_BINARY the program, for a load while screenshots are taken.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mkdirSync } from 'node:fs';
import { after, before, it } from 'node:test';
import { fileURLToPath } from 'node:url';
import { launch, open } from './browser.mjs';

const NODE = process.env.NACRE_URL;
const SHOTS = process.env.NACRE_SHOTS ? fileURLToPath(new URL('../../docs/images/', import.meta.url)) : '';
let browser;
let view;
before(async () => {
  browser = await launch();
  view = await open(browser, { width: 1440, height: 900 });
});
after(() => browser?.close());

async function shot(name) {
  if (!SHOTS) return;
  mkdirSync(SHOTS, { recursive: true });
  await view.page.screenshot({ path: `${SHOTS}console-${name}.png` });
}
const go = async (path) => {
  await view.page.evaluate((hash) => (location.hash = hash), `#/${path}`);
};
const login = `Basic ${Buffer.from('Administrator:password').toString('base64')}`;
const rest = async (path, form, method = form ? 'POST' : 'GET') => {
  const answer = await fetch(`${NODE}${path}`, { method, headers: { authorization: login, ...(typeof form === 'string' ? { 'content-type': 'application/json' } : {}) }, body: form && (typeof form === 'string' ? form : new URLSearchParams(form)) });
  assert.ok(answer.ok, `${method} ${path}: ${answer.status} ${await answer.clone().text()}`);
  return answer.text();
};

it('leads a browser to the page, with its policy', async () => {
  const answer = await fetch(`${NODE}/`, { headers: { accept: 'text/html' }, redirect: 'manual' });
  assert.deepEqual([answer.status, answer.headers.get('location')], [302, 'ui/index.html']);
  const page = await fetch(`${NODE}/ui/index.html`);
  assert.match(page.headers.get('content-security-policy'), /require-trusted-types-for 'script'/);
  assert.equal(page.headers.get('cache-control'), 'no-cache');
  const again = await fetch(`${NODE}/ui/index.html`, { headers: { 'if-none-match': page.headers.get('etag') } });
  assert.equal(again.status, 304);
  const script = /assets\/[^"]+\.js/.exec(await page.text())[0];
  assert.match((await fetch(`${NODE}/ui/${script}`)).headers.get('cache-control'), /immutable/);
});

it('claims a new node and shows the dashboard', async () => {
  await view.go(`${NODE}/`);
  await view.page.getByRole('heading', { name: 'A new node' }).waitFor();
  await view.page.getByLabel('Password').fill('password');
  await view.page.getByRole('button', { name: 'Begin a new cluster' }).click();
  await view.page.getByRole('heading', { name: 'Dashboard' }).waitFor();
  await view.page.locator('[data-live=live]').waitFor();
  const [cookie] = (await view.context.cookies()).filter(({ name }) => name.startsWith('ui-auth-'));
  assert.deepEqual([cookie.httpOnly, cookie.sameSite, cookie.path], [true, 'Strict', '/']);
});

it('creates a bucket and a document', async () => {
  await go('buckets');
  await view.page.getByRole('button', { name: 'Create a bucket' }).first().click();
  const dialog = view.page.getByRole('dialog');
  await dialog.getByLabel('Name').fill('shop');
  await dialog.getByLabel(/Memory/).fill('128');
  await dialog.getByLabel('Replicas').selectOption('0');
  await dialog.getByRole('button', { name: 'Create' }).click();
  await view.page.getByText('Scopes and collections').waitFor();
  await go('documents/shop');
  await view.page.getByRole('heading', { name: 'This collection is empty' }).waitFor();
  await view.page.getByRole('button', { name: 'New document' }).first().click();
  await view.page.getByLabel('ID of the document').fill('order/1');
  const editor = view.page.getByLabel('Document', { exact: true }).last();
  await editor.click();
  await view.page.keyboard.press('Control+a');
  await view.page.keyboard.insertText('{"item": "lamp", "price": 12.5, "number": 9007199254740993}');
  await view.page.getByRole('button', { name: 'Save' }).click();
  await view.page.getByText('order/1 was saved').waitFor();
  const stored = JSON.parse(await rest('/pools/default/buckets/shop/docs/order%2F1'));
  assert.match(stored.json, /9007199254740993/);
});

it('shows both versions when an application was faster', async () => {
  await rest('/pools/default/buckets/shop/docs/order%2F1', { value: '{"item": "desk"}' });
  await view.page.getByLabel('Document', { exact: true }).last().click();
  await view.page.keyboard.press('Control+End');
  await view.page.keyboard.type(' ');
  await view.page.keyboard.press('Control+Enter');
  const dialog = view.page.getByRole('dialog');
  await dialog.getByText('"desk"').waitFor();
  await shot('conflict');
  await dialog.getByRole('button', { name: 'Take theirs' }).click();
  await view.page.getByText('desk').first().waitFor();
});

it('runs a query and explains it', async () => {
  for (let number = 2; number < 60; number += 1)
    await rest(`/pools/default/buckets/shop/docs/order%2F${number}`, { value: JSON.stringify({ item: ['lamp', 'desk', 'chair'][number % 3], price: number * 1.5, city: ['Oslo', 'Lima', 'Graz'][number % 3] }) });
  await go(`query?q=${encodeURIComponent('SELECT d.item, COUNT(*) AS sold, SUM(d.price) AS total FROM shop AS d GROUP BY d.item ORDER BY total DESC')}`);
  await view.page.getByLabel('Statement', { exact: true }).last().waitFor();
  await view.page.getByRole('button', { name: 'Run' }).click();
  // A node that has never run compiles the query service first.
  await view.page.getByText('3 rows').first().waitFor({ timeout: 300_000 });
  await shot('query');
  await view.page.getByRole('button', { name: 'Explain' }).click();
  await view.page.locator('svg[aria-label^=Plan]').waitFor();
  await shot('plan');
});

it('takes another node in and shows the rebalance', { skip: !process.env.NACRE_OTHER }, async () => {
  await go('servers');
  await view.page.getByRole('button', { name: 'Add a node' }).click();
  const dialog = view.page.getByRole('dialog');
  await dialog.getByLabel('Host and port').fill(process.env.NACRE_OTHER);
  await dialog.getByLabel('Its password').fill('password');
  await dialog.getByRole('button', { name: 'Add', exact: true }).click();
  await view.page.getByText('waits for a rebalance').waitFor();
  await view.page.getByRole('button', { name: 'Rebalance', exact: true }).click();
  await view.page.getByText('waits for a rebalance').waitFor({ state: 'detached', timeout: 120_000 });
  await view.page.waitForFunction(() => [...document.querySelectorAll('.side tbody tr td:nth-child(2)')].map((cell) => cell.textContent).join() === '512,512', undefined, { timeout: 120_000 });
});

it('indexes, and shows what applications do', async () => {
  await rest('/_p/query/query/service', { statement: 'CREATE INDEX by_city ON shop(city)' });
  await rest('/couchBase/shop/_design/dev_orders', JSON.stringify({ views: { by_item: { map: 'function (doc, meta) {\n  emit(doc.item, doc.price);\n}', reduce: '_sum' } } }), 'PUT');
  if (!process.env.NACRE_BINARY) return;
  const load = spawn(process.env.NACRE_BINARY, ['bench', 'kv', '--server', NODE, '--user', 'Administrator', '--password', 'password', '--bucket', 'shop', '--connections', '2', '--depth', '2', '--value-bytes', '200', '--seconds', '90', '--keys', '20000'], { stdio: 'ignore' });
  await go('dashboard');
  await view.page.waitForFunction(() => Number(document.querySelector('.tile strong')?.textContent.replace(/\D/g, '')) > 0, undefined, { timeout: 30_000 });
  await view.page.waitForTimeout(SHOTS ? 20_000 : 0);
  await shot('dashboard');
  await go('flows');
  await view.page.locator('svg .title', { hasText: 'by_city' }).waitFor();
  await shot('flows');
  await go('plugins');
  await view.page.getByRole('link').filter({ hasText: /shop|index/ }).first().waitFor();
  await shot('plugins');
  load.kill();
});

it('shows every screen of a real node without an error', async () => {
  for (const [screen, heading] of [['servers', 'Servers'], ['flows', 'DCP flow'], ['buckets/shop', 'shop'], ['documents/shop', 'Documents'], ['indexes', 'Indexes'], ['views/shop', 'Views'], ['eventing', 'Functions'], ['plugins', 'Plugins'], ['security', 'Security'], ['logs', 'Logs'], ['settings', 'Settings'], ['dashboard', 'Dashboard']]) {
    await go(screen);
    await view.page.getByRole('heading', { name: heading, level: 1 }).waitFor();
    await view.page.waitForFunction(() => !document.querySelector('[aria-busy=true]'), undefined, { timeout: 60_000 });
    assert.equal(await view.page.getByText('could not be read').count(), 0, screen);
    await view.page.mouse.move(0, 0);
    if (!['dashboard', 'flows', 'plugins'].includes(screen)) await shot(screen.replace('/', '-'));
  }
  await view.check();
});

it('ends the session for good', async () => {
  const cookies = await view.context.cookies();
  const header = cookies.map(({ name, value }) => `${name}=${value}`).join('; ');
  const ask = (headers) => fetch(`${NODE}/whoami`, { headers }).then(({ status }) => status);
  assert.equal(await ask({ cookie: header, 'ns-server-ui': 'yes' }), 200);
  assert.equal(await ask({ cookie: header }), 401, 'the cookie alone is not enough');
  await view.page.getByRole('button', { name: 'Account' }).click();
  await view.page.getByRole('button', { name: 'Sign out', exact: true }).click();
  await view.page.getByRole('heading', { name: 'Sign in to nacre' }).waitFor();
  assert.equal(await ask({ cookie: header, 'ns-server-ui': 'yes' }), 401, 'a stolen cookie ends with the session');
});
