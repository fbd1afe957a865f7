"""Exceptions, with the names of the official SDKs.

Every exception is a `CouchbaseException` and has a `context`: the document or request, the response
of the server, and the number of retries.
"""

from typing import Any

from ._record import dataclass


@dataclass(slots=True)
class ErrorContext:
    """Context of an error. Members that do not apply are None."""

    key: str | None = None
    """Key of the document."""
    bucket: str | None = None
    """Name of the bucket."""
    scope: str | None = None
    """Name of the scope."""
    collection: str | None = None
    """Name of the collection."""
    operation: str | None = None
    """Name of the operation on the wire, or method and path of an HTTP request."""
    status: int | None = None
    """Status of the answer: of the binary protocol, or of HTTP."""
    opaque: int | None = None
    """Number by which the request is found in logs and captures."""
    endpoint: str | None = None
    """``host:port`` that was asked."""
    detail: str | None = None
    """Text the server gave."""
    statement: str | None = None
    """The statement of a query."""
    client_context_id: str | None = None
    """Number by which a query is found in logs of the server."""
    first_error_code: int | None = None
    """Number of the first error of a query."""
    first_error_message: str | None = None
    """What the server says about it."""
    errors: tuple[dict[str, Any], ...] = ()
    """All errors of a query, as the server gave them."""
    retry_attempts: int = 0
    """How often it was tried again."""
    retry_reasons: tuple[str, ...] = ()
    """Why it was tried again, in order of first occurrence."""

    # Names that contexts of the official SDK have.

    @property
    def bucket_name(self) -> str | None:
        """Name of the bucket."""
        return self.bucket

    @property
    def scope_name(self) -> str | None:
        """Name of the scope."""
        return self.scope

    @property
    def collection_name(self) -> str | None:
        """Name of the collection."""
        return self.collection

    @property
    def last_dispatched_to(self) -> str | None:
        """``host:port`` that was asked last."""
        return self.endpoint


class CouchbaseException(Exception):
    """Base of all errors of this package."""

    def __init__(self, message: str = "", context: ErrorContext | None = None) -> None:
        super().__init__(message or (type(self).__doc__ or "").split("\n")[0])
        self.context = context or ErrorContext()

    @property
    def message(self) -> str:
        """The message, without the context."""
        return str(self.args[0])

    @property
    def error_code(self) -> int | None:
        """Status of the answer, or number of the first error of a query."""
        return self.context.status or self.context.first_error_code

    @property
    def error_context(self) -> ErrorContext:
        """The same as `context`."""
        return self.context

    @property
    def inner_cause(self) -> BaseException | None:
        """The cause of this error."""
        return self.__cause__

    def __str__(self) -> str:
        context = self.context
        named = {
            "key": context.key,
            "operation": context.operation,
            "status": None if context.status is None else f"0x{context.status:02x}",
            "opaque": context.opaque,
            "endpoint": context.endpoint,
            "detail": context.detail,
            "code": context.first_error_code,
            "client_context_id": context.client_context_id,
            "tried again for": ", ".join(context.retry_reasons) or None,
        }
        details = ", ".join(f"{name} {value}" for name, value in named.items() if value is not None)
        return f"{self.args[0]} ({details})" if details else str(self.args[0])


class InvalidArgumentException(CouchbaseException):
    """An argument cannot be used; nothing was sent."""


class AuthenticationException(CouchbaseException):
    """The user or password is wrong, or lacks the right."""


class FeatureUnavailableException(CouchbaseException):
    """The server does not offer this."""


class ServiceUnavailableException(CouchbaseException):
    """No node of the cluster runs the service."""


class InternalServerFailureException(CouchbaseException):
    """The server failed, or gave an answer that this client does not know."""


class DecodingFailureException(CouchbaseException):
    """The server's answer cannot be read."""


class RequestCanceledException(CouchbaseException):
    """The connection was lost, or closed, and it is unknown whether the request took effect."""


class TimeoutException(CouchbaseException):
    """Time ran out."""


class UnAmbiguousTimeoutException(TimeoutException):
    """Time ran out, and the request changed nothing."""


class AmbiguousTimeoutException(TimeoutException):
    """Time ran out, and it is unknown whether the request took effect."""


class TemporaryFailException(CouchbaseException):
    """The server was too busy until the deadline."""


class DocumentNotFoundException(CouchbaseException):
    """There is no such document."""


class DocumentExistsException(CouchbaseException):
    """There is such a document already."""


class CasMismatchException(CouchbaseException):
    """The document changed since its CAS was read."""


CASMismatchException = CasMismatchException
"""The same; the name that programs use most."""


class DocumentUnretrievableException(CouchbaseException):
    """No copy of the document could be read."""


class MutationTokenOutdatedException(CouchbaseException):
    """A fail-over lost the history that the mutation token belongs to."""


class MissingTokenException(CouchbaseException):
    """The result has no mutation token."""


class QueueEmpty(Exception):
    """The queue has no element."""


class DocumentLockedException(CouchbaseException):
    """Somebody else holds the document's lock."""


class DocumentNotLockedException(CouchbaseException):
    """The document is not locked."""


class ValueTooLargeException(CouchbaseException):
    """The document would be larger than the server allows."""


class ValidationException(CouchbaseException):
    """A document does not fit the schema of its collection; on a write, nothing was sent.

    The ``__cause__`` is the error of the schema's library.
    """


class ValueFormatException(CouchbaseException):
    """The transcoder cannot turn this value into bytes, or these bytes into a value."""


class DeltaInvalidException(CouchbaseException):
    """The document is no counter, or the delta is no number that a counter can take."""


class DurabilityInvalidLevelException(CouchbaseException):
    """The bucket cannot be as durable as is asked of its writes."""


class DurabilityImpossibleException(CouchbaseException):
    """The bucket has fewer copies than the durability asks for."""


class DurabilitySyncWriteAmbiguousException(CouchbaseException):
    """The server gave up a durable write, and it is unknown whether it took effect."""


class DurabilitySyncWriteInProgressException(CouchbaseException):
    """Another durable write of the document was under way until the deadline."""


class DocumentMutationLostException(CouchbaseException):
    """A fail-over lost the mutation before it was as durable as asked."""


class PathNotFoundException(CouchbaseException):
    """The document has nothing at the path."""


class PathExistsException(CouchbaseException):
    """The document has something at the path already."""


class PathMismatchException(CouchbaseException):
    """The path goes through a value that is of another kind."""


class PathInvalidException(CouchbaseException):
    """The path cannot be read, or not be used with this operation."""


class PathTooBigException(CouchbaseException):
    """The path is too long or has too many parts."""


class PathTooDeepException(CouchbaseException):
    """The document is nested too deeply."""


class ValueTooDeepException(CouchbaseException):
    """The value would be nested too deeply."""


class InvalidValueException(CouchbaseException):
    """The value cannot be put there, or is not JSON."""


class DocumentNotJsonException(CouchbaseException):
    """The document is not JSON."""


class NumberTooBigException(CouchbaseException):
    """The number at the path is no 64-bit integer."""


class XattrInvalidException(CouchbaseException):
    """The extended attribute cannot be used in this way."""


class BucketNotFoundException(CouchbaseException):
    """There is no such bucket."""


class BucketDoesNotExistException(BucketNotFoundException):
    """There is no such bucket; what its management says."""


class BucketAlreadyExistsException(CouchbaseException):
    """There is such a bucket already."""


class ScopeNotFoundException(CouchbaseException):
    """There is no such scope."""


class ScopeAlreadyExistsException(CouchbaseException):
    """There is such a scope already."""


class CollectionNotFoundException(CouchbaseException):
    """There is no such collection."""


class CollectionAlreadyExistsException(CouchbaseException):
    """There is such a collection already."""


class DesignDocumentNotFoundException(CouchbaseException):
    """There is no such design document."""


class ViewNotFoundException(DesignDocumentNotFoundException):
    """There is no such view or design document."""


class ViewEngineException(CouchbaseException):
    """The view engine refused the query, or part of it failed."""


class AlreadyQueriedException(CouchbaseException):
    """The rows of a result were asked for a second time."""


class HTTPException(CouchbaseException):
    """A service refused a request, for a reason that has no exception of its own."""


class QueryException(CouchbaseException):
    """The query service refused a statement, for a reason that has no exception of its own."""


class ParsingFailedException(QueryException):
    """The statement cannot be read."""


class QueryIndexException(QueryException):
    """An index could not be read or changed."""


class QueryIndexNotFoundException(QueryIndexException):
    """There is no such index."""


class QueryIndexAlreadyExistsException(QueryIndexException):
    """There is such an index already."""


class KeyspaceNotFoundException(QueryException):
    """There is no such keyspace."""


class WatchQueryIndexTimeoutException(TimeoutException):
    """Indexes were not online in time."""


class RateLimitedException(CouchbaseException):
    """The user has sent too many requests."""


class QuotaLimitedException(CouchbaseException):
    """The user has reached a quota."""


class BucketNotFlushableException(CouchbaseException):
    """The bucket does not let itself be flushed."""


class UserNotFoundException(CouchbaseException):
    """There is no such user."""


class GroupNotFoundException(CouchbaseException):
    """There is no such group of users."""


class FeatureNotFoundException(FeatureUnavailableException):
    """The server does not know of such a feature."""


class SearchIndexNotFoundException(CouchbaseException):
    """There is no such search index."""


class AnalyticsException(CouchbaseException):
    """The analytics service refused a request, for a reason that has no exception of its own."""


class CompilationFailedException(AnalyticsException):
    """The analytics service cannot compile the statement."""


class JobQueueFullException(AnalyticsException):
    """The analytics service has too many requests to accept another one."""


class DataverseNotFoundException(AnalyticsException):
    """The dataverse does not exist."""


class DataverseAlreadyExistsException(AnalyticsException):
    """The dataverse exists already."""


class DatasetNotFoundException(AnalyticsException):
    """The dataset does not exist."""


class DatasetAlreadyExistsException(AnalyticsException):
    """The dataset exists already."""


class AnalyticsLinkNotFoundException(AnalyticsException):
    """The link does not exist."""


class AnalyticsLinkExistsException(AnalyticsException):
    """The link exists already."""


class EventingFunctionException(CouchbaseException):
    """The eventing service refused a request, for a reason that has no exception of its own."""


class EventingFunctionNotFoundException(EventingFunctionException):
    """There is no such function."""


class EventingFunctionNotDeployedException(EventingFunctionException):
    """The function is not deployed."""


class EventingFunctionAlreadyDeployedException(EventingFunctionException):
    """The function is deployed already."""


class EventingFunctionNotUnDeployedException(EventingFunctionException):
    """The function has to be undeployed before."""


class EventingFunctionNotBootstrappedException(EventingFunctionException):
    """The function is about to be deployed."""


class EventingFunctionCompilationFailureException(EventingFunctionException):
    """The code of the function cannot be read."""


class EventingFunctionIdenticalKeyspaceException(EventingFunctionException):
    """The function has the same keyspace for its documents and its metadata."""


class EventingFunctionCollectionNotFoundException(EventingFunctionException):
    """There is no such collection."""


class HistoryLostException(CouchbaseException):
    """Changes behind the token cannot be given without a gap: begin anew.

    The bucket was flushed, the collection made anew, or a fail-over lost a part of the history.
    """


class TransactionException(CouchbaseException):
    """Base of what a transaction comes to when it does not commit."""


class TransactionFailed(TransactionException):
    """The transaction has failed; nothing is changed."""


class TransactionExpired(TransactionException):
    """The transaction found no end in time; nothing is changed."""


class TransactionCommitAmbiguous(TransactionException):
    """Nobody knows whether the transaction has committed."""


class TransactionOperationFailed(TransactionException):
    """An operation has failed, with which the attempt ends; the cause says why."""


class InvalidIndexException(CouchbaseException):
    """There is no result at the index."""


class InternalSDKException(CouchbaseException):
    """This package has done something wrong."""


# Names that the official SDK has for the same.
SubdocCantInsertValueException = InvalidValueException
SubdocPathMismatchException = PathMismatchException
UnsupportedOperation = FeatureUnavailableException
MissingConnectionException = RequestCanceledException
UnsuccessfulOperationException = CouchbaseException
NoChildrenException = InvalidArgumentException
AnalyticsErrorContext = ErrorContext
HTTPErrorContext = ErrorContext
KeyValueErrorContext = ErrorContext
ManagementErrorContext = ErrorContext
QueryErrorContext = ErrorContext
SearchErrorContext = ErrorContext
SubdocumentErrorContext = ErrorContext
TransactionsErrorContext = ErrorContext
ViewErrorContext = ErrorContext
