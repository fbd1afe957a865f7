/**
 * Documents that fit a schema, of whatever library: Zod, Valibot, ArkType and others implement Standard Schema
 * (https://standardschema.dev), whose interface stands here so that no package is needed.
 */

import { FeatureNotAvailableError, InvalidArgumentError, ValidationError } from './errors.js'
import type { Transcoder } from './transcoders.js'

/** A schema of a library that implements Standard Schema. */
export interface StandardSchema<Input = unknown, Output = Input> {
  readonly '~standard': {
    readonly version: 1
    readonly vendor: string
    readonly validate: (value: unknown) => SchemaResult<Output> | Promise<SchemaResult<Output>>
    readonly types?: { readonly input: Input; readonly output: Output } | undefined
  }
}

/** What a schema makes of a value: another value, or what does not fit. */
export type SchemaResult<Output> =
  | { readonly value: Output; readonly issues?: undefined }
  | { readonly issues: readonly SchemaIssue[] }

/** What does not fit, and where. */
export interface SchemaIssue {
  readonly message: string
  readonly path?: readonly (PropertyKey | { readonly key: PropertyKey })[] | undefined
}

/** Stores values that fit a schema as they are, and gives what the schema makes of those that are read. */
export class SchemaTranscoder<Output = unknown> implements Transcoder {
  readonly #schema: StandardSchema<any, Output>
  readonly #inner: Transcoder

  /** `inner` turns values that fit into bytes. */
  constructor(schema: StandardSchema<any, Output>, inner: Transcoder) {
    if (typeof schema?.['~standard']?.validate !== 'function') {
      throw new InvalidArgumentError('a schema implements Standard Schema')
    }
    this.#schema = schema
    this.#inner = inner
  }

  /** The bytes of a value that fits. */
  encode(value: any): [Buffer, number] {
    this.validate(value)
    return this.#inner.encode(value)
  }

  /** What the schema makes of the stored value. */
  decode(bytes: Buffer, flags: number): Output {
    return this.validate(this.#inner.decode(bytes, flags))
  }

  /**
   * What the schema makes of a value.
   *
   * @throws ValidationError it does not fit.
   */
  validate(value: unknown): Output {
    const result = this.#schema['~standard'].validate(value)
    if (result instanceof Promise) {
      // Nobody waits for it.
      result.catch(() => {})
      throw new FeatureNotAvailableError('a schema that checks values asynchronously does not fit documents')
    }
    if (!result.issues) return result.value
    const texts = result.issues.map(({ message, path }) => {
      const place = (path ?? []).map((part) => String(typeof part === 'object' ? part.key : part)).join('.')
      return place ? `${place}: ${message}` : message
    })
    throw new ValidationError(`the document does not fit the schema: ${texts.join('; ')}`, result.issues)
  }
}
