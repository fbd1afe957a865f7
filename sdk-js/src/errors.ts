/**
 * Errors, with the names of the official SDKs.
 *
 * Every error is a `CouchbaseError` and has a `context`: the document or request, the response of the server, and the
 * number of retries.
 */

import { hex } from './opcodes.js'

/** Context of an error. Members that do not apply are absent. */
export interface ErrorContext {
  /** Key of the document. */
  key?: string
  /** Name of the bucket. */
  bucket?: string
  /** Name of the scope. */
  scope?: string
  /** Name of the collection. */
  collection?: string
  /** Name of the operation, or method and path of an HTTP request. */
  operation?: string
  /** Status of the response: of the binary protocol, or of HTTP. */
  status?: number
  /** Opaque of the request, which identifies it in logs and captures. */
  opaque?: number
  /** `host:port` of the node. */
  endpoint?: string
  /** Text from the server. */
  detail?: string
  /** Statement of a query. */
  statement?: string
  /** ID of the request in the logs of the query service. */
  clientContextId?: string
  /** Code of the first error that a service reported. */
  errorCode?: number
  /** Text of the first error that a service reported. */
  errorMessage?: string
  /** The cause of the first error, as the service reports it. */
  errorCause?: any
  /** Number of retries. */
  retryAttempts?: number
  /** Reasons of the retries, in order of first occurrence. */
  retryReasons?: string[]
}

/** Base class of all errors in this package. */
export class CouchbaseError extends Error {
  /** Context of the error. */
  readonly context: ErrorContext

  /** Default message. */
  static summary: string = 'The request failed.'

  constructor(message?: string, context: ErrorContext = {}, cause?: unknown) {
    const described = describe(context)
    const text = message ?? new.target.summary
    super(described ? `${text} (${described})` : text, cause === undefined ? {} : { cause })
    this.name = new.target.name
    this.context = context
  }
}

/** An argument is invalid. The client has sent nothing. */
export class InvalidArgumentError extends CouchbaseError {
  static override summary: string = 'An argument cannot be used; nothing was sent.'
}

/** The user or password is wrong, or the user lacks a privilege. */
export class AuthenticationFailureError extends CouchbaseError {
  static override summary: string = 'The user or password is wrong, or lacks the right.'
}

/** The server does not support the feature. */
export class FeatureNotAvailableError extends CouchbaseError {
  static override summary: string = 'The server does not offer this.'
}

/** No node of the cluster runs the service. */
export class ServiceNotAvailableError extends CouchbaseError {
  static override summary: string = 'No node of the cluster runs the service.'
}

/** The server has failed, or has sent a response that this client does not know. */
export class InternalServerFailureError extends CouchbaseError {
  static override summary: string = 'The server failed, or gave an answer that this client does not know.'
}

/** The response of the server, or the document, cannot be decoded. */
export class DecodingFailureError extends CouchbaseError {
  static override summary: string = "The server's answer, or the document, cannot be read."
}

/** A document does not fit the schema of its collection. A write has sent nothing. */
export class ValidationError extends CouchbaseError {
  static override summary: string = 'A document does not fit the schema of its collection.'
  /** The issues, as the schema's library reports them. */
  readonly issues: readonly { readonly message: string; readonly path?: readonly unknown[] | undefined }[]

  constructor(message?: string, issues: ValidationError['issues'] = [], context: ErrorContext = {}) {
    super(message, context)
    this.issues = issues
  }
}

/** The value cannot be encoded. */
export class EncodingFailureError extends CouchbaseError {
  static override summary: string = 'The value cannot be turned into bytes.'
}

/** The request was aborted or its connection was lost. The request may have taken effect. */
export class RequestCanceledError extends CouchbaseError {
  static override summary: string = 'The request was aborted or its connection lost: it may have taken effect.'
}

/** The operation has timed out. */
export class TimeoutError extends CouchbaseError {
  static override summary: string = 'Time ran out.'
}

/** The operation has timed out and has changed nothing. */
export class UnambiguousTimeoutError extends TimeoutError {
  static override summary: string = 'Time ran out, and the request changed nothing.'
}

/** The operation has timed out and may have taken effect. */
export class AmbiguousTimeoutError extends TimeoutError {
  static override summary: string = 'Time ran out, and it is unknown whether the request took effect.'
}

/** The server was too busy until the deadline. */
export class TemporaryFailureError extends CouchbaseError {
  static override summary: string = 'The server was too busy until the deadline.'
}

/** The document does not exist. */
export class DocumentNotFoundError extends CouchbaseError {
  static override summary: string = 'There is no such document.'
}

/** The document exists already. */
export class DocumentExistsError extends CouchbaseError {
  static override summary: string = 'There is such a document already.'
}

/** The document changed since its CAS was read. */
export class CasMismatchError extends CouchbaseError {
  static override summary: string = 'The document changed since its CAS was read.'
}

/** The document is locked. */
export class DocumentLockedError extends CouchbaseError {
  static override summary: string = "Somebody else holds the document's lock."
}

/** The document is not locked. */
export class DocumentNotLockedError extends CouchbaseError {
  static override summary: string = 'The document is not locked.'
}

/** The document would be larger than the server allows. */
export class ValueTooLargeError extends CouchbaseError {
  static override summary: string = 'The document would be larger than the server allows.'
}

/** The document is not a counter, or the delta is invalid. */
export class DeltaInvalidError extends CouchbaseError {
  static override summary: string = 'The document is no counter, or the delta is no number that a counter can take.'
}

/** The bucket does not support the durability level. */
export class DurabilityLevelNotAvailableError extends CouchbaseError {
  static override summary: string = 'The bucket cannot be as durable as is asked of its writes.'
}

/** The bucket has fewer copies than the durability requires. */
export class DurabilityImpossibleError extends CouchbaseError {
  static override summary: string = 'The bucket has fewer copies than the durability asks for.'
}

/** A durable write has timed out on the server and may have taken effect. */
export class DurabilityAmbiguousError extends CouchbaseError {
  static override summary: string = 'The server gave up a durable write, and it is unknown whether it took effect.'
}

/** A failover has lost the mutation before it was durable. */
export class MutationLostError extends CouchbaseError {
  static override summary: string = 'A fail-over lost the mutation before it was as durable as asked.'
}

/** The document has nothing at the path. */
export class PathNotFoundError extends CouchbaseError {
  static override summary: string = 'The document has nothing at the path.'
}

/** The document has something at the path already. */
export class PathExistsError extends CouchbaseError {
  static override summary: string = 'The document has something at the path already.'
}

/** The path goes through a value that is of another kind. */
export class PathMismatchError extends CouchbaseError {
  static override summary: string = 'The path goes through a value that is of another kind.'
}

/** The path is malformed, or cannot be used with this operation. */
export class PathInvalidError extends CouchbaseError {
  static override summary: string = 'The path cannot be read, or not be used with this operation.'
}

/** The path is too long or has too many parts. */
export class PathTooBigError extends CouchbaseError {
  static override summary: string = 'The path is too long or has too many parts.'
}

/** The document is nested too deeply. */
export class PathTooDeepError extends CouchbaseError {
  static override summary: string = 'The document is nested too deeply.'
}

/** The value would be nested too deeply. */
export class ValueTooDeepError extends CouchbaseError {
  static override summary: string = 'The value would be nested too deeply.'
}

/** The value cannot be put there, or is not JSON. */
export class ValueInvalidError extends CouchbaseError {
  static override summary: string = 'The value cannot be put there, or is not JSON.'
}

/** The document is not JSON. */
export class DocumentNotJsonError extends CouchbaseError {
  static override summary: string = 'The document is not JSON.'
}

/** The number at the path is not a 64-bit integer. */
export class NumberTooBigError extends CouchbaseError {
  static override summary: string = 'The number at the path is no 64-bit integer.'
}

/** The extended attribute cannot be used in this way. */
export class XattrInvalidError extends CouchbaseError {
  static override summary: string = 'The extended attribute cannot be used in this way.'
}

/** The bucket does not exist. */
export class BucketNotFoundError extends CouchbaseError {
  static override summary: string = 'There is no such bucket.'
}

/** The bucket exists already. */
export class BucketExistsError extends CouchbaseError {
  static override summary: string = 'There is such a bucket already.'
}

/** The scope does not exist. */
export class ScopeNotFoundError extends CouchbaseError {
  static override summary: string = 'There is no such scope.'
}

/** The scope exists already. */
export class ScopeExistsError extends CouchbaseError {
  static override summary: string = 'There is such a scope already.'
}

/** The collection does not exist. */
export class CollectionNotFoundError extends CouchbaseError {
  static override summary: string = 'There is no such collection.'
}

/** The collection exists already. */
export class CollectionExistsError extends CouchbaseError {
  static override summary: string = 'There is such a collection already.'
}

/** The design document does not exist. */
export class DesignDocumentNotFoundError extends CouchbaseError {
  static override summary: string = 'There is no such design document.'
}

/** The view or design document does not exist. */
export class ViewNotFoundError extends DesignDocumentNotFoundError {
  static override summary: string = 'There is no such view or design document.'
}

/** The view engine refused the query, or part of it failed. */
export class ViewEngineError extends CouchbaseError {
  static override summary: string = 'The view engine refused the query, or part of it failed.'
}

/** The connection is closed. */
export class ConnectionClosedError extends CouchbaseError {
  static override summary: string = 'The connection is closed.'
}

/** The cluster is closed. */
export class ClusterClosedError extends CouchbaseError {
  static override summary: string = 'The cluster is closed.'
}

/** The operation needs a bucket. */
export class NeedOpenBucketError extends CouchbaseError {
  static override summary: string = 'The operation needs a bucket.'
}

/** The durability level does not exist. */
export class InvalidDurabilityLevel extends InvalidArgumentError {
  static override summary: string = 'There is no such durability level.'
}

/** A mutation cannot be persisted to that number of nodes. */
export class InvalidDurabilityPersistToLevel extends InvalidArgumentError {
  static override summary: string = 'A mutation cannot be persisted to that number of nodes.'
}

/** A mutation cannot be replicated to that number of nodes. */
export class InvalidDurabilityReplicateToLevel extends InvalidArgumentError {
  static override summary: string = 'A mutation cannot be replicated to that number of nodes.'
}

/** The operation is not supported here. */
export class UnsupportedOperationError extends CouchbaseError {
  static override summary: string = 'The operation is not supported here.'
}

/** The user or the cluster has reached a rate limit. */
export class RateLimitedError extends CouchbaseError {
  static override summary: string = 'The user or the cluster has reached a rate limit.'
}

/** The user or the cluster has reached a quota. */
export class QuotaLimitedError extends CouchbaseError {
  static override summary: string = 'The user or the cluster has reached a quota.'
}

/** No copy of the document could be read. */
export class DocumentUnretrievableError extends CouchbaseError {
  static override summary: string = 'No copy of the document could be read.'
}

/** Another durable write of the document is in progress. */
export class DurableWriteInProgressError extends TemporaryFailureError {
  static override summary: string = 'Another durable write of the document is under way.'
}

/** An earlier durable write of the document is being committed again. */
export class DurableWriteReCommitInProgressError extends TemporaryFailureError {
  static override summary: string = 'An earlier durable write of the document is being committed again.'
}

/** The statement cannot be parsed. */
export class ParsingFailureError extends CouchbaseError {
  static override summary: string = 'The statement cannot be parsed.'
}

/** The statement cannot be planned. */
export class PlanningFailureError extends CouchbaseError {
  static override summary: string = 'The statement cannot be planned.'
}

/** The statement cannot be prepared, or the prepared one cannot be used. */
export class PreparedStatementFailureError extends CouchbaseError {
  static override summary: string = 'The statement cannot be prepared, or the prepared one cannot be used.'
}

/** The statement could not change the documents. */
export class DmlFailureError extends CouchbaseError {
  static override summary: string = 'The statement could not change the documents.'
}

/** An index failed. */
export class IndexFailureError extends CouchbaseError {
  static override summary: string = 'An index failed.'
}

/** The index does not exist. */
export class IndexNotFoundError extends CouchbaseError {
  static override summary: string = 'There is no such index.'
}

/** The index exists already. */
export class IndexExistsError extends CouchbaseError {
  static override summary: string = 'There is such an index already.'
}

/** The index is not ready yet. */
export class IndexNotReadyError extends CouchbaseError {
  static override summary: string = 'The index is not ready yet.'
}

/** The statement cannot be compiled. */
export class CompilationFailureError extends CouchbaseError {
  static override summary: string = 'The statement cannot be compiled.'
}

/** The queue of the service is full. */
export class JobQueueFullError extends CouchbaseError {
  static override summary: string = 'The service has too many requests to take another one.'
}

/** The dataset does not exist. */
export class DatasetNotFoundError extends CouchbaseError {
  static override summary: string = 'There is no such dataset.'
}

/** The dataset exists already. */
export class DatasetExistsError extends CouchbaseError {
  static override summary: string = 'There is such a dataset already.'
}

/** The dataverse does not exist. */
export class DataverseNotFoundError extends CouchbaseError {
  static override summary: string = 'There is no such dataverse.'
}

/** The dataverse exists already. */
export class DataverseExistsError extends CouchbaseError {
  static override summary: string = 'There is such a dataverse already.'
}

/** The link does not exist. */
export class LinkNotFoundError extends CouchbaseError {
  static override summary: string = 'There is no such link.'
}

/** The link exists already. */
export class LinkExistsError extends CouchbaseError {
  static override summary: string = 'There is such a link already.'
}

/** The user does not exist. */
export class UserNotFoundError extends CouchbaseError {
  static override summary: string = 'There is no such user.'
}

/** The user exists already. */
export class UserExistsError extends CouchbaseError {
  static override summary: string = 'There is such a user already.'
}

/** The group does not exist. */
export class GroupNotFoundError extends CouchbaseError {
  static override summary: string = 'There is no such group.'
}

/** The bucket does not allow flushing. */
export class BucketNotFlushableError extends CouchbaseError {
  static override summary: string = 'The bucket does not allow to be flushed.'
}

/** The function does not exist. */
export class EventingFunctionNotFoundError extends CouchbaseError {
  static override summary: string = 'There is no such function.'
}

/** The function is not deployed. */
export class EventingFunctionNotDeployedError extends CouchbaseError {
  static override summary: string = 'The function is not deployed.'
}

/** The function cannot be compiled. */
export class EventingFunctionCompilationFailureError extends CouchbaseError {
  static override summary: string = 'The function cannot be compiled.'
}

/** The source and the metadata of the function have the same keyspace. */
export class EventingFunctionIdenticalKeyspaceError extends CouchbaseError {
  static override summary: string = 'The function has the same keyspace as source and for metadata.'
}

/** The function is deployed and not running yet. */
export class EventingFunctionNotBootstrappedError extends CouchbaseError {
  static override summary: string = 'The function is deployed and not running yet.'
}

/** The function is deployed: undeploy it first. */
export class EventingFunctionDeployedError extends CouchbaseError {
  static override summary: string = 'The function is deployed: undeploy it first.'
}

/** The function is paused. */
export class EventingFunctionPausedError extends CouchbaseError {
  static override summary: string = 'The function is paused.'
}

/** The changes since the token would have gaps: discard the local data and restart with 0. */
export class ChangesLostError extends CouchbaseError {
  static override summary: string = 'The changes since the token cannot be told without gaps.'
}

/** An operation of a transaction has failed, and so has the transaction. */
export class TransactionOperationFailedError extends CouchbaseError {
  static override summary: string = 'An operation of the transaction failed.'
}

/** The transaction was rolled back: nothing has changed. The `cause` contains the reason. */
export class TransactionFailedError extends CouchbaseError {
  static override summary: string = 'The transaction was rolled back.'
}

/** The transaction has timed out and was rolled back: nothing has changed. */
export class TransactionExpiredError extends TransactionFailedError {
  static override summary: string = 'The time of the transaction was over, and it was rolled back.'
}

/** It is unknown whether the transaction was committed. */
export class TransactionCommitAmbiguousError extends CouchbaseError {
  static override summary: string = 'It is unknown whether the transaction was committed.'
}

function brief(statement: string): string {
  return statement.length > 200 ? `${statement.slice(0, 200)}…` : statement
}

function describe(context: ErrorContext): string {
  const named: [string, unknown][] = [
    ['key', context.key],
    ['operation', context.operation],
    ['status', context.status === undefined ? undefined : hex(context.status)],
    ['opaque', context.opaque],
    ['endpoint', context.endpoint],
    ['detail', context.detail],
    ['statement', context.statement && brief(context.statement)],
    ['tried again for', context.retryReasons?.join(', ') || undefined],
  ]
  return named
    .filter(([, value]) => value !== undefined)
    .map(([name, value]) => `${name} ${value}`)
    .join(', ')
}
