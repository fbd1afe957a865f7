"""Buckets, scopes, collections, users, design documents, eventing functions."""

import time
from datetime import timedelta

from couchbase.exceptions import CouchbaseException, DesignDocumentNotFoundException
from couchbase.management.buckets import BucketType, CreateBucketSettings, StorageBackend
from couchbase.management.collections import CollectionSpec, CreateCollectionSettings
from couchbase.management.users import Group, Role, User
from couchbase.management.views import DesignDocument, DesignDocumentNamespace, View
from couchbase.options import ViewOptions
from couchbase.views import ViewOrdering, ViewScanConsistency


def short(c, length=25):
    return "".join(filter(str.isalnum, c.key))[-length:]


def buckets_are_listed(c):
    found = next(each for each in c.cluster.buckets().get_all_buckets() if each.name == c.bucket.name)
    return [found.name, type(found.ram_quota_mb).__name__, found.bucket_type.value]


def an_unknown_bucket(c):
    buckets = c.cluster.buckets()
    return [c.fails(buckets.get_bucket, "no_such"), c.fails(buckets.drop_bucket, "no_such")]


def buckets_come_and_go(c):
    buckets = c.cluster.buckets()
    settings = CreateBucketSettings(name=short(c), bucket_type=BucketType.COUCHBASE, ram_quota_mb=100, num_replicas=0, flush_enabled=True)
    buckets.create_bucket(settings)
    try:
        made = buckets.get_bucket(short(c))
        return [made.flush_enabled, made.num_replicas, c.fails(buckets.create_bucket, settings)]
    finally:
        buckets.drop_bucket(short(c))


def flush_has_to_be_allowed(c):
    buckets = c.cluster.buckets()
    buckets.create_bucket(CreateBucketSettings(name=short(c), ram_quota_mb=100, num_replicas=0))
    try:
        return c.fails(buckets.flush_bucket, short(c))
    finally:
        buckets.drop_bucket(short(c))


def scopes_come_and_go(c):
    collections = c.bucket.collections()
    collections.create_scope(short(c))
    again = c.fails(collections.create_scope, short(c))
    there = short(c) in [each.name for each in collections.get_all_scopes()]
    collections.drop_scope(short(c))
    return [again, there, c.fails(collections.drop_scope, short(c))]


def collections_come_and_go(c):
    collections = c.bucket.collections()
    collections.create_collection(c.scope.name, short(c))
    again = c.fails(collections.create_collection, c.scope.name, short(c))
    scope = next(each for each in collections.get_all_scopes() if each.name == c.scope.name)
    listed = short(c) in [each.name for each in scope.collections]
    collections.drop_collection(c.scope.name, short(c))
    return [again, listed, c.fails(collections.drop_collection, c.scope.name, short(c)), c.fails(collections.create_collection, "none", short(c))]


def collections_by_a_spec(c):
    collections = c.bucket.collections()
    spec = CollectionSpec(short(c), scope_name=c.scope.name)
    collections.create_collection(spec)
    collections.drop_collection(spec)
    return c.fails(collections.drop_collection, spec)


def collections_have_a_longest_life(c):
    collections = c.bucket.collections()
    collections.create_collection(c.scope.name, short(c), CreateCollectionSettings(max_expiry=timedelta(seconds=500)))
    scope = next(each for each in collections.get_all_scopes() if each.name == c.scope.name)
    found = next(each.max_expiry for each in scope.collections if each.name == short(c))
    collections.drop_collection(c.scope.name, short(c))
    return found.total_seconds()


def documents_of_a_new_collection(c):
    c.bucket.collections().create_collection(c.scope.name, short(c))
    c.scope.collection(short(c)).upsert("k", {"in": "new"})
    found = c.scope.collection(short(c)).get("k").value
    c.bucket.collections().drop_collection(c.scope.name, short(c))
    return found


def users_come_and_go(c):
    users = c.cluster.users()
    roles = [Role(name="data_reader", bucket="*"), Role(name="ro_admin")]
    users.upsert_user(User(username=short(c), display_name="A User", password="password", roles=roles))
    found = users.get_user(short(c))
    listed = short(c) in [each.user.username for each in users.get_all_users()]
    users.drop_user(short(c))
    names = sorted(role.name for role in found.user.roles)
    return [found.user.display_name, names, listed, c.fails(users.get_user, short(c)), c.fails(users.drop_user, short(c))]


def groups_come_and_go(c):
    users = c.cluster.users()
    users.upsert_group(Group(name=short(c), description="Some", roles={Role(name="ro_admin")}))
    group = users.get_group(short(c))
    listed = short(c) in [each.name for each in users.get_all_groups()]
    users.drop_group(short(c))
    return [group.description, [role.name for role in group.roles], listed, c.fails(users.get_group, short(c))]


def roles_are_listed(c):
    return "admin" in [each.role.name for each in c.cluster.users().get_roles()]


MAP = "function (doc, meta) { if (doc.viewed) emit(doc.viewed, doc.n); }"


def viewed(c, reducer=None, **options):
    """Returns rows of a view with four rows of this program: the second part of the key, and the value."""
    indexes = c.bucket.view_indexes()
    document = DesignDocument(name=short(c), views={"by": View(map=MAP, reduce=reducer)})
    indexes.upsert_design_document(document, DesignDocumentNamespace.PRODUCTION)
    for number in range(1, 5):
        c.collection.upsert(f"{c.key}-{number}", {"viewed": [c.key, number], "n": number})
    try:
        everything = ViewOptions(startkey=[c.key], endkey=[c.key, {}], reduce=False)
        end = time.monotonic() + 30
        while len(list(c.bucket.view_query(short(c), "by", everything))) < 4 and time.monotonic() < end:
            time.sleep(0.1)
        options = ViewOptions(scan_consistency=ViewScanConsistency.REQUEST_PLUS, timeout=timedelta(seconds=30), **options)
        rows = list(c.bucket.view_query(short(c), "by", options))
        return [[row.key[1] if row.key and len(row.key) > 1 else None, row.value] for row in rows]
    finally:
        indexes.drop_design_document(short(c), DesignDocumentNamespace.PRODUCTION)


def rows_of_a_view(c):
    return viewed(c, startkey=[c.key], endkey=[c.key, {}])


def rows_backwards(c):
    return viewed(c, startkey=[c.key, {}], endkey=[c.key], order=ViewOrdering.DESCENDING, limit=3)


def rows_of_some_keys(c):
    return viewed(c, keys=[[c.key, 2], [c.key, 4]])


def rows_after_skipping(c):
    return viewed(c, startkey=[c.key], endkey=[c.key, {}], skip=1, limit=2)


def reduced_rows(c):
    return viewed(c, "_sum", startkey=[c.key], endkey=[c.key, {}], reduce=True)


def grouped_rows(c):
    return viewed(c, "_count", startkey=[c.key], endkey=[c.key, {}], group_level=1, reduce=True)


def design_documents_come_and_go(c):
    indexes = c.bucket.view_indexes()
    production = DesignDocumentNamespace.PRODUCTION
    indexes.upsert_design_document(DesignDocument(name=short(c), views={"by": View(map=MAP)}), production)
    found = indexes.get_design_document(short(c), production)
    listed = short(c) in [each.name for each in indexes.get_all_design_documents(production)]
    indexes.drop_design_document(short(c), production)
    return [found.name == short(c), found.views["by"].map == MAP, listed, c.fails(indexes.get_design_document, short(c), production)]


def an_unknown_view(c):
    try:
        list(c.bucket.view_query("none", "none"))
    except DesignDocumentNotFoundException as error:
        return isinstance(error, CouchbaseException)


def eventing_functions_are_listed(c):
    return type(c.cluster.eventing_functions().get_all_functions()).__name__


def an_unknown_function(c):
    functions = c.cluster.eventing_functions()
    return [c.fails(functions.get_function, "none"), c.fails(functions.drop_function, "none")]


def backends_have_values(c):
    return [StorageBackend.COUCHSTORE.value, StorageBackend.MAGMA.value]
