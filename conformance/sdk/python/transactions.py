"""ACID transactions, which the SDK implements with sub-document operations, attributes and durable writes."""

from couchbase.exceptions import DocumentNotFoundException, TransactionFailed
from couchbase.options import GetOptions, InsertOptions, TransactionGetOptions, TransactionReplaceOptions
from couchbase.transcoder import RawBinaryTranscoder

from support import refused


def _accounts(env):
    """Returns the keys of two documents whose amounts sum to ten."""
    one, _ = env.document({"amount": 10})
    other, _ = env.document({"amount": 0})
    return one, other


def _amounts(env, *keys):
    return [env.collection.get(key).content_as[dict]["amount"] for key in keys]


def _is_gone(env, key):
    with refused(DocumentNotFoundException):
        env.collection.get(key)


def a_transaction_that_commits_changes_all_its_documents(env):
    one, other = _accounts(env)
    receipt = env.key()

    def transfer(context):
        source, target = context.get(env.collection, one), context.get(env.collection, other)
        context.replace(source, {"amount": source.content_as[dict]["amount"] - 3})
        context.replace(target, {"amount": target.content_as[dict]["amount"] + 3})
        context.insert(env.collection, receipt, {"amount": 3})

    env.cluster.transactions.run(transfer)
    assert _amounts(env, one, other, receipt) == [7, 3, 3]


def a_transaction_that_fails_changes_nothing(env):
    one, other = _accounts(env)
    receipt = env.key()

    def transfer(context):
        context.replace(context.get(env.collection, one), {"amount": -1})
        context.remove(context.get(env.collection, other))
        context.insert(env.collection, receipt, {"amount": 3})
        raise ValueError("enough of that")

    with refused(TransactionFailed):
        env.cluster.transactions.run(transfer)
    assert _amounts(env, one, other) == [10, 0]
    _is_gone(env, receipt)


def a_transaction_may_change_bytes_of_any_kind(env):
    key = env.key()
    env.collection.insert(key, b"\x00\xff old", InsertOptions(transcoder=RawBinaryTranscoder()))
    options = TransactionGetOptions(transcoder=RawBinaryTranscoder())

    def change(context):
        found = context.get(env.collection, key, options)
        assert found.content_as[bytes] == b"\x00\xff old"
        context.replace(found, b"\x00\xfe new", TransactionReplaceOptions(transcoder=RawBinaryTranscoder()))

    env.cluster.transactions.run(change)
    stored = env.collection.get(key, GetOptions(transcoder=RawBinaryTranscoder()))
    assert stored.content_as[bytes] == b"\x00\xfe new"


def what_a_transaction_has_staged_is_seen_by_itself_alone(env):
    one, _ = _accounts(env)
    seen = []

    def look(context):
        context.replace(context.get(env.collection, one), {"amount": 11})
        seen.append(context.get(env.collection, one).content_as[dict]["amount"])
        seen.extend(_amounts(env, one))

    env.cluster.transactions.run(look)
    assert seen == [11, 10], seen
    assert _amounts(env, one) == [11]


def _amounts_by_query(env, context, *keys):
    """Returns what a query of the transaction reads of documents."""
    rows = context.query(f"SELECT RAW amount FROM `{env.bucket_name}` USE KEYS {list(keys)}")
    return list(rows.rows())


def queries_of_a_transaction_commit_together(env):
    one, other = _accounts(env)
    receipt = env.key()

    def transfer(context):
        context.query(f"UPDATE `{env.bucket_name}` USE KEYS '{one}' SET amount = amount - 3")
        context.query(f"UPDATE `{env.bucket_name}` USE KEYS '{other}' SET amount = amount + 3")
        context.query(f"INSERT INTO `{env.bucket_name}` VALUES ('{receipt}', {{'amount': 3}})")
        assert _amounts_by_query(env, context, one, other, receipt) == [7, 3, 3]
        assert _amounts(env, one, other) == [10, 0], "others see nothing yet"

    env.cluster.transactions.run(transfer)
    assert _amounts(env, one, other, receipt) == [7, 3, 3]


def a_query_sees_what_the_transaction_has_staged_before(env):
    one, other = _accounts(env)
    receipt = env.key()

    def transfer(context):
        context.replace(context.get(env.collection, one), {"amount": 7})
        context.remove(context.get(env.collection, other))
        context.insert(env.collection, receipt, {"amount": 3})
        assert _amounts_by_query(env, context, one, other, receipt) == [7, 3]
        context.query(f"UPDATE `{env.bucket_name}` USE KEYS '{receipt}' SET amount = 4")

    env.cluster.transactions.run(transfer)
    assert _amounts(env, one, receipt) == [7, 4]
    _is_gone(env, other)


def operations_after_a_query_see_what_it_has_changed(env):
    one, other = _accounts(env)
    receipt = env.key()

    def transfer(context):
        context.query(f"UPDATE `{env.bucket_name}` USE KEYS '{one}' SET amount = 7")
        found = context.get(env.collection, one)
        assert found.content_as[dict] == {"amount": 7}
        context.replace(found, {"amount": 6})
        context.remove(context.get(env.collection, other))
        inserted = context.insert(env.collection, receipt, {"amount": 1})
        context.replace(inserted, {"amount": 4})
        assert _amounts_by_query(env, context, one, other, receipt) == [6, 4]

    env.cluster.transactions.run(transfer)
    assert _amounts(env, one, receipt) == [6, 4]
    _is_gone(env, other)


def a_transaction_with_queries_that_fails_changes_nothing(env):
    one, other = _accounts(env)
    receipt = env.key()

    def transfer(context):
        context.replace(context.get(env.collection, one), {"amount": -1})
        context.insert(env.collection, receipt, {"amount": 3})
        context.query(f"DELETE FROM `{env.bucket_name}` USE KEYS '{other}'")
        raise ValueError("enough of that")

    with refused(TransactionFailed):
        env.cluster.transactions.run(transfer)
    assert _amounts(env, one, other) == [10, 0]
    _is_gone(env, receipt)
    # Nothing is staged any more, so that the next transaction meets no conflict.
    env.cluster.transactions.run(lambda context: context.query(f"DELETE FROM `{env.bucket_name}` USE KEYS '{one}'"))
    with refused(DocumentNotFoundException):
        env.collection.get(one)


def a_transaction_whose_query_was_overtaken_is_tried_again(env):
    one, _ = _accounts(env)
    attempts = []

    def add(context):
        attempts.append(_amounts_by_query(env, context, one)[0])
        context.query(f"UPDATE `{env.bucket_name}` USE KEYS '{one}' SET amount = amount + 1")
        if len(attempts) == 1:
            env.collection.upsert(one, {"amount": 30})

    env.cluster.transactions.run(add)
    assert attempts == [10, 30], attempts
    assert _amounts(env, one) == [31]
