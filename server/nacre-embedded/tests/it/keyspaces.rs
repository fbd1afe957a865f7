//! Scopes and collections.

use crate::{by_hand, open};
use nacre::{Db, Error, Write};

#[test]
fn collections_are_made_on_demand_and_dropped_with_their_documents() {
    let db = Db::open_with(":memory:", by_hand()).unwrap();
    let orders = db.collection("shop.orders").unwrap();
    let plain = db.collection("plain").unwrap();
    assert_eq!(db.collections(), ["_default._default", "_default.plain", "shop.orders"]);
    orders.upsert("a", b"1", Write::new()).unwrap();
    plain.upsert("a", b"2", Write::new()).unwrap();
    assert_eq!(
        db.create_collection("shop", "orders", 0),
        Err(Error::KeyspaceExists("shop.orders".into()))
    );
    assert_eq!(db.create_scope("shop"), Err(Error::KeyspaceExists("shop".into())));
    assert_eq!(db.drop_scope("none"), Err(Error::ScopeNotFound("none".into())));
    assert!(matches!(db.collection("shop.$x"), Err(Error::InvalidArgument(_))));
    assert!(matches!(db.collection("a.b.c"), Err(Error::InvalidArgument(_))));
    db.drop_scope("shop").unwrap();
    assert!(matches!(orders.get("a"), Err(Error::CollectionNotFound(_))));
    assert!(matches!(orders.upsert("a", b"1", Write::new()), Err(Error::CollectionNotFound(_))));
    assert!(plain.exists("a").unwrap());
    let again = db.collection("shop.orders").unwrap();
    assert_eq!(again.get("a").unwrap(), None, "another collection of the same name");
}

#[test]
fn a_collection_that_was_dropped_stays_dropped() {
    let folder = tempfile::tempdir().unwrap();
    let db = open(folder.path(), &by_hand());
    db.collection("s.c").unwrap().upsert("a", b"1", Write::new()).unwrap();
    db.flush().unwrap();
    db.drop_collection("s", "c").unwrap();
    drop(db);
    let db = open(folder.path(), &by_hand());
    assert_eq!(db.collections(), ["_default._default"]);
    assert_eq!(db.scopes(), ["_default", "s"]);
    assert_eq!(db.collection("s.c").unwrap().get("a").unwrap(), None);
    assert_eq!(db.status().documents, 0);
}

#[test]
fn documents_of_a_collection_with_a_longest_life_expire() {
    let db = Db::open_with(":memory:", by_hand()).unwrap();
    db.create_collection("_default", "short", 60).unwrap();
    let short = db.collection("short").unwrap();
    short.upsert("a", b"1", Write::new()).unwrap();
    let expiry = short.get("a").unwrap().unwrap().expiry();
    assert!(expiry > 0);
    short.upsert("a", b"1", Write::new().expiry(1000)).unwrap();
    assert!(short.get("a").unwrap().unwrap().expiry() < expiry + 30, "cut to the longest life");
}
