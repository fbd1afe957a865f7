"""Dataverses, datasets, indexes and links of analytics."""

from ...management import analytics as _analytics
from ...management.analytics import (
    AnalyticsDataset,
    AnalyticsDataType,
    AnalyticsEncryptionLevel,
    AnalyticsIndex,
    AnalyticsLink,
    AnalyticsLinkType,
    AzureBlobExternalAnalyticsLink,
    CouchbaseAnalyticsEncryptionSettings,
    CouchbaseRemoteAnalyticsLink,
    S3ExternalAnalyticsLink,
)
from .. import _blocking, _Facade

__all__ = [
    "AnalyticsDataType",
    "AnalyticsDataset",
    "AnalyticsEncryptionLevel",
    "AnalyticsIndex",
    "AnalyticsIndexManager",
    "AnalyticsLink",
    "AnalyticsLinkType",
    "AzureBlobExternalAnalyticsLink",
    "CouchbaseAnalyticsEncryptionSettings",
    "CouchbaseRemoteAnalyticsLink",
    "S3ExternalAnalyticsLink",
]


class AnalyticsIndexManager(_Facade[_analytics.AnalyticsIndexManager]):
    """Manages the dataverses, datasets, indexes and links of analytics."""

    create_dataverse = _blocking(_analytics.AnalyticsIndexManager.create_dataverse)
    drop_dataverse = _blocking(_analytics.AnalyticsIndexManager.drop_dataverse)
    create_dataset = _blocking(_analytics.AnalyticsIndexManager.create_dataset)
    drop_dataset = _blocking(_analytics.AnalyticsIndexManager.drop_dataset)
    get_all_datasets = _blocking(_analytics.AnalyticsIndexManager.get_all_datasets)
    create_index = _blocking(_analytics.AnalyticsIndexManager.create_index)
    drop_index = _blocking(_analytics.AnalyticsIndexManager.drop_index)
    get_all_indexes = _blocking(_analytics.AnalyticsIndexManager.get_all_indexes)
    connect_link = _blocking(_analytics.AnalyticsIndexManager.connect_link)
    disconnect_link = _blocking(_analytics.AnalyticsIndexManager.disconnect_link)
    get_pending_mutations = _blocking(_analytics.AnalyticsIndexManager.get_pending_mutations)
    create_link = _blocking(_analytics.AnalyticsIndexManager.create_link)
    replace_link = _blocking(_analytics.AnalyticsIndexManager.replace_link)
    drop_link = _blocking(_analytics.AnalyticsIndexManager.drop_link)
    get_links = _blocking(_analytics.AnalyticsIndexManager.get_links)
