"""Options of the managers' operations, with the names of the official package."""

from ..options import TimeoutOptions
from .queries import (
    BuildDeferredQueryIndexOptions,
    CreatePrimaryQueryIndexOptions,
    CreateQueryIndexOptions,
    DropPrimaryQueryIndexOptions,
    DropQueryIndexOptions,
    GetAllQueryIndexOptions,
    WatchQueryIndexOptions,
)
from .users import (
    DropUserOptions,
    GetAllUsersOptions,
    GetUserOptions,
    UpsertUserOptions,
    UserOptions,
)

AllowQueryingSearchIndexOptions = TimeoutOptions
AnalyzeDocumentSearchIndexOptions = TimeoutOptions
BucketDescribeOptions = TimeoutOptions
ChangePasswordOptions = TimeoutOptions
CreateBucketOptions = TimeoutOptions
CreateCollectionOptions = TimeoutOptions
CreateScopeOptions = TimeoutOptions
DeployFunctionOptions = TimeoutOptions
DisallowQueryingSearchIndexOptions = TimeoutOptions
DropBucketOptions = TimeoutOptions
DropCollectionOptions = TimeoutOptions
DropDesignDocumentOptions = TimeoutOptions
DropFunctionOptions = TimeoutOptions
DropGroupOptions = TimeoutOptions
DropScopeOptions = TimeoutOptions
DropSearchIndexOptions = TimeoutOptions
EventingFunctionOptions = TimeoutOptions
FlushBucketOptions = TimeoutOptions
FreezePlanSearchIndexOptions = TimeoutOptions
FunctionsStatusOptions = TimeoutOptions
GetAllBucketOptions = TimeoutOptions
GetAllDesignDocumentsOptions = TimeoutOptions
GetAllFunctionOptions = TimeoutOptions
GetAllGroupsOptions = TimeoutOptions
GetAllScopesOptions = TimeoutOptions
GetAllSearchIndexStatsOptions = TimeoutOptions
GetAllSearchIndexesOptions = TimeoutOptions
GetBucketOptions = TimeoutOptions
GetDesignDocumentOptions = TimeoutOptions
GetFunctionOptions = TimeoutOptions
GetGroupOptions = TimeoutOptions
GetPendingMutationsOptions = TimeoutOptions
GetRolesOptions = TimeoutOptions
GetSearchIndexOptions = TimeoutOptions
GetSearchIndexStatsOptions = TimeoutOptions
GetSearchIndexedDocumentsCountOptions = TimeoutOptions
PauseFunctionOptions = TimeoutOptions
PauseIngestSearchIndexOptions = TimeoutOptions
PublishDesignDocumentOptions = TimeoutOptions
ResumeFunctionOptions = TimeoutOptions
ResumeIngestSearchIndexOptions = TimeoutOptions
UndeployFunctionOptions = TimeoutOptions
UnfreezePlanSearchIndexOptions = TimeoutOptions
UpdateBucketOptions = TimeoutOptions
UpdateCollectionOptions = TimeoutOptions
UpsertDesignDocumentOptions = TimeoutOptions
UpsertFunctionOptions = TimeoutOptions
UpsertGroupOptions = TimeoutOptions
UpsertSearchIndexOptions = TimeoutOptions

__all__ = [
    "AllowQueryingSearchIndexOptions",
    "AnalyzeDocumentSearchIndexOptions",
    "BucketDescribeOptions",
    "BuildDeferredQueryIndexOptions",
    "ChangePasswordOptions",
    "CreateBucketOptions",
    "CreateCollectionOptions",
    "CreatePrimaryQueryIndexOptions",
    "CreateQueryIndexOptions",
    "CreateScopeOptions",
    "DeployFunctionOptions",
    "DisallowQueryingSearchIndexOptions",
    "DropBucketOptions",
    "DropCollectionOptions",
    "DropDesignDocumentOptions",
    "DropFunctionOptions",
    "DropGroupOptions",
    "DropPrimaryQueryIndexOptions",
    "DropQueryIndexOptions",
    "DropScopeOptions",
    "DropSearchIndexOptions",
    "DropUserOptions",
    "EventingFunctionOptions",
    "FlushBucketOptions",
    "FreezePlanSearchIndexOptions",
    "FunctionsStatusOptions",
    "GetAllBucketOptions",
    "GetAllDesignDocumentsOptions",
    "GetAllFunctionOptions",
    "GetAllGroupsOptions",
    "GetAllQueryIndexOptions",
    "GetAllScopesOptions",
    "GetAllSearchIndexStatsOptions",
    "GetAllSearchIndexesOptions",
    "GetAllUsersOptions",
    "GetBucketOptions",
    "GetDesignDocumentOptions",
    "GetFunctionOptions",
    "GetGroupOptions",
    "GetPendingMutationsOptions",
    "GetRolesOptions",
    "GetSearchIndexOptions",
    "GetSearchIndexStatsOptions",
    "GetSearchIndexedDocumentsCountOptions",
    "GetUserOptions",
    "PauseFunctionOptions",
    "PauseIngestSearchIndexOptions",
    "PublishDesignDocumentOptions",
    "ResumeFunctionOptions",
    "ResumeIngestSearchIndexOptions",
    "UndeployFunctionOptions",
    "UnfreezePlanSearchIndexOptions",
    "UpdateBucketOptions",
    "UpdateCollectionOptions",
    "UpsertDesignDocumentOptions",
    "UpsertFunctionOptions",
    "UpsertGroupOptions",
    "UpsertSearchIndexOptions",
    "UpsertUserOptions",
    "UserOptions",
    "WatchQueryIndexOptions",
]
