/** Chromium without a window, led over a pipe: pages are opened, and JavaScript is evaluated in them. */

import { spawn } from 'node:child_process'
import { existsSync } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Readable, Writable } from 'node:stream'

/** A browser takes long to start on a machine that does much else. */
const BROWSER_MS_MAX = 240_000
const PAUSE_MS = 20

/** The program of Chromium. */
export function chromium(): string {
  const { NACRE_CHROMIUM } = process.env
  const found = [NACRE_CHROMIUM, '/usr/bin/chromium', '/usr/bin/chromium-browser'].find((path) => path && existsSync(path))
  if (!found) throw new Error('Chromium is needed: `apt-get install chromium`, or name it in NACRE_CHROMIUM')
  return found
}

/** A browser, until it is disposed of. */
export class Browser implements AsyncDisposable {
  readonly #input: Writable
  readonly #waiting = new Map<number, { resolve: (found: any) => void; reject: (error: Error) => void }>()
  readonly #end: () => Promise<void>
  #number = 0

  private constructor(input: Writable, output: Readable, end: () => Promise<void>) {
    this.#input = input
    this.#end = end
    let text = ''
    output.setEncoding('utf8').on('data', (part: string) => {
      const messages = (text + part).split('\0')
      text = messages.pop()!
      for (const message of messages) this.#take(JSON.parse(message))
    })
    output.on('close', () => {
      for (const { reject } of this.#waiting.values()) reject(new Error('the browser has ended'))
    })
  }

  static async start(...options: string[]): Promise<Browser> {
    const profile = await mkdtemp(join(tmpdir(), 'nacre-browser-'))
    const flags = ['--headless', '--no-sandbox', '--disable-gpu', '--remote-debugging-pipe', `--user-data-dir=${profile}`]
    const process = spawn(chromium(), [...flags, ...options, 'about:blank'], {
      stdio: ['ignore', 'ignore', 'ignore', 'pipe', 'pipe'],
    })
    const ended = new Promise<void>((resolve) => process.on('exit', () => resolve()))
    const [, , , input, output] = process.stdio
    return new Browser(input as Writable, output as Readable, async () => {
      process.kill()
      await ended
      await rm(profile, { recursive: true, force: true, maxRetries: 5 })
    })
  }

  /** Opens a page in a tab of its own. */
  async open(url: string): Promise<Page> {
    const { targetId } = await this.send('Target.createTarget', { url })
    const { sessionId } = await this.send('Target.attachToTarget', { targetId, flatten: true })
    return new Page(this, sessionId)
  }

  /** @internal */
  async send(method: string, params: object, sessionId?: string): Promise<any> {
    const id = ++this.#number
    return new Promise((resolve, reject) => {
      const late = setTimeout(() => reject(new Error(`${method}: the browser does not answer`)), BROWSER_MS_MAX)
      const settle =
        <T>(action: (value: T) => void) =>
        (value: T): void => {
          clearTimeout(late)
          this.#waiting.delete(id)
          action(value)
        }
      this.#waiting.set(id, { resolve: settle(resolve), reject: settle(reject) })
      this.#input.write(`${JSON.stringify({ id, method, params, ...(sessionId ? { sessionId } : {}) })}\0`)
    })
  }

  #take({ id, result, error }: any): void {
    const waiting = this.#waiting.get(id)
    if (error) waiting?.reject(new Error(error.message))
    else waiting?.resolve(result)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#end()
  }
}

/** A page in a tab. */
export class Page {
  readonly #browser: Browser
  readonly #session: string

  /** @internal */
  constructor(browser: Browser, session: string) {
    this.#browser = browser
    this.#session = session
  }

  /** What an expression has for a value, once it has one. */
  async evaluate<T = any>(expression: string): Promise<T> {
    const params = { expression, awaitPromise: true, returnByValue: true }
    const { result, exceptionDetails } = await this.#browser.send('Runtime.evaluate', params, this.#session)
    if (exceptionDetails) throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text)
    return result.value
  }

  /** The value of an expression, as soon as it is true. */
  async until<T = any>(expression: string): Promise<T> {
    const end = performance.now() + BROWSER_MS_MAX
    for (;;) {
      // A page that is being loaded has no elements yet.
      const found = await this.evaluate<T>(`(() => { try { return ${expression} } catch { return undefined } })()`)
      if (found) return found
      if (performance.now() > end) throw new Error(`not true in time: ${expression}`)
      await new Promise((resolve) => setTimeout(resolve, PAUSE_MS))
    }
  }
}
