// Chromium, as the tests drive it.

import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { chromium } from 'playwright-core';

const PROGRAMS = [process.env.NACRE_CHROMIUM, '/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'];
export const program = PROGRAMS.find((path) => path && existsSync(path));
const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

export const launch = () =>
  chromium.launch({
    executablePath: program,
    args: ['--no-sandbox', '--disable-gpu', '--font-render-hinting=none', '--force-color-profile=srgb', '--host-resolver-rules=MAP *.test 127.0.0.1'],
  });

/** A page that notes everything that a page of the console must not do. */
export async function open(browser, { scheme = 'light', width = 1280, height = 800 } = {}) {
  const context = await browser.newContext({ viewport: { width, height }, colorScheme: scheme, locale: 'en-GB', timezoneId: 'UTC', reducedMotion: 'reduce' });
  const page = await context.newPage();
  page.setDefaultTimeout(60_000);
  const faults = [];
  const foreign = [];
  let origin = '';
  page.on('console', (message) => {
    // A browser notes every answer that is no success: tests ask for some.
    if (['error', 'warning'].includes(message.type()) && !message.text().startsWith('Failed to load resource')) faults.push(message.text());
  });
  page.on('pageerror', (error) => faults.push(String(error)));
  context.on('request', (request) => {
    const url = request.url();
    if (!url.startsWith('data:') && !url.startsWith('blob:') && origin && new URL(url).origin !== origin) foreign.push(url);
  });
  return {
    page,
    context,
    faults,
    foreign,
    async go(url) {
      origin = new URL(url).origin;
      await page.goto(url);
    },
    /** Fails when the page has run foreign code, asked another origin, or reported an error. */
    async check() {
      assert.equal(await page.evaluate(() => window.__hacked), undefined, 'a value has run as code');
      assert.deepEqual(foreign, [], 'another origin was asked');
      assert.deepEqual(faults, [], 'the page has reported errors');
    },
    /** What axe finds against WCAG 2.2 AA. */
    async accessibility() {
      const session = await context.newCDPSession(page);
      // The page's policy forbids scripts that are texts; those of the debugger are not the page's.
      await session.send('Runtime.evaluate', { expression: axe });
      const { result } = await session.send('Runtime.evaluate', {
        expression: `axe.run(document, { runOnly: ['wcag2a', 'wcag2aa', 'wcag21aa', 'wcag22aa'] }).then(({ violations }) => JSON.stringify(violations.map(({ id, nodes }) => id + ': ' + nodes.slice(0, 4).map(({ html, any }) => html.slice(0, 160) + ' ' + (any[0]?.message ?? '')).join(' | '))))`,
        awaitPromise: true,
        returnByValue: true,
      });
      return JSON.parse(result.value);
    },
    close: () => context.close(),
  };
}
