//! Tests of keys, and of nearby places.

use super::*;
use nacre_plugin::pack;
use proptest::prelude::*;

fn place(lat: f64, lon: f64) -> Place {
    Place::new(lat, lon).unwrap()
}

/// Returns the keys of one document.
fn keys(config: &str, body: &str) -> Vec<String> {
    let event = Event { body: body.as_bytes(), ..upsert() };
    let buffer = pack(&[event], 0);
    let mut index = GeoIndex::init(config).unwrap();
    let entries = index.project(&Events::decode(&buffer).unwrap()).unwrap();
    entries.into_iter().map(|entry| String::from_utf8(entry.key).unwrap()).collect()
}

fn upsert() -> Event<'static> {
    Event {
        index: 0,
        vb: 0,
        seqno: 1,
        cas: 1,
        rev: 1,
        flags: 0,
        expiry: 0,
        collection: 0,
        kind: EventKind::Upsert,
        datatype: DATATYPE_JSON,
        key: b"d",
        xattrs: b"",
        body: b"",
        previous: None,
    }
}

/// The first one is the well-known example of a geohash.
#[test]
fn keys_are_geohashes() {
    assert!(cell::key(place(57.64911, 10.40744)).starts_with("u4pruydqqvj"));
    assert!(cell::key(place(0.0, 0.0)).starts_with("s0000000000"));
    assert_eq!(cell::key(place(-90.0, -180.0)), "000000000000");
    assert_eq!(cell::key(place(90.0, 180.0)), cell::key(place(90.0, -180.0)));
}

#[test]
fn a_document_has_an_entry_for_each_place_and_none_without() {
    let here = r#"{"lat": 57.64911, "lon": 10.40744}"#;
    assert_eq!(keys("{}", &format!(r#"{{"geo": {here}}}"#)).len(), 1);
    assert_eq!(keys("{}", &format!(r#"{{"geo": [{here}, {here}, 7]}}"#)).len(), 2);
    assert_eq!(keys(r#"{"member": "at"}"#, &format!(r#"{{"at": {here}}}"#)).len(), 1);
    let none = [
        "",
        "7",
        "{}",
        r#"{"geo": null}"#,
        r#"{"geo": {"lat": 91, "lon": 0}}"#,
        r#"{"geo": {"lat": "1", "lon": 0}}"#,
        r#"{"geo": {"lat": 1}}"#,
    ];
    none.iter().for_each(|body| assert_eq!(keys("{}", body), [""; 0], "{body}"));
}

#[test]
fn a_configuration_that_is_none_is_refused() {
    for (config, reason) in [(r#"{"field": "at"}"#, "unknown field"), ("7", "invalid type")] {
        match GeoIndex::init(config) {
            Err(Fault::Reject(told)) => assert!(told.contains(reason), "{config}: {told}"),
            _ => panic!("{config} is taken"),
        }
    }
}

fn any_place() -> impl Strategy<Value = Place> {
    (-90.0..=90.0, -180.0..=180.0).prop_map(|(lat, lon)| place(lat, lon))
}

/// Returns the kilometres over the surface of a sphere.
fn distance_km(from: Place, to: Place) -> f64 {
    let half = |a: f64, b: f64| ((b - a).to_radians() / 2.0).sin().powi(2);
    let lats = from.lat.to_radians().cos() * to.lat.to_radians().cos();
    let part = half(from.lat, to.lat) + lats * half(from.lon, to.lon);
    2.0 * 6371.0 * part.sqrt().min(1.0).asin()
}

proptest! {
    #[test]
    fn all_that_is_near_is_around(
        from in any_place(),
        step in (-2.0..2.0, -4.0..4.0),
        scale in prop::sample::select(vec![0.0001, 0.01, 1.0, 20.0]),
        spare in 1.0..3.0,
    ) {
        let (up, aside): (f64, f64) = step;
        let lat = from.lat + up * scale;
        let lon: f64 = (from.lon + aside * scale + 540.0).rem_euclid(360.0) - 180.0;
        let to = place(lat.clamp(-90.0, 90.0), lon);
        let cells = cell::around(from, distance_km(from, to) * spare);
        prop_assert!(cells.len() <= 9);
        let key = cell::key(to);
        prop_assert!(cells.iter().any(|cell| key.starts_with(cell)), "{key} is not in {cells:?}");
    }

    #[test]
    fn cells_are_the_longer_the_nearer(at in any_place(), near in 0.001..1.0, far in 50.0..5000.0) {
        let (near, far) = (cell::around(at, near), cell::around(at, far));
        prop_assert!(near.iter().all(|cell| cell.len() >= far[0].len()));
        prop_assert!(far.iter().any(|cell| cell::key(at).starts_with(cell)));
    }
}
