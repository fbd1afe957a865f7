"""Design documents and view queries."""

from couchbase.exceptions import DesignDocumentNotFoundException, InvalidArgumentException
from couchbase.management.views import DesignDocument, DesignDocumentNamespace, View
from couchbase.options import ViewOptions
from couchbase.views import ViewOrdering

from support import eventually, refused

PRODUCTION = DesignDocumentNamespace.PRODUCTION
DEVELOPMENT = DesignDocumentNamespace.DEVELOPMENT

# Only the documents of this run: others may be in the bucket.
_BY_SIZE = 'function (doc, meta) { if (doc.run === "%s") emit([doc.colour, doc.size], doc.size); }'
_PEARLS = [("black", 3), ("black", 5), ("gold", 4), ("white", 1), ("white", 2), ("white", 9)]


def _design(env, namespace=PRODUCTION):
    name, manager = env.name("ddoc"), env.bucket.view_indexes()
    views = {
        "by_size": View(map=_BY_SIZE % env.run, reduce="_sum"),
        "plain": View(map=_BY_SIZE % env.run),
    }
    manager.upsert_design_document(DesignDocument(name, views), namespace)
    env.later(lambda: manager.drop_design_document(name, namespace))
    return name, manager


def _pearls(env):
    """Stores documents once per run; returns their keys in the order of the index."""
    if not hasattr(env, "pearls"):
        env.pearls = [env.document({"run": env.run, "colour": colour, "size": size})[0] for colour, size in _PEARLS]
    return env.pearls


def _query(env, design, view, **options):
    # SDK 4.6.3 omits its own option for this, scan_consistency, from the request.
    fresh = {"stale": "false"}
    result = env.bucket.view_query(design, view, ViewOptions(namespace=PRODUCTION, raw=fresh, **options))
    return list(result.rows()), result


def design_documents_are_stored_listed_and_dropped(env):
    name, manager = _design(env)
    found = manager.get_design_document(name, PRODUCTION)
    assert set(found.views) == {"by_size", "plain"} and found.views["by_size"].reduce == "_sum"
    assert name in {design.name for design in manager.get_all_design_documents(PRODUCTION)}
    manager.drop_design_document(name, PRODUCTION)
    with refused(DesignDocumentNotFoundException):
        manager.get_design_document(name, PRODUCTION)
    with refused(DesignDocumentNotFoundException):
        manager.drop_design_document(name, PRODUCTION)


def design_documents_in_development_are_published(env):
    name, manager = _design(env, DEVELOPMENT)
    with refused(DesignDocumentNotFoundException):
        manager.get_design_document(name, PRODUCTION)
    manager.publish_design_document(name)
    env.later(lambda: manager.drop_design_document(name, PRODUCTION))
    assert set(manager.get_design_document(name, PRODUCTION).views) == {"by_size", "plain"}


def a_query_gives_the_rows_in_order(env):
    keys, (name, _) = _pearls(env), _design(env)
    rows, result = _query(env, name, "plain")
    assert [row.id for row in rows] == keys
    assert [tuple(row.key) for row in rows] == _PEARLS
    assert [row.value for row in rows] == [size for _, size in _PEARLS]
    assert result.metadata().total_rows() == len(keys)


def a_query_sees_what_was_written_before(env):
    _pearls(env)
    name, _ = _design(env)
    before, _ = _query(env, name, "plain")
    key, _ = env.document({"run": env.run, "colour": "zinc", "size": 1})
    after, _ = _query(env, name, "plain")
    assert [row.id for row in after] == [row.id for row in before] + [key]
    env.collection.remove(key)
    assert len(_query(env, name, "plain")[0]) == len(before)


def rows_are_selected_by_key_and_range(env):
    _pearls(env)
    name, _ = _design(env)

    def sizes(**options):
        return [row.value for row in _query(env, name, "plain", **options)[0]]

    assert sizes(key=["gold", 4]) == [4]
    assert sizes(keys=[["white", 9], ["black", 3], ["none", 0]]) == [9, 3]
    assert sizes(startkey=["black", 5], endkey=["white", 1]) == [5, 4, 1]
    assert sizes(startkey=["black", 5], endkey=["white", 1], inclusive_end=False) == [5, 4]
    assert sizes(startkey=["white"], endkey=["white", {}]) == [1, 2, 9]
    assert sizes(limit=2, skip=1) == [5, 4]
    assert sizes(order=ViewOrdering.DESCENDING, limit=2) == [9, 2]


def rows_are_reduced_and_grouped(env):
    _pearls(env)
    name, _ = _design(env)

    def reduced(**options):
        return [(row.key, row.value) for row in _query(env, name, "by_size", **options)[0]]

    assert reduced() == [(None, 24)]
    assert reduced(group_level=1) == [(["black"], 8), (["gold"], 4), (["white"], 12)]
    assert len(reduced(group=True)) == len(_PEARLS)
    assert reduced(startkey=["white"], group_level=1) == [(["white"], 12)]
    assert len(reduced(reduce=False)) == len(_PEARLS)


def a_new_map_function_replaces_the_rows(env):
    _pearls(env)
    name, manager = _design(env)
    assert len(_query(env, name, "plain")[0]) == len(_PEARLS)
    changed = f'function (doc, meta) {{ if (doc.run === "{env.run}" && doc.size > 4) emit(doc.size, null); }}'
    manager.upsert_design_document(DesignDocument(name, {"plain": View(map=changed)}), PRODUCTION)
    eventually(lambda: [row.key for row in _query(env, name, "plain")[0]] == [5, 9])


def a_missing_view_is_told(env):
    name, _ = _design(env)
    with refused(DesignDocumentNotFoundException):
        _query(env, name, "nothing")
    with refused(DesignDocumentNotFoundException):
        _query(env, env.name("ddoc"), "plain")


def a_map_function_that_is_no_javascript_is_refused(env):
    name, manager = env.name("ddoc"), env.bucket.view_indexes()
    env.later(lambda: manager.drop_design_document(name, PRODUCTION))
    with refused(InvalidArgumentException, Exception):
        manager.upsert_design_document(DesignDocument(name, {"v": View(map="function (doc {")}), PRODUCTION)
    with refused(DesignDocumentNotFoundException):
        manager.get_design_document(name, PRODUCTION)
