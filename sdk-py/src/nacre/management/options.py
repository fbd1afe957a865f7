"""Options of the managers' operations, with the names of the official package."""

from ..options import TimeoutOptions
from .analytics import (
    ConnectLinkOptions,
    CreateAnalyticsIndexOptions,
    CreateDatasetOptions,
    CreateDataverseOptions,
    CreateLinkAnalyticsOptions,
    DisconnectLinkOptions,
    DropAnalyticsIndexOptions,
    DropDatasetOptions,
    DropDataverseOptions,
    DropLinkAnalyticsOptions,
    GetAllAnalyticsIndexesOptions,
    GetAllDatasetOptions,
    GetLinksAnalyticsOptions,
    ReplaceLinkAnalyticsOptions,
)
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
    "ConnectLinkOptions",
    "CreateAnalyticsIndexOptions",
    "CreateBucketOptions",
    "CreateCollectionOptions",
    "CreateDatasetOptions",
    "CreateDataverseOptions",
    "CreateLinkAnalyticsOptions",
    "CreatePrimaryQueryIndexOptions",
    "CreateQueryIndexOptions",
    "CreateScopeOptions",
    "DeployFunctionOptions",
    "DisallowQueryingSearchIndexOptions",
    "DisconnectLinkOptions",
    "DropAnalyticsIndexOptions",
    "DropBucketOptions",
    "DropCollectionOptions",
    "DropDatasetOptions",
    "DropDataverseOptions",
    "DropDesignDocumentOptions",
    "DropFunctionOptions",
    "DropGroupOptions",
    "DropLinkAnalyticsOptions",
    "DropPrimaryQueryIndexOptions",
    "DropQueryIndexOptions",
    "DropScopeOptions",
    "DropSearchIndexOptions",
    "DropUserOptions",
    "EventingFunctionOptions",
    "FlushBucketOptions",
    "FreezePlanSearchIndexOptions",
    "FunctionsStatusOptions",
    "GetAllAnalyticsIndexesOptions",
    "GetAllBucketOptions",
    "GetAllDatasetOptions",
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
    "GetLinksAnalyticsOptions",
    "GetPendingMutationsOptions",
    "GetRolesOptions",
    "GetSearchIndexOptions",
    "GetSearchIndexStatsOptions",
    "GetSearchIndexedDocumentsCountOptions",
    "GetUserOptions",
    "PauseFunctionOptions",
    "PauseIngestSearchIndexOptions",
    "PublishDesignDocumentOptions",
    "ReplaceLinkAnalyticsOptions",
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
