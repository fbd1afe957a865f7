"""Functions: definition, deployment, effects, and refusals."""

from couchbase.exceptions import (
    BucketNotFoundException,
    EventingFunctionAlreadyDeployedException,
    EventingFunctionCollectionNotFoundException,
    EventingFunctionCompilationFailureException,
    EventingFunctionIdenticalKeyspaceException,
    EventingFunctionNotBootstrappedException,
    EventingFunctionNotDeployedException,
    EventingFunctionNotFoundException,
    EventingFunctionNotUnDeployedException,
)
from couchbase.management.eventing import (
    EventingFunction,
    EventingFunctionBucketAccess,
    EventingFunctionBucketBinding,
    EventingFunctionConstantBinding,
    EventingFunctionKeyspace,
    EventingFunctionState,
    EventingFunctionUrlAuthBasic,
    EventingFunctionUrlBinding,
)
from support import eventually, refused

_COPY = "function OnUpdate(doc, meta) { copies[meta.id] = {n: doc.n + BY}; }"
_WITHIN_S = 60


def _collections(env):
    """Returns a scope with collections for a function, created once per run."""
    if not hasattr(env, "functions"):
        manager, scope = env.bucket.collections(), env.name("functions")
        manager.create_scope(scope)
        env.later(lambda: manager.drop_scope(scope))
        for name in ("source", "copies", "meta"):
            manager.create_collection(scope, name)
        env.functions = scope
    return env.functions


def _function(env, code=_COPY, source="source", metadata="meta", bucket=None):
    scope = _collections(env)

    def keyspace(collection):
        return EventingFunctionKeyspace(bucket or env.bucket.name, scope, collection)

    copies = EventingFunctionBucketBinding("copies", keyspace("copies"), EventingFunctionBucketAccess.ReadWrite)
    return EventingFunction(
        env.name("function").replace(":", "_"),
        code,
        "7.2.0",
        metadata_keyspace=keyspace(metadata),
        source_keyspace=keyspace(source),
        bucket_bindings=[copies],
        constant_bindings=[EventingFunctionConstantBinding("BY", "1")],
    )


def _store(env, **changes):
    function, manager = _function(env, **changes), env.cluster.eventing_functions()
    manager.upsert_function(function)

    def remove():
        try:
            manager.undeploy_function(function.name)
        except EventingFunctionNotDeployedException:
            pass
        manager.drop_function(function.name)

    env.later(remove)
    return function.name, manager


def _wait(manager, name, state):
    def reached():
        return any(known.name == name and known.state == state for known in manager.functions_status().functions)

    eventually(reached, _WITHIN_S)


def _wait_for_copy(env, key, value):
    copies = env.bucket.scope(_collections(env)).collection("copies")
    eventually(lambda: copies.get(key).content_as[dict] == value, _WITHIN_S)


def functions_are_stored_listed_and_dropped(env):
    function, manager = _function(env), env.cluster.eventing_functions()
    auth = EventingFunctionUrlAuthBasic("ann", "secret")
    function.url_bindings = [EventingFunctionUrlBinding("http://127.0.0.1:1", "site", False, False, auth)]
    manager.upsert_function(function)
    found = manager.get_function(function.name)
    assert (found.code, found.bucket_bindings[0].alias) == (function.code, "copies")
    assert (found.constant_bindings[0].literal, found.url_bindings[0].alias) == ("1", "site")
    assert function.name in {known.name for known in manager.get_all_functions()}
    manager.drop_function(function.name)
    with refused(EventingFunctionNotFoundException):
        manager.get_function(function.name)


def functions_react_to_changes(env):
    name, manager = _store(env)
    manager.deploy_function(name)
    _wait(manager, name, EventingFunctionState.Deployed)
    env.bucket.scope(_collections(env)).collection("source").upsert("reacts", {"n": 1})
    _wait_for_copy(env, "reacts", {"n": 2})


def functions_are_paused_resumed_and_undeployed(env):
    name, manager = _store(env)
    manager.deploy_function(name)
    _wait(manager, name, EventingFunctionState.Deployed)
    with refused(EventingFunctionAlreadyDeployedException):
        manager.deploy_function(name)
    with refused(EventingFunctionNotUnDeployedException):
        manager.drop_function(name)
    manager.pause_function(name)
    _wait(manager, name, EventingFunctionState.Paused)
    env.bucket.scope(_collections(env)).collection("source").upsert("paused", {"n": 5})
    manager.resume_function(name)
    _wait_for_copy(env, "paused", {"n": 6})
    manager.undeploy_function(name)
    _wait(manager, name, EventingFunctionState.Undeployed)


def functions_that_are_not_deployed_cannot_be_paused(env):
    name, manager = _store(env)
    with refused(EventingFunctionNotBootstrappedException):
        manager.pause_function(name)
    with refused(EventingFunctionNotDeployedException):
        manager.resume_function(name)
    with refused(EventingFunctionNotDeployedException):
        manager.undeploy_function(name)


def functions_that_are_not_there_are_not_found(env):
    manager = env.cluster.eventing_functions()
    for ask in (manager.deploy_function, manager.pause_function, manager.undeploy_function, manager.drop_function):
        with refused(EventingFunctionNotFoundException):
            ask("nobody")


def functions_that_cannot_run_are_refused(env):
    manager = env.cluster.eventing_functions()
    with refused(EventingFunctionCompilationFailureException):
        manager.upsert_function(_function(env, code="feefifofum"))
    with refused(EventingFunctionIdenticalKeyspaceException):
        manager.upsert_function(_function(env, metadata="source"))
    with refused(EventingFunctionCollectionNotFoundException):
        manager.upsert_function(_function(env, source="nowhere"))
    with refused(BucketNotFoundException):
        manager.upsert_function(_function(env, bucket="nowhere"))
