/**
 * Documents that fit a schema. Zod, Valibot, ArkType and other libraries implement Standard Schema
 * (https://standardschema.dev). Its interface is copied here, so that no package is needed.
 */

import { FeatureNotAvailableError, InvalidArgumentError, ValidationError } from './errors.js'
import type { Transcoder } from './transcoders.js'

/** A schema from a library that implements Standard Schema. */
export interface StandardSchema<Input = unknown, Output = Input> {
  readonly '~standard': {
    readonly version: 1
    readonly vendor: string
    readonly validate: (value: unknown) => SchemaResult<Output> | Promise<SchemaResult<Output>>
    readonly types?: { readonly input: Input; readonly output: Output } | undefined
  }
}

/** The result of a validation: a value, or issues. */
export type SchemaResult<Output> =
  | { readonly value: Output; readonly issues?: undefined }
  | { readonly issues: readonly SchemaIssue[] }

/** An issue and its path. */
export interface SchemaIssue {
  readonly message: string
  readonly path?: readonly (PropertyKey | { readonly key: PropertyKey })[] | undefined
}

/** Stores values that fit a schema unchanged, and returns the schema's output for values that are read. */
export class SchemaTranscoder<Output = unknown> implements Transcoder {
  readonly #schema: StandardSchema<any, Output>
  readonly #inner: Transcoder

  /** `inner` encodes values that fit. */
  constructor(schema: StandardSchema<any, Output>, inner: Transcoder) {
    if (typeof schema?.['~standard']?.validate !== 'function') {
      throw new InvalidArgumentError('a schema implements Standard Schema')
    }
    this.#schema = schema
    this.#inner = inner
  }

  /** Encodes a value that fits. */
  encode(value: any): [Buffer, number] {
    this.validate(value)
    return this.#inner.encode(value)
  }

  /** Returns the schema's output for the stored value. */
  decode(bytes: Buffer, flags: number): Output {
    return this.validate(this.#inner.decode(bytes, flags))
  }

  /**
   * Returns the schema's output for a value.
   *
   * @throws ValidationError if it does not fit.
   */
  validate(value: unknown): Output {
    const result = this.#schema['~standard'].validate(value)
    if (result instanceof Promise) {
      // Nobody awaits it.
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
