/** The example of a live list: two browsers and a client of the cluster see what each of them writes. */

import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'

import { Browser } from './chromium.js'
import { managementUrl, nodeTest, unique } from './node.js'

const SERVER = fileURLToPath(new URL('../../../examples/todo/server.mjs', import.meta.url))

/** Texts that a page shows. */
const SHOWN = "[...document.querySelectorAll('li label')].map((label) => label.textContent.trim())"

nodeTest('every page shows what others write, and what it changes is stored', async ({ node, cluster }) => {
  const name = unique('todo')
  await cluster.buckets().createBucket({ name, numReplicas: 0, ramQuotaMB: 100 })
  const url = await managementUrl(node)
  const collection = cluster.bucket(name).defaultCollection()
  const server = spawn('node', [SERVER, url, node.user, node.password, name, '0'], { stdio: ['ignore', 'pipe', 'inherit'] })
  const ended = once(server, 'exit')
  try {
    const [line] = await once(server.stdout.setEncoding('utf8'), 'data')
    const address = line.trim()
    await using browser = await Browser.start()
    const [one, other] = [await browser.open(address), await browser.open(address)]
    for (const page of [one, other]) await page.until("document.querySelector('ul').dataset.count === '0'")

    await one.evaluate("document.querySelector('[name=text]').value = 'buy milk'; document.querySelector('form').requestSubmit()")
    for (const page of [one, other]) assert.deepEqual(await page.until(`${SHOWN}.length === 1 && ${SHOWN}`), ['buy milk'])

    await collection.insert('todo:mine', { type: 'todo', text: '<b>write</b>', done: false, created: Date.now() + 1000 })
    for (const page of [one, other]) {
      // Text is text, whatever it looks like.
      assert.deepEqual(await page.until(`${SHOWN}.length === 2 && ${SHOWN}`), ['buy milk', '<b>write</b>'])
    }

    await other.evaluate("document.querySelectorAll('[type=checkbox]')[1].click()")
    await one.until("document.querySelectorAll('li')[1].className === 'done'")
    assert.equal((await collection.get('todo:mine')).content.done, true)

    await one.evaluate("document.querySelector('li button').click()")
    await other.until(`${SHOWN}.length === 1`)
    await collection.remove('todo:mine')
    for (const page of [one, other]) await page.until("document.querySelector('ul').dataset.count === '0'")
    assert.equal(await one.evaluate("document.querySelector('[role=status]').textContent"), '')

    // Pages of other sites are refused, and the server passes on nothing else.
    const stranger = { headers: { origin: 'https://elsewhere.example' } }
    const document = `${address}/api/v1/buckets/${name}/scopes/_default/collections/_default/documents/todo:none`
    assert.equal((await fetch(document, stranger)).status, 403)
    assert.match(await (await fetch(document)).text(), /document_not_found|not_found/)
    for (const path of ['/pools/default', '/api/v1/buckets', `/${name}/_design/d`, '/../package.json', '/nacre/../package.json']) {
      assert.equal((await fetch(address + path)).status, 404, path)
    }
  } finally {
    server.kill()
    await ended
    await cluster.buckets().dropBucket(name)
  }
  const authorization = `Basic ${Buffer.from(`${node.user}:${node.password}`).toString('base64')}`
  const left: any = await (await fetch(`${url}/api/v1/tokens`, { headers: { authorization } })).json()
  assert(!JSON.stringify(left).includes('to-do '), 'the token was revoked')
})
