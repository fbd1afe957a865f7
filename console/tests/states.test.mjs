// The console against a made-up node: what a real one rarely does, at once and each time.

import assert from 'node:assert/strict';
import { readFileSync, readdirSync, statSync } from 'node:fs';
import { after, before, describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import { XSS } from './answers.mjs';
import { launch, open } from './browser.mjs';
import { POLICY, serve } from './serve.mjs';

const SCREENS = ['dashboard', 'servers', 'flows', 'buckets', 'buckets/travel', 'documents/travel', 'query', 'indexes', 'views/travel', 'eventing', 'eventing/enrich', 'plugins', 'plugins/orders-audit', 'security', 'logs', 'settings'];
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
  Object.assign(made.node, { claimed: true, session: true, conflict: false, empty: false, forbidden: false, broken: false, requests: [] }, state);
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
    ];
    for (const [state, path, text] of states) {
      const view = await shown(path, {}, state);
      await view.page.getByText(text).first().waitFor();
      await view.check();
      await view.close();
    }
  });

  it('can be read on a narrow screen', async () => {
    for (const path of ['dashboard', 'buckets', 'query']) {
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
