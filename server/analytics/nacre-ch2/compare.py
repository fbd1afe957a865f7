"""Compares the answers of analytics to the CH2 queries with those of DuckDB over the same documents.

    python compare.py FOLDER…

A folder contains the documents as `TABLE.jsonl` and the answers as `NN.json`. Rows are compared as a set, and by their ORDER BY;
numbers may differ by one part in 10^9, because sums of doubles depend on their order. Where LIMIT cuts tied rows, any of them are
accepted.
"""

import json
import pathlib
import sys
import time

import duckdb

#: The columns of an order line.
LINE = {"ol_number": "BIGINT", "ol_i_id": "BIGINT", "ol_supply_w_id": "BIGINT", "ol_delivery_d": "VARCHAR", "ol_quantity": "BIGINT",
        "ol_amount": "DOUBLE", "ol_dist_info": "VARCHAR"}
#: The columns of all tables.
COLUMNS = {
    "region": {"r_regionkey": "BIGINT", "r_name": "VARCHAR", "r_comment": "VARCHAR"},
    "nation": {"n_nationkey": "BIGINT", "n_name": "VARCHAR", "n_regionkey": "BIGINT", "n_comment": "VARCHAR"},
    "supplier": {"su_suppkey": "BIGINT", "su_name": "VARCHAR", "su_address": "VARCHAR", "su_nationkey": "BIGINT",
                 "su_phone": "VARCHAR", "su_acctbal": "DOUBLE", "su_comment": "VARCHAR"},
    "item": {"i_id": "BIGINT", "i_im_id": "BIGINT", "i_name": "VARCHAR", "i_price": "DOUBLE", "i_data": "VARCHAR"},
    "warehouse": {"w_id": "BIGINT", "w_name": "VARCHAR", "w_street_1": "VARCHAR", "w_street_2": "VARCHAR", "w_city": "VARCHAR",
                  "w_state": "VARCHAR", "w_zip": "VARCHAR", "w_tax": "DOUBLE", "w_ytd": "DOUBLE"},
    "district": {"d_id": "BIGINT", "d_w_id": "BIGINT", "d_name": "VARCHAR", "d_street_1": "VARCHAR", "d_street_2": "VARCHAR",
                 "d_city": "VARCHAR", "d_state": "VARCHAR", "d_zip": "VARCHAR", "d_tax": "DOUBLE", "d_ytd": "DOUBLE",
                 "d_next_o_id": "BIGINT"},
    "stock": {"s_i_id": "BIGINT", "s_w_id": "BIGINT", "s_quantity": "BIGINT",
              **{f"s_dist_{district:02}": "VARCHAR" for district in range(1, 11)},
              "s_ytd": "BIGINT", "s_order_cnt": "BIGINT", "s_remote_cnt": "BIGINT", "s_data": "VARCHAR"},
    "customer": {"c_id": "BIGINT", "c_d_id": "BIGINT", "c_w_id": "BIGINT", "c_first": "VARCHAR", "c_middle": "VARCHAR",
                 "c_last": "VARCHAR", "c_street_1": "VARCHAR", "c_street_2": "VARCHAR", "c_city": "VARCHAR", "c_state": "VARCHAR",
                 "c_zip": "VARCHAR", "c_phone": "VARCHAR", "c_since": "VARCHAR", "c_credit": "VARCHAR", "c_credit_lim": "BIGINT",
                 "c_discount": "DOUBLE", "c_balance": "DOUBLE", "c_ytd_payment": "DOUBLE", "c_payment_cnt": "BIGINT",
                 "c_delivery_cnt": "BIGINT", "c_data": "VARCHAR"},
    "history": {"h_c_id": "BIGINT", "h_c_d_id": "BIGINT", "h_c_w_id": "BIGINT", "h_d_id": "BIGINT", "h_w_id": "BIGINT",
                "h_date": "VARCHAR", "h_amount": "DOUBLE", "h_data": "VARCHAR"},
    "neworder": {"no_o_id": "BIGINT", "no_d_id": "BIGINT", "no_w_id": "BIGINT"},
    "orders": {"o_id": "BIGINT", "o_d_id": "BIGINT", "o_w_id": "BIGINT", "o_c_id": "BIGINT", "o_entry_d": "VARCHAR",
               "o_carrier_id": "BIGINT", "o_ol_cnt": "BIGINT", "o_all_local": "BIGINT",
               "o_orderline": "STRUCT(" + ", ".join(f"{name} {kind}" for name, kind in LINE.items()) + ")[]"},
}
#: Order lines as rows, with the fields of their order.
LINES = ("CREATE VIEW lines AS SELECT o_id, o_d_id, o_w_id, o_c_id, o_entry_d, o_carrier_id, o_ol_cnt, "
         "UNNEST(o_orderline, recursive := true) FROM orders")
TOLERANCE = 1e-9
#: The ORDER BY columns of each query.
ORDER = {
    1: ["ol_number"], 2: ["n_name", "su_name", "i_id"], 3: ["revenue", "o_entry_d"], 4: ["o_ol_cnt"], 5: ["revenue"],
    7: ["supp_nation", "cust_nation", "l_year"], 8: ["l_year"], 9: ["n_name", "l_year"], 10: ["revenue"], 11: ["ordercount"],
    12: ["o_ol_cnt"], 13: ["custdist", "c_count"], 15: ["su_suppkey"], 16: ["supplier_cnt"], 18: ["amount", "o_entry_d"],
    20: ["su_name"], 21: ["numwait", "su_name"], 22: ["country"],
}
#: The LIMIT of each query.
LIMITS = {2: 100, 10: 20, 18: 100, 21: 100}


def source(path, columns):
    """Returns the documents of a file as a table of DuckDB."""
    spec = ", ".join(f"'{name}': '{kind}'" for name, kind in columns.items())
    return f"read_json('{path}.jsonl', format='newline_delimited', columns={{{spec}}})"


def canonical(value):
    """Returns a sort key for a value, without the last digits of doubles."""
    if isinstance(value, bool) or value is None:
        return (0, str(value))
    if isinstance(value, (int, float)):
        return (1, f"{float(value):.6e}")
    return (2, str(value))


def same(a, b):
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        return abs(a - b) <= TOLERANCE * max(abs(a), abs(b), 1.0)
    return a == b


def differences(ours, theirs, order, limit):
    """Returns the rows of each side that the other lacks, and the places where the order differs."""
    names = list(theirs[0]) if theirs else (list(ours[0]) if ours else [])
    found = []

    def is_same(a, b, names):
        return a is not None and b is not None and all(same(a.get(name), b.get(name)) for name in names)

    for a, b in zip(ours, theirs):
        if not is_same(a, b, order):
            found.append((a, b))
    if limit is not None and len(theirs) == limit:
        # Rows that tie with the last one are chosen arbitrarily.
        last = theirs[-1]
        ours = [row for row in ours if not is_same(row, last, order)]
        theirs = [row for row in theirs if not is_same(row, last, order)]

    def key(row):
        return [canonical(row.get(name)) for name in names]

    ours, theirs = sorted(ours, key=key), sorted(theirs, key=key)
    for at in range(max(len(ours), len(theirs))):
        a = ours[at] if at < len(ours) else None
        b = theirs[at] if at < len(theirs) else None
        if not is_same(a, b, names) or set(a) - set(names):
            found.append((a, b))
    return found


def compare(folder):
    """Compares the answers in a folder. Returns the number of equal ones."""
    queries = pathlib.Path(__file__).parent / "queries"
    database = duckdb.connect()
    for table, columns in COLUMNS.items():
        database.execute(f"CREATE TABLE {table} AS SELECT * FROM {source(folder / table, columns)}")
    database.execute(LINES)
    equal = 0
    for number in range(1, 23):
        began = time.monotonic()
        result = database.execute((queries / f"{number:02}.sql").read_text())
        names = [column[0] for column in result.description]
        theirs = [dict(zip(names, row)) for row in result.fetchall()]
        took = (time.monotonic() - began) * 1000
        answer = folder / f"{number:02}.json"
        ours = json.loads(answer.read_text()) if answer.exists() else [{"no": "answer"}]
        found = differences(ours, theirs, ORDER.get(number, []), LIMITS.get(number))
        equal += not found
        print(f"Q{number:<3} {'equal' if not found else 'DIFFERS':8} {len(theirs):>6} rows  DuckDB {took:8.1f} ms")
        for ours_row, theirs_row in found[:3]:
            print(f"     ours   {ours_row}\n     DuckDB {theirs_row}")
    print(f"{folder.name}: {equal} of 22 equal")
    return equal


def main():
    equal = [compare(pathlib.Path(folder)) for folder in sys.argv[1:]]
    return 0 if equal and all(count == 22 for count in equal) else 1


if __name__ == "__main__":
    sys.exit(main())
