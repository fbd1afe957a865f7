/** Loggers for messages about connections and maps. */

/** Log level. */
export enum LogLevel {
  TRACE = 0,
  DEBUG = 1,
  INFO = 2,
  WARN = 3,
  ERROR = 4,
}

/** A logger. Missing methods ignore their messages. `console` is a logger. */
export interface Logger {
  trace?(message: string, ...args: any[]): void
  debug?(message: string, ...args: any[]): void
  info?(message: string, ...args: any[]): void
  warn?(message: string, ...args: any[]): void
  error?(message: string, ...args: any[]): void
}

/** A logger that ignores all messages. */
export class NoOpLogger implements Logger {
  /** Ignores the message. */
  trace(): void {}

  /** Ignores the message. */
  debug(): void {}

  /** Ignores the message. */
  info(): void {}

  /** Ignores the message. */
  warn(): void {}

  /** Ignores the message. */
  error(): void {}
}

/** Forwards messages to a logger, if there is one. */
export class CouchbaseLogger implements Logger {
  readonly #logger: Logger | undefined

  constructor(logger?: Logger) {
    this.#logger = logger
  }

  /** Every step. */
  trace(message: string, ...args: any[]): void {
    this.#logger?.trace?.(message, ...args)
  }

  /** Opened connections, and maps. */
  debug(message: string, ...args: any[]): void {
    this.#logger?.debug?.(message, ...args)
  }

  /** Information. */
  info(message: string, ...args: any[]): void {
    this.#logger?.info?.(message, ...args)
  }

  /** Connections that could not be opened or were lost. */
  warn(message: string, ...args: any[]): void {
    this.#logger?.warn?.(message, ...args)
  }

  /** Unexpected errors. */
  error(message: string, ...args: any[]): void {
    this.#logger?.error?.(message, ...args)
  }
}

/** Returns the level for a name such as `warn`, or undefined. */
export function parseLogLevel(level: LogLevel | string): LogLevel | undefined {
  const found = typeof level === 'string' ? LogLevel[level.toUpperCase() as keyof typeof LogLevel] : level
  return typeof found === 'number' && LogLevel[found] !== undefined ? found : undefined
}

/** Creates a logger that writes messages of at least a level to the console, with a prefix. */
export function createConsoleLogger(logLevel: LogLevel, prefix: string = ''): CouchbaseLogger {
  const from = (level: LogLevel, write: (...args: any[]) => void): ((message: string, ...args: any[]) => void) =>
    level < logLevel ? () => {} : (message, ...args) => write(prefix + message, ...args)
  return new CouchbaseLogger({
    // The stack trace that `console.trace` adds is useless here.
    trace: from(LogLevel.TRACE, (...args) => console.debug(...args)),
    debug: from(LogLevel.DEBUG, (...args) => console.debug(...args)),
    info: from(LogLevel.INFO, (...args) => console.info(...args)),
    warn: from(LogLevel.WARN, (...args) => console.warn(...args)),
    error: from(LogLevel.ERROR, (...args) => console.error(...args)),
  })
}
