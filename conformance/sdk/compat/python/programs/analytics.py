"""Analytics, of which the node runs no service: errors, and what needs none."""

from datetime import timedelta
from urllib.parse import parse_qsl

from couchbase.analytics import AnalyticsScanConsistency, AnalyticsStatus
from couchbase.management.analytics import (AnalyticsDataType, AnalyticsEncryptionLevel, AnalyticsLinkType,
                                            AzureBlobExternalAnalyticsLink, CouchbaseAnalyticsEncryptionSettings,
                                            CouchbaseRemoteAnalyticsLink, S3ExternalAnalyticsLink)
from couchbase.options import AnalyticsOptions

NONE = CouchbaseAnalyticsEncryptionSettings(AnalyticsEncryptionLevel.NONE)


def a_query_without_the_service(c):
    return c.fails(lambda: list(c.cluster.analytics_query("SELECT 1").rows()))


def a_query_of_a_scope_without_the_service(c):
    return c.fails(lambda: list(c.scope.analytics_query("SELECT 1")))


def a_query_with_all_options_without_the_service(c):
    options = AnalyticsOptions(timeout=timedelta(seconds=5), read_only=True, priority=True, metrics=True,
                               scan_consistency=AnalyticsScanConsistency.REQUEST_PLUS, client_context_id="mine",
                               positional_parameters=[1], named_parameters={"x": 2}, raw={"max-warnings": 3})
    return c.fails(lambda: list(c.cluster.analytics_query("SELECT $1, $x, $y", options, y=3).rows()))


def names_of_values(c):
    return [AnalyticsScanConsistency.REQUEST_PLUS.value, AnalyticsStatus.SUCCESS.value, AnalyticsDataType.INT64.value,
            AnalyticsLinkType.AzureBlobExternal.value, AnalyticsEncryptionLevel.HALF.value]


def a_link_to_another_cluster(c):
    link = CouchbaseRemoteAnalyticsLink("Default", "far", "h:1", NONE, "u", "p&=")
    link.validate()
    return [link.name(), link.dataverse_name(), link.link_type().value, dict(parse_qsl(link.form_encode().decode())),
            link.as_dict()]


def a_link_to_a_store_in_a_scope(c):
    link = S3ExternalAnalyticsLink("b/s", "far", "id", "region", "key", "token", "http://e:1")
    link.validate()
    return [link.name(), link.dataverse_name(), link.link_type().value, dict(parse_qsl(link.form_encode().decode())),
            link.as_dict()]


def links_that_are_incomplete(c):
    full = CouchbaseAnalyticsEncryptionSettings(AnalyticsEncryptionLevel.FULL)
    return [c.fails(link.validate) for link in (
        CouchbaseRemoteAnalyticsLink("Default", "far", "", NONE, "u", "p"),
        CouchbaseRemoteAnalyticsLink("Default", "far", "h", NONE),
        CouchbaseRemoteAnalyticsLink("", "far", "h", NONE, "u", "p"),
        CouchbaseRemoteAnalyticsLink("Default", "far", "h", full, "u", "p"),
        S3ExternalAnalyticsLink("Default", "far", "id", None, "key"),
        S3ExternalAnalyticsLink("Default", "far", "id", "region"),
        S3ExternalAnalyticsLink("Default", "", "id", "region", "key"),
        AzureBlobExternalAnalyticsLink("Default", "far", account_name="n"),
        AzureBlobExternalAnalyticsLink("Default", "far", "connection"),
        AzureBlobExternalAnalyticsLink("Default", "far", account_name="n", shared_access_signature="s"),
    )]


def settings_of_encryption(c):
    settings = CouchbaseAnalyticsEncryptionSettings(AnalyticsEncryptionLevel.FULL, b"a", b"b", b"c")
    return settings.as_dict()
