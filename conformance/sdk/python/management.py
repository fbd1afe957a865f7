"""Scopes, collections, buckets and users."""

from datetime import timedelta

from couchbase.exceptions import (AuthenticationException, BucketAlreadyExistsException, BucketDoesNotExistException,
                                  BucketNotFlushableException, CollectionAlreadyExistsException,
                                  CollectionNotFoundException, CouchbaseException, DocumentNotFoundException,
                                  ScopeAlreadyExistsException, ScopeNotFoundException, UnAmbiguousTimeoutException,
                                  UserNotFoundException)
from couchbase.management.buckets import BucketType, CreateBucketSettings
from couchbase.management.collections import CreateCollectionSettings, UpdateCollectionSettings
from couchbase.management.users import Role, User
from couchbase.options import GetOptions

from support import eventually, refused


def _scope(env):
    name = env.name("scope")
    env.bucket.collections().create_scope(name)
    env.later(lambda: env.bucket.collections().drop_scope(name))
    return name


def _bucket(env, **settings):
    name, buckets = env.name("bucket"), env.cluster.buckets()
    buckets.create_bucket(CreateBucketSettings(name=name, ram_quota_mb=100, num_replicas=0, **settings))
    env.later(lambda: buckets.drop_bucket(name))
    return name, buckets


def _open(env, name):
    """Returns the default collection of a bucket that may just have been created."""
    opened = []
    eventually(lambda: opened.append(env.cluster.bucket(name)) is None)
    collection = opened[-1].default_collection()
    eventually(lambda: collection.upsert("ready", 1).cas != 0)
    return collection


def _scopes(env):
    return {scope.name: {collection.name: collection for collection in scope.collections}
            for scope in env.bucket.collections().get_all_scopes()}


def scopes_and_collections_are_created_listed_and_dropped(env):
    manager, scope = env.bucket.collections(), _scope(env)
    manager.create_collection(scope, "pearls")
    assert set(_scopes(env)[scope]) == {"pearls"}
    manager.drop_collection(scope, "pearls")
    assert _scopes(env)[scope] == {}
    manager.drop_scope(scope)
    assert scope not in _scopes(env)


def scopes_and_collections_that_exist_are_refused(env):
    manager, scope = env.bucket.collections(), _scope(env)
    manager.create_collection(scope, "pearls")
    with refused(ScopeAlreadyExistsException):
        manager.create_scope(scope)
    with refused(CollectionAlreadyExistsException):
        manager.create_collection(scope, "pearls")


def missing_scopes_and_collections_are_told(env):
    manager, scope = env.bucket.collections(), _scope(env)
    with refused(ScopeNotFoundException):
        manager.create_collection(env.name("scope"), "pearls")
    with refused(CollectionNotFoundException):
        manager.drop_collection(scope, "pearls")
    with refused(ScopeNotFoundException):
        manager.drop_scope(env.name("scope"))


def documents_of_collections_are_apart(env):
    manager, scope = env.bucket.collections(), _scope(env)
    manager.create_collection(scope, "a")
    manager.create_collection(scope, "b")
    a, b = (env.bucket.scope(scope).collection(name) for name in "ab")
    eventually(lambda: a.upsert("k", {"in": "a"}).cas != 0)
    with refused(DocumentNotFoundException):
        b.get("k")
    b.insert("k", {"in": "b"})
    assert a.get("k").content_as[dict] == {"in": "a"} and b.get("k").content_as[dict] == {"in": "b"}


def a_dropped_collection_takes_its_documents_along(env):
    manager, scope = env.bucket.collections(), _scope(env)
    manager.create_collection(scope, "a")
    collection = env.bucket.scope(scope).collection("a")
    eventually(lambda: collection.upsert("k", 1).cas != 0)
    manager.drop_collection(scope, "a")
    with refused(UnAmbiguousTimeoutException, CollectionNotFoundException):
        collection.get("k", GetOptions(timeout=timedelta(milliseconds=500)))
    manager.create_collection(scope, "a")
    again = env.cluster.bucket(env.bucket_name).scope(scope).collection("a")
    eventually(lambda: again.upsert("other", 1).cas != 0)
    with refused(DocumentNotFoundException):
        again.get("k")


def a_collection_bounds_the_life_of_its_documents(env):
    manager, scope = env.bucket.collections(), _scope(env)
    manager.create_collection(scope, "a", CreateCollectionSettings(max_expiry=timedelta(hours=1)))
    assert _scopes(env)[scope]["a"].max_expiry == timedelta(hours=1)
    collection = env.bucket.scope(scope).collection("a")
    eventually(lambda: collection.upsert("k", {}).cas != 0)
    assert collection.get("k", GetOptions(with_expiry=True)).expiryTime is not None
    manager.update_collection(scope, "a", UpdateCollectionSettings(max_expiry=timedelta(hours=2)))
    assert _scopes(env)[scope]["a"].max_expiry == timedelta(hours=2)


def buckets_are_created_listed_and_dropped(env):
    name, buckets = _bucket(env)
    settings = buckets.get_bucket(name)
    assert settings.ram_quota_mb == 100 and settings.num_replicas == 0 and not settings.flush_enabled
    assert settings.bucket_type == BucketType.COUCHBASE
    assert {env.bucket_name, name} <= {bucket.name for bucket in buckets.get_all_buckets()}
    buckets.drop_bucket(name)
    with refused(BucketDoesNotExistException):
        buckets.get_bucket(name)
    with refused(BucketDoesNotExistException):
        buckets.drop_bucket(name)


def a_bucket_that_exists_is_refused(env):
    name, buckets = _bucket(env)
    with refused(BucketAlreadyExistsException):
        buckets.create_bucket(CreateBucketSettings(name=name, ram_quota_mb=100))


def the_settings_of_a_bucket_change(env):
    name, buckets = _bucket(env)
    settings = buckets.get_bucket(name)
    settings["flush_enabled"] = True
    settings["max_expiry"] = timedelta(minutes=5)
    buckets.update_bucket(settings)
    changed = buckets.get_bucket(name)
    assert changed.flush_enabled and changed.max_expiry == timedelta(minutes=5)


def ephemeral_buckets_hold_documents(env):
    name, buckets = _bucket(env, bucket_type=BucketType.EPHEMERAL)
    assert buckets.get_bucket(name).bucket_type == BucketType.EPHEMERAL
    collection = _open(env, name)
    collection.upsert("k", 1)
    assert collection.get("k").content_as[int] == 1


def a_flush_empties_a_bucket(env):
    name, buckets = _bucket(env, flush_enabled=True)
    collection = _open(env, name)
    collection.upsert("k", 1)
    buckets.flush_bucket(name)
    eventually(lambda: not collection.exists("k").exists)
    eventually(lambda: collection.upsert("k", 2).cas != 0)


def a_flush_has_to_be_allowed(env):
    name, buckets = _bucket(env)
    with refused(BucketNotFlushableException):
        buckets.flush_bucket(name)
    with refused(BucketDoesNotExistException):
        buckets.flush_bucket(env.name("bucket"))


def users_are_created_listed_and_dropped(env):
    users, name = env.cluster.users(), env.name("user")
    role = Role(name="data_reader", bucket=env.bucket_name)
    users.upsert_user(User(username=name, display_name="Pearl Diver", password="secret-1", roles={role}))
    env.later(lambda: users.drop_user(name))
    found = users.get_user(name).user
    assert found.display_name == "Pearl Diver"
    assert {(role.name, role.bucket) for role in found.roles} == {("data_reader", env.bucket_name)}
    assert name in {user.user.username for user in users.get_all_users()}
    assert "data_reader" in {known.role.name for known in users.get_roles()}
    users.drop_user(name)
    with refused(UserNotFoundException):
        users.get_user(name)
    with refused(UserNotFoundException):
        users.drop_user(name)


def users_may_do_what_their_roles_allow(env):
    users, name = env.cluster.users(), env.name("user")
    reader = User(username=name, password="secret-1", roles={Role(name="data_reader", bucket=env.bucket_name)})
    users.upsert_user(reader)
    env.later(lambda: users.drop_user(name))
    key, _ = env.document({"v": 1})
    cluster = env.log_in(name, "secret-1")
    try:
        collection = cluster.bucket(env.bucket_name).default_collection()
        assert collection.get(key).content_as[dict] == {"v": 1}
        with refused(CouchbaseException):
            collection.upsert(key, {"v": 2}, timeout=timedelta(seconds=1))
    finally:
        cluster.close()
    assert env.collection.get(key).content_as[dict] == {"v": 1}


def a_user_changes_the_own_password(env):
    users, name = env.cluster.users(), env.name("user")
    users.upsert_user(User(username=name, password="secret-1", roles={Role(name="data_reader", bucket=env.bucket_name)}))
    env.later(lambda: users.drop_user(name))
    cluster = env.log_in(name, "secret-1")
    cluster.users().change_password("secret-2")
    cluster.close()
    env.log_in(name, "secret-2").close()
    with refused(AuthenticationException):
        env.log_in(name, "secret-1")


def a_wrong_password_is_refused(env):
    with refused(AuthenticationException):
        env.log_in(env.name("user"), "wrong")
