// The console against a made-up node: what a real one rarely does, at once and each time.

import assert from 'node:assert/strict';
import { readFileSync, readdirSync, statSync } from 'node:fs';
import { after, before, describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import { XSS } from './answers.mjs';
import { launch, open } from './browser.mjs';
import { POLICY, serve } from './serve.mjs';

const SCREENS = ['dashboard', 'servers', 'flows', 'buckets', 'buckets/travel', 'documents/travel', 'query', 'analytics', 'indexes', 'search', 'search/travel.inventory.hotels', 'search/travel.inventory.hotels?tab=definition', 'search/travel.inventory.hotels?tab=analysis', 'views/travel', 'eventing', 'eventing/enrich', 'plugins', 'plugins/orders-audit', 'replication', 'replication/u1/travel/copy', 'backup', 'security', 'security?tab=groups', 'security?tab=tokens', 'security?tab=certificates', 'logs', 'logs?tab=slow', 'settings'];
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

const USUAL = { claimed: true, stopped: false, session: true, conflict: false, empty: false, forbidden: false, broken: false, off: [], held: [], slow: {}, uuid: 'aa', paused: false, endsWith: '' };

/** Does `work` on screens, one after the other, while the made-up node is in a state. The page must do nothing that a page of the console must not do. */
async function each(paths, work, state = {}, options = {}) {
  const view = await open(browser, options);
  try {
    for (const path of paths) {
      Object.assign(made.node, USUAL, { requests: [] }, state);
      // Another hash alone would load nothing.
      await view.page.goto('about:blank');
      await view.go(`${made.url}/ui/index.html#/${path}`);
      await view.page.locator('main h1').first().waitFor();
      await work(view, path);
      await view.check();
    }
  } finally {
    // A page that stayed would have its stream in the next test.
    await view.close();
  }
}
const on = (path, work, state, options) => each([path], work, state, options);
async function signInAgain(page) {
  await page.getByRole('heading', { name: 'Session ended' }).waitFor();
  await page.getByLabel('Password').fill('password');
  await page.keyboard.press('Enter');
  await page.getByRole('heading', { name: 'Session ended' }).waitFor({ state: 'detached' });
}
/** Waits for what the made-up node sees. */
async function until(isTrue, what) {
  for (const end = Date.now() + 30_000; !isTrue(); await new Promise((resolve) => setTimeout(resolve, 20))) assert.ok(Date.now() < end, what);
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

  it('are at most 100 KB of scripts and styles, in few requests, before the dashboard is there', () =>
    on('dashboard', async ({ page }) => {
      await page.locator('canvas').first().waitFor();
      const loaded = await page.evaluate(() => performance.getEntriesByType('resource').map(({ name }) => name).concat(performance.getEntriesByType('navigation')[0].name));
      const names = loaded.map((url) => new URL(url).pathname.slice('/ui/'.length)).filter((name) => /^(assets\/.*\.(js|css)|index.html)$/.test(name));
      const sum = [...new Set(names)].reduce((all, name) => all + bytes(name), 0);
      console.log(`first load: ${Math.round(sum / 1000)} KB in ${names.length} files`);
      assert.ok(sum <= 100_000, `${sum} bytes: ${names.join(' ')}`);
    }, { session: true }));

  it('have pictures in the manual, few and small', () => {
    const folder = fileURLToPath(new URL('../../docs/images/', import.meta.url));
    const pictures = readdirSync(folder).filter((name) => name.startsWith('console-'));
    const manual = readFileSync(new URL('../../docs/operate/console.md', import.meta.url), 'utf8');
    const shown = [...manual.matchAll(/\.\.\/images\/(console-[\w-]+\.png)/g)].map(([, name]) => name);
    assert.deepEqual(pictures.sort(), shown.sort());
    assert.ok(pictures.length <= 15, `${pictures.length} pictures`);
    for (const name of pictures) assert.ok(statSync(folder + name).size <= 200_000, name);
  });

  it('are served here under the policy of the node', () => {
    const source = readFileSync(new URL('../../server/nacre-rest/src/console/files.rs', import.meta.url), 'utf8');
    const text = /POLICY: &str = "([^"]+)"/.exec(source)[1].replace(/\\\n\s*/g, '');
    assert.equal(text, POLICY);
  });
});

describe('each screen', () => {
  it('runs no value as code, asks no other origin, and is accessible in both colours', () =>
    each(SCREENS, async ({ page, accessibility }, path) => {
      await settled(page);
      for (const colorScheme of ['light', 'dark']) {
        await page.emulateMedia({ colorScheme });
        assert.deepEqual(await accessibility(), [], `${path}, ${colorScheme}`);
      }
    }));

  it('says what is empty, what is off and what is not there', async () => {
    const states = [
      [{ empty: true }, 'indexes', 'There is no index yet'],
      [{ empty: true }, 'buckets', 'There is no bucket yet'],
      [{ empty: true }, 'eventing', 'There is no function yet'],
      [{ empty: true }, 'search', 'There is no search index yet'],
      [{ empty: true }, 'views/travel', 'There is no view yet'],
      [{ empty: true }, 'plugins', 'There is no package yet'],
      [{ empty: true }, 'replication', 'No bucket is replicated'],
      [{ empty: true }, 'backup', 'There is no bucket yet'],
      [{ empty: true }, 'logs', 'There are no events yet'],
      [{ empty: true }, 'logs?tab=slow', 'No operation took long'],
      [{ empty: true }, 'security', 'There is no user except the administrator'],
      [{ empty: true }, 'security?tab=tokens', 'You have no tokens'],
      [{ empty: true }, 'dashboard', 'Get started'],
      [{ empty: true }, 'analytics', 'No collection is followed yet'],
      [{ off: ['/_p/cbas'] }, 'analytics', 'This service is not enabled'],
      [{ off: ['/_p/fts'] }, 'search', 'This service is not enabled'],
      [{ off: ['/_p/event'] }, 'eventing', 'This service is not enabled'],
      [{ off: ['/pools/default/remoteClusters'] }, 'replication', 'This service is not enabled'],
      [{}, 'search/travel.inventory.gone', 'There is no index travel.inventory.gone'],
      [{}, 'replication/u1/gone/copy', 'There is no such replication'],
      [{}, 'nowhere', 'Page not found'],
    ];
    for (const [state, path, text] of states) await on(path, ({ page }) => page.getByText(text).first().waitFor(), state);
  });

  it('says which privilege a user without roles lacks, and offers nothing that the node would refuse', () =>
    each(SCREENS, async ({ page, accessibility }, path) => {
      await settled(page);
      // A statement may be typed: the node says which rights it needs.
      if (path !== 'query' && path !== 'analytics') await page.getByText(/Missing privilege|You do not have access/).first().waitFor();
      const offered = await page.locator('main button:enabled').evaluateAll((buttons) => buttons.map((button) => button.ariaLabel ?? button.textContent.trim()));
      const refused = offered.filter((name) => /^(Add|Create|New|Drop|Delete|Remove|Compact|Flush|Rebalance|Fail over|Publish|Save|Deploy|Undeploy|Upload|Pause|Resume|Replay|Replicate|Edit)\b/.test(name));
      // Every user may have tokens of his own.
      assert.deepEqual(refused, path === 'security?tab=tokens' ? ['Create a token'] : [], path);
      assert.deepEqual(await accessibility(), [], path);
    }, { forbidden: true }));

  it('says what the node answers when it is broken, and reads again', () =>
    each(SCREENS.filter((path) => !['dashboard', 'flows', 'query'].includes(path)), async ({ page }) => {
      await page.getByText('could not be read').first().waitFor();
      made.node.broken = false;
      const again = page.getByRole('button', { name: 'Try again' });
      // Some parts of a screen read again by themselves, meanwhile.
      while (await again.count()) await again.first().click({ timeout: 1000 }).catch(() => {});
      await page.getByText('could not be read').first().waitFor({ state: 'detached' });
    }, { broken: true }));

  it('says what is awaited, and what is no longer up to date', async () => {
    for (const [path, held] of [['search', '/_p/fts'], ['replication', '/pools/default/replicationInfos'], ['backup', '/pools/default/buckets']]) {
      await on(path, ({ page }) => page.locator('[aria-busy=true]').first().waitFor(), { held: [held] });
      await on(path, async ({ page }) => {
        await settled(page);
        await page.locator('tbody tr').first().waitFor();
        made.node.broken = true;
        await page.getByText('Not up to date.').first().waitFor();
        assert.ok((await page.locator('tbody tr').count()) > 0, 'what was read stays');
      });
    }
  });

  it('hears a node whose answers take longer than the time between two questions', () =>
    on('servers', async ({ page }) => {
      await page.getByRole('progressbar', { name: 'Progress' }).waitFor();
    }, { slow: { '/pools/default/tasks': 5000 } }));

  it('can be read on a narrow screen', () =>
    each(SCREENS, async ({ page }, path) => {
      await settled(page);
      const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      assert.ok(wide <= 0, `${path} is ${wide} px too wide`);
    }, {}, { width: 360, height: 740 }));
});

describe('the page', () => {
  it('runs no script that is text, and takes no markup that is text', () =>
    on('buckets', async (view) => {
      const errors = await view.page.evaluate(() => {
        const names = [];
        const tryTo = (work) => {
          try {
            work();
          } catch (error) {
            names.push(error.name);
          }
        };
        tryTo(() => (document.body.innerHTML = '<b>x</b>'));
        tryTo(() => (document.createElement('script').text = 'window.__hacked = 1'));
        tryTo(() => new Worker('data:text/javascript,1'));
        tryTo(() => trustedTypes.createPolicy('other', {}));
        return names;
      });
      assert.deepEqual(errors, ['TypeError', 'TypeError', 'TypeError', 'TypeError']);
      // The browser has reported these attempts.
      view.faults.length = 0;
    }));

  it('closes its stream when nobody sees it, and opens it again', () =>
    on('dashboard', async ({ page }) => {
      const streams = (count) => until(() => made.streams() === count, `${made.streams()} streams instead of ${count}`);
      const see = (isSeen) =>
        page.evaluate((hidden) => {
          Object.defineProperty(document, 'hidden', { value: hidden, configurable: true });
          document.dispatchEvent(new Event('visibilitychange'));
        }, !isSeen);
      await page.locator('[data-live=live]').waitFor();
      await streams(1);
      await see(false);
      await streams(0);
      const before = made.node.requests.length;
      await new Promise((resolve) => setTimeout(resolve, 2500));
      assert.deepEqual(made.node.requests.slice(before), [], 'a hidden page asks nothing');
      await see(true);
      await streams(1);
    }));

  it('is there within a second', async () => {
    let best = Infinity;
    for (let attempt = 0; attempt < 5 && best > 1000; attempt += 1) {
      await on('dashboard', async ({ page }) => {
        await page.locator('canvas').first().waitFor();
        best = Math.min(best, await page.evaluate(() => performance.getEntriesByName('first-contentful-paint')[0].startTime));
      });
    }
    console.log(`first paint: ${Math.round(best)} ms`);
    assert.ok(best <= 1000, `${best} ms`);
  });
});

describe('a person', () => {
  it('claims a new node', () =>
    on('', async ({ page, accessibility }) => {
      await page.getByRole('heading', { name: 'Set up this node' }).waitFor();
      assert.deepEqual(await accessibility(), []);
      await page.getByLabel('Password').fill('password');
      await page.getByRole('button', { name: 'Create the cluster' }).click();
      await page.getByRole('heading', { name: 'Dashboard' }).waitFor();
    }, { claimed: false, session: false }));

  it('signs in, and is told when the password is wrong', () =>
    on('logs', async ({ page, accessibility }) => {
      assert.deepEqual(await accessibility(), []);
      await page.getByLabel('User').fill('Administrator');
      await page.getByLabel('Password').fill('wrong');
      await page.getByRole('button', { name: 'Sign in' }).click();
      await page.getByText('the user or the password is wrong').waitFor();
      await page.getByLabel('Password').fill('password');
      await page.keyboard.press('Enter');
      await page.getByRole('heading', { name: 'Logs' }).waitFor();
    }, { session: false }));

  it('loses nothing that was typed when the session ends', () =>
    on('documents/travel?id=airline_12', async ({ page }) => {
      const editor = page.getByLabel('Document', { exact: true }).last();
      await page.getByText('Medway').first().waitFor();
      await editor.click();
      await page.keyboard.press('Control+End');
      await page.keyboard.type(' ');
      made.node.endsWith = 'POST';
      await page.getByRole('button', { name: 'Save' }).click();
      await signInAgain(page);
      await page.getByText('not saved').waitFor();
      await page.getByRole('button', { name: 'Save' }).click();
      await page.getByText('airline_12 was saved').waitFor();
      assert.match(made.node.stored, /9007199254740993/, 'a number beyond those of JavaScript is as it was');
    }));

  it('sees both versions when somebody else was faster', () =>
    on('documents/travel?id=airline_12', async ({ page, accessibility }) => {
      await page.getByText('Medway').first().waitFor();
      await page.getByLabel('Document', { exact: true }).last().click();
      await page.keyboard.press('Control+End');
      await page.keyboard.type(' ');
      await page.keyboard.press('Control+Enter');
      const dialog = page.getByRole('dialog');
      await dialog.getByText('"theirs"').waitFor();
      assert.deepEqual(await accessibility(), []);
      await dialog.getByRole('button', { name: 'Overwrite with mine' }).click();
      await page.getByText('airline_12 was saved').waitFor();
    }, { conflict: true }));

  it('runs a query, sees its rows, its plan and where it is wrong', () =>
    on('query?q=SELECT%20*%20FROM%20hotel', async ({ page, accessibility }) => {
      const statement = page.getByLabel('Statement', { exact: true }).last();
      await statement.waitFor();
      await page.getByRole('button', { name: 'Run' }).click();
      await page.getByText('2,000 rows').waitFor();
      await page.getByText('9007199254740993').first().waitFor();
      const drawn = await page.locator('tbody tr').count();
      assert.ok(drawn < 100, `${drawn} rows are drawn`);
      await page.getByRole('button', { name: 'Explain' }).click();
      await page.locator('svg .name', { hasText: 'HashJoin' }).waitFor();
      assert.deepEqual(await accessibility(), []);
      await statement.click();
      await page.keyboard.press('Control+a');
      await page.keyboard.insertText('WRONG');
      await page.keyboard.press('Control+Enter');
      await page.getByText('syntax error - line 1').first().waitFor();
    }));

  it('sees what a statement spent its time on, draws its rows, and stops a request of somebody else', () =>
    on('query?q=SELECT%20*%20FROM%20hotel', async ({ page, accessibility }) => {
      await page.getByRole('button', { name: 'Run' }).click();
      await page.getByText('2,000 rows').waitFor();
      assert.equal(JSON.parse(made.node.stated).profile, 'timings');
      await page.getByRole('tab', { name: 'Plan' }).click();
      await page.locator('svg .name', { hasText: 'HashJoin' }).waitFor();
      await page.getByText('420 µs').waitFor();
      await page.getByRole('tab', { name: 'Chart' }).click();
      await page.getByText('The first 60 rows.').waitFor();
      assert.equal(await page.getByLabel('Numbers').inputValue(), 'big');
      assert.equal(await page.locator('.bars dt').count(), 60);
      await page.locator('.bars dd', { hasText: '9007199254740993' }).first().waitFor();
      assert.deepEqual(await accessibility(), []);
      await page.getByRole('tab', { name: 'Monitor' }).click();
      await page.getByText('1 min 3 s').or(page.getByText('1 min 2 s')).waitFor();
      assert.deepEqual(await accessibility(), []);
      await page.getByRole('button', { name: 'Stop' }).click();
      await page.getByText('No request is running on this node').waitFor();
      await page.getByRole('button', { name: 'SELECT COUNT(*) FROM travel' }).click();
      await page.getByLabel('Statement', { exact: true }).last().getByText('COUNT').waitFor();
    }));

  it('asks analytics, and sees how far its copies are', () =>
    on('analytics', async ({ page, accessibility }) => {
      await page.getByRole('region', { name: 'Copies' }).getByText('6,000').waitFor();
      await page.getByRole('button', { name: 'orders', exact: true }).click();
      await page.getByRole('button', { name: 'Run' }).click();
      await page.getByRole('cell', { name: 'Norway' }).waitFor();
      await page.getByRole('tab', { name: 'Chart' }).click();
      await page.locator('.bars dt', { hasText: 'Norway' }).waitFor();
      await page.getByRole('button', { name: 'Explain' }).click();
      await page.getByText('"engine"').waitFor();
      assert.deepEqual(await accessibility(), []);
    }));

  it('looks into a recorded crash, and where a plugin spends its time', () =>
    on('plugins/orders-audit', async ({ page, accessibility }) => {
      await page.getByRole('button', { name: 'Inspect' }).click();
      const dialog = page.getByRole('dialog');
      await dialog.getByText('Request GET /by-mail?x=1').waitFor();
      await dialog.getByText('Saw in its state: seen/order_7').waitFor();
      await dialog.getByText('The document: not-found').waitFor();
      assert.deepEqual(await accessibility(), []);
      await dialog.getByRole('button', { name: 'Close' }).last().click();
      await page.getByRole('button', { name: 'Profile for 5 s' }).click();
      await page.getByRole('img', { name: '50 samples: on_batch' }).waitFor();
      assert.deepEqual(await accessibility(), []);
    }));

  it('searches, sees why a document was found, and what did not answer', () =>
    on('search/travel.inventory.hotels', async ({ page, accessibility }) => {
      await page.getByLabel('Query', { exact: true }).fill('+plot:strangers');
      await page.getByLabel('Count by').fill('country');
      await page.getByLabel('Explain scores').check();
      await page.getByRole('button', { name: 'Search', exact: true }).click();
      await page.getByText('25 hits').waitFor();
      await page.locator('mark', { hasText: 'strangers' }).waitFor();
      await page.getByText('1 part did not answer').waitFor();
      await page.getByRole('region', { name: 'Counts of country' }).getByText('france').waitFor();
      await page.getByText('Why this score').first().click();
      await page.getByText('sum of:').waitFor();
      assert.deepEqual(await accessibility(), []);
      await page.getByRole('button', { name: 'Next' }).click();
      await page.getByText('There are no more hits.').waitFor();
      await page.getByLabel('Kind of query').selectOption('json');
      await page.getByLabel('Query', { exact: true }).fill('[]');
      await page.getByRole('button', { name: 'Search', exact: true }).click();
      await page.getByText('the query must be a JSON object').waitFor();
      await page.getByRole('tab', { name: 'Analysis' }).click();
      await page.getByRole('button', { name: 'Analyse' }).click();
      await page.getByText('stranger', { exact: true }).waitFor();
    }));

  it('edits the definition of an index as a form, and loses nothing to a session that ends or to somebody faster', () =>
    on('search/travel.inventory.hotels?tab=definition', async ({ page }) => {
      await page.getByLabel('Field for inventory.hotel').fill('address.city');
      await page.getByRole('button', { name: 'Add a field' }).first().click();
      await page.getByText('address.city').first().waitFor();
      await page.getByLabel('Kind of address.city').selectOption('number');
      made.node.endsWith = 'PUT';
      await page.getByRole('button', { name: 'Save' }).click();
      await signInAgain(page);
      await page.getByText('not saved').waitFor();
      made.node.uuid = 'other';
      await page.getByRole('button', { name: 'Save' }).click();
      await page.getByText('concurrent index definition update').waitFor();
      await page.getByRole('link', { name: 'Logs' }).click();
      await page.getByRole('dialog', { name: 'Leave without saving?' }).waitFor();
      await page.getByRole('button', { name: 'Cancel' }).click();
      await page.getByRole('button', { name: 'Overwrite with mine' }).click();
      await page.getByText('was saved').waitFor();
      await page.getByText('not saved').waitFor({ state: 'detached' });
      const stored = JSON.parse(made.node.stored);
      assert.equal(stored.params.mapping.types['inventory.hotel'].properties.address.properties.city.fields[0].type, 'number');
      assert.equal(stored.params.mapping.types['inventory.hotel'].properties[XSS].fields[0].type, 'text', 'what was there stays');
    }));

  it('follows a replication, pauses it and changes its rules', () =>
    on('replication', async ({ page }) => {
      await page.getByText('94 %').or(page.getByText('93.8 %')).first().waitFor();
      await page.locator('tbody tr').first().click();
      await page.getByText('2 documents').waitFor();
      await page.getByText('put aside').waitFor();
      await page.getByRole('button', { name: 'Pause', exact: true }).click();
      await page.getByRole('button', { name: 'Resume' }).waitFor();
      const rules = page.getByLabel('Rules').last();
      await rules.click();
      await page.keyboard.press('Control+a');
      await page.keyboard.insertText('{"a.b": "c.d"}');
      await page.getByRole('region', { name: 'Collections' }).or(page.locator('section', { has: page.getByRole('heading', { name: 'Collections' }) })).getByRole('button', { name: 'Save' }).first().click();
      await page.getByText('The rules were saved').waitFor();
      assert.deepEqual(JSON.parse(made.node.rules), { 'a.b': 'c.d' });
    }));

  it('is told what is wrong with another cluster, in the form, with what was typed', () =>
    on('replication', async ({ page, accessibility }) => {
      await page.getByRole('button', { name: 'Add a cluster' }).click();
      const dialog = page.getByRole('dialog');
      await dialog.getByLabel('Name').fill('second');
      await dialog.getByLabel('Host and port').fill('10.0.2.1');
      await dialog.getByLabel('User').fill('ann');
      await dialog.getByLabel('Password').fill('secret');
      await dialog.getByRole('button', { name: 'Add', exact: true }).click();
      await dialog.getByText('Could not connect').first().waitFor();
      assert.equal(await dialog.getByLabel('Name').inputValue(), 'second');
      assert.deepEqual(await accessibility(), []);
    }));

  it('is told how to back up what was chosen', () =>
    on('backup', async ({ page }) => {
      await page.getByLabel('Back up travel').check();
      await page.getByText('nacre backup create backups --bucket travel').waitFor();
      await page.getByLabel(`Back up ${XSS}`).check();
      await page.getByText(`--bucket '<img`).first().waitFor();
    }));

  it('sees rows of a view while typing it, and what is wrong with it', () =>
    on('views/travel', async ({ page, accessibility }) => {
      await page.getByText('µs per document').waitFor();
      await page.getByText('The time limit was reached').waitFor();
      const before = made.node.requests.filter((request) => request.endsWith('/_preview')).length;
      await page.getByLabel('Map function').last().click();
      await page.keyboard.press('Control+Home');
      await page.keyboard.insertText('/* WRONG */');
      await page.getByText('SyntaxError').waitFor();
      await page.keyboard.press('Control+z');
      await page.getByText('SyntaxError').waitFor({ state: 'detached' });
      assert.ok(made.node.requests.filter((request) => request.endsWith('/_preview')).length > before);
      await page.getByLabel('Reduced').check();
      await page.getByText('917').waitFor();
      assert.deepEqual(await accessibility(), []);
    }));

  it('tries a function without effects and filters its log', () =>
    on('eventing/enrich', async ({ page, accessibility }) => {
      const code = page.getByLabel('Code', { exact: true }).last();
      await code.click();
      await page.keyboard.press('Control+a');
      await page.keyboard.insertText('function OnUpdate(doc, meta) {}');
      await page.getByText('not saved').waitFor();
      await page.getByLabel('IDs of documents').fill('order_9');
      await page.getByRole('button', { name: 'Try this code' }).click();
      const outcome = page.getByRole('region', { name: 'Outcome' });
      await outcome.getByText('order_9').waitFor();
      await outcome.getByText('sets the timer').waitFor();
      await page.getByLabel('Filter the log').fill('totalled');
      assert.equal(await page.getByRole('log').getByText('order_7').count() > 0, true);
      assert.deepEqual(await accessibility(), []);
    }));

  it('goes anywhere by the palette and by keys', () =>
    on('dashboard', async ({ page, accessibility }) => {
      await page.keyboard.press('Control+k');
      const field = page.getByRole('combobox', { name: 'Go to' });
      await field.fill('orders');
      await page.getByRole('option', { name: /Documents of orders/ }).waitFor();
      assert.deepEqual(await accessibility(), []);
      await field.fill('secur');
      await page.keyboard.press('Enter');
      await page.getByRole('heading', { name: 'Security' }).waitFor();
      await page.keyboard.press('g');
      await page.keyboard.press('l');
      await page.getByRole('heading', { name: 'Logs' }).waitFor();
      await page.keyboard.press('.');
      await page.getByRole('button', { name: 'Paused' }).waitFor();
    }));

  it('sets a node up, queries and deploys a plugin with the keyboard alone', () =>
    on('', async ({ page }) => {
      const { keyboard } = page;
      /** Tab reaches it; where it is already, nothing happens. */
      const reach = async (target) => {
        await target.waitFor();
        for (let pressed = 0; pressed < 80; pressed += 1) {
          if (await target.evaluate((node) => node === document.activeElement || node.getRootNode().activeElement === node)) return;
          await keyboard.press('Tab');
        }
        assert.fail(`Tab does not reach ${target}`);
      };
      await reach(page.getByLabel('Password'));
      await keyboard.type('password');
      await reach(page.getByRole('button', { name: 'Create the cluster' }));
      await keyboard.press('Enter');
      await page.getByRole('heading', { name: 'Dashboard' }).waitFor();
      await keyboard.press('g');
      await keyboard.press('q');
      await page.getByRole('heading', { name: 'Query' }).waitFor();
      await reach(page.getByLabel('Statement', { exact: true }).last());
      await keyboard.press('Control+a');
      await keyboard.type('SELECT 1');
      await keyboard.press('Control+Enter');
      await page.getByText('2,000 rows').waitFor();
      // Tab indents in an editor: Escape lets it go on.
      await keyboard.press('Escape');
      await keyboard.press('Tab');
      assert.equal(await page.evaluate(() => document.activeElement.shadowRoot?.activeElement ?? null), null, 'the editor lets go');
      await page.locator('main').focus();
      await keyboard.press('g');
      await keyboard.press('b');
      await page.getByRole('heading', { name: 'Buckets' }).waitFor();
      await page.locator('tbody tr').first().waitFor();
      await keyboard.press('j');
      await keyboard.press('j');
      await keyboard.press('Enter');
      await page.getByRole('heading', { name: 'orders' }).waitFor();
      await page.locator('main').focus();
      await keyboard.press('g');
      await keyboard.press('p');
      await page.getByRole('heading', { name: 'Plugins' }).waitFor();
      await reach(page.getByRole('button', { name: 'Deploy', exact: true }));
      await keyboard.press('Enter');
      const dialog = page.getByRole('dialog');
      await reach(dialog.getByLabel('Grant these rights'));
      await keyboard.press('Space');
      await reach(dialog.getByRole('button', { name: 'Deploy' }));
      await keyboard.press('Enter');
      await dialog.waitFor({ state: 'hidden' });
      await page.getByRole('heading', { name: 'audit' }).waitFor();
      assert.deepEqual(JSON.parse(made.node.deployed), { package: 'audit', version: '1.2.0', bucket: 'travel', since: 'everything', config: {}, grants: { kv: { read: ['orders.all'] }, 'http-out': [XSS] } });
    }, { claimed: false, session: false }));

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

  it('changes settings of a bucket, and only those that were edited', () =>
    on('buckets/travel', async ({ page, accessibility }) => {
      await page.getByRole('button', { name: 'Edit' }).click();
      const dialog = page.getByRole('dialog');
      await dialog.getByLabel(/Memory/).fill('100');
      assert.deepEqual(await accessibility(), []);
      await dialog.getByRole('button', { name: 'Save' }).click();
      await dialog.getByText('too small').waitFor();
      await dialog.getByLabel(/Memory/).fill('512');
      await dialog.getByLabel(/Maximum TTL/).fill('3600');
      await dialog.getByLabel('Replicas').selectOption('2');
      await dialog.getByRole('button', { name: 'Save' }).click();
      await page.getByText('travel was changed: rebalance').waitFor();
      assert.deepEqual(Object.fromEntries(new URLSearchParams(made.node.stored)), { replicaNumber: '2', maxTTL: '3600' });
    }));

  it('creates a token, sees its text once, and revokes one', () =>
    on('security?tab=tokens', async ({ page, accessibility }) => {
      await page.getByRole('button', { name: 'Create a token' }).click();
      const dialog = page.getByRole('dialog', { name: 'Create a token' });
      await dialog.getByLabel('Name').fill('report');
      await dialog.getByLabel('Roles').fill('nonsense');
      await dialog.getByRole('button', { name: 'Create' }).click();
      await dialog.getByText('scopes: nonsense').waitFor();
      await dialog.getByLabel('Roles').fill('data_reader[a:b,c], query_select[a]');
      await dialog.getByLabel('Days').fill('7');
      await dialog.getByRole('button', { name: 'Create' }).click();
      await page.getByRole('dialog', { name: 'The new token' }).getByText('nacre_').waitFor();
      assert.deepEqual(await accessibility(), []);
      assert.deepEqual(JSON.parse(made.node.stored), { name: 'report', ttl: 604_800, scopes: ['data_reader[a:b,c]', 'query_select[a]'] });
      await page.getByRole('button', { name: 'Done' }).click();
      await page.getByRole('dialog').waitFor({ state: 'detached' });
      await page.getByRole('button', { name: 'Revoke' }).last().click();
      await page.getByRole('dialog').getByRole('button', { name: 'Revoke' }).click();
      await page.getByText('ci was deleted').waitFor();
      assert.ok(made.node.requests.includes('DELETE /api/v1/tokens/t3'));
    }));

  it('asks for a name before everything is dropped', () =>
    on('buckets/travel', async ({ page }) => {
      await page.getByRole('button', { name: 'Drop', exact: true }).click();
      const drop = page.getByRole('button', { name: 'Drop the bucket' });
      assert.equal(await drop.isDisabled(), true);
      await page.getByLabel(/Type/).fill(XSS);
      assert.equal(await drop.isDisabled(), true);
      await page.getByLabel(/Type/).fill('travel');
      await drop.click();
      await page.getByText('travel was deleted').waitFor();
      assert.ok(made.node.requests.includes('DELETE /pools/default/buckets/travel'));
    }));
});
