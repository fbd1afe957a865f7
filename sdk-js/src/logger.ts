/** What the client tells of connections and maps, to whoever wants to keep it. */

/** How much is told. */
export enum LogLevel {
  TRACE = 0,
  DEBUG = 1,
  INFO = 2,
  WARN = 3,
  ERROR = 4,
}

/** Takes messages; a method that is missing takes none. `console` is one. */
export interface Logger {
  trace?(message: string, ...args: any[]): void
  debug?(message: string, ...args: any[]): void
  info?(message: string, ...args: any[]): void
  warn?(message: string, ...args: any[]): void
  error?(message: string, ...args: any[]): void
}

/** Takes no messages. */
export class NoOpLogger implements Logger {
  /** Takes none. */
  trace(): void {}

  /** Takes none. */
  debug(): void {}

  /** Takes none. */
  info(): void {}

  /** Takes none. */
  warn(): void {}

  /** Takes none. */
  error(): void {}
}

/** Passes messages on, if there is somebody to take them. */
export class CouchbaseLogger implements Logger {
  readonly #logger: Logger | undefined

  constructor(logger?: Logger) {
    this.#logger = logger
  }

  /** Every step. */
  trace(message: string, ...args: any[]): void {
    this.#logger?.trace?.(message, ...args)
  }

  /** Connections that are opened, and maps. */
  debug(message: string, ...args: any[]): void {
    this.#logger?.debug?.(message, ...args)
  }

  /** What is worth knowing. */
  info(message: string, ...args: any[]): void {
    this.#logger?.info?.(message, ...args)
  }

  /** Connections that could not be opened, or were lost. */
  warn(message: string, ...args: any[]): void {
    this.#logger?.warn?.(message, ...args)
  }

  /** What should not happen. */
  error(message: string, ...args: any[]): void {
    this.#logger?.error?.(message, ...args)
  }
}

/** The level of a name such as `warn`, or undefined. */
export function parseLogLevel(level: LogLevel | string): LogLevel | undefined {
  const found = typeof level === 'string' ? LogLevel[level.toUpperCase() as keyof typeof LogLevel] : level
  return typeof found === 'number' && LogLevel[found] !== undefined ? found : undefined
}

/** Writes messages of a level and above to the console, each after the prefix. */
export function createConsoleLogger(logLevel: LogLevel, prefix: string = ''): CouchbaseLogger {
  const from = (level: LogLevel, write: (...args: any[]) => void): ((message: string, ...args: any[]) => void) =>
    level < logLevel ? () => {} : (message, ...args) => write(prefix + message, ...args)
  return new CouchbaseLogger({
    // The stack that `console.trace` adds tells nothing here.
    trace: from(LogLevel.TRACE, (...args) => console.debug(...args)),
    debug: from(LogLevel.DEBUG, (...args) => console.debug(...args)),
    info: from(LogLevel.INFO, (...args) => console.info(...args)),
    warn: from(LogLevel.WARN, (...args) => console.warn(...args)),
    error: from(LogLevel.ERROR, (...args) => console.error(...args)),
  })
}
