//! Results of the functions, through the call that a query makes, and laws of their measures.

use super::*;
use place::{Place, distance_km};
use proptest::prelude::*;
use text::{levenshtein, slug};

fn called(name: &str, arguments: &str) -> String {
    match TextAndPlaces.call(name, arguments) {
        Ok(result) => result,
        Err(Fault::Reject(reason)) => reason,
        Err(other) => panic!("{name}{arguments} came to {other:?}"),
    }
}

#[test]
fn distances_are_those_on_the_ball() {
    let oslo_to_rome = r#"[{"lat": 59.9139, "lon": 10.7522}, {"lat": 41.9028, "lon": 12.4964}]"#;
    let distance: f64 = called("distance_km", oslo_to_rome).parse().unwrap();
    assert!((distance - 2006.0).abs() < 2.0, "{distance}");
    let half_way_round = r#"[{"lat": 0, "lon": -90}, {"lat": 0, "lon": 90}]"#;
    let distance: f64 = called("distance_km", half_way_round).parse().unwrap();
    assert!((distance - 20_015.114_442).abs() < 1e-6, "{distance}");
}

#[test]
fn slugs_have_letters_and_digits_and_dashes_between_them() {
    assert_eq!(
        called("slug", r#"["  Shells & Pearls: 2nd Edition! "]"#),
        r#""shells-pearls-2nd-edition""#
    );
    assert_eq!(called("slug", r#"["Crème Brûlée"]"#), r#""crème-brûlée""#);
    assert_eq!(called("slug", r#"["?!"]"#), r#""""#);
}

#[test]
fn edits_are_counted_in_characters() {
    assert_eq!(called("levenshtein", r#"["kitten", "sitting"]"#), "3");
    assert_eq!(called("levenshtein", r#"["Brûlée", "Brulee"]"#), "2");
    assert_eq!(called("levenshtein", r#"["", "abc"]"#), "3");
}

#[test]
fn wrong_calls_are_refused_with_a_reason() {
    let long = "x".repeat(text::COMPARED_CHARACTERS_MAX + 1);
    let cases = [
        ("distance", "[]", "distance: there is no such function"),
        ("slug", "[1]", "slug: invalid type: integer `1`, expected a string"),
        ("slug", "[]", "slug: invalid length 0, expected a tuple of size 1"),
        ("slug", r#"["a", "b"]"#, "slug: trailing characters"),
        ("slug", "", "slug: EOF while parsing a value"),
        (
            "distance_km",
            r#"[{"lat": 91, "lon": 0}, {"lat": 0, "lon": 0}]"#,
            "distance_km: 91, 0 is no",
        ),
        ("distance_km", r#"[{"lat": 1}, {}]"#, "distance_km: missing field `lon`"),
        (
            "levenshtein",
            &format!(r#"["", "{long}"]"#),
            "levenshtein: texts of up to 1000 characters",
        ),
    ];
    for (name, arguments, reason) in cases {
        let told = called(name, arguments);
        assert!(told.starts_with(reason), "{name}{arguments}: {told}");
    }
}

fn any_place() -> impl Strategy<Value = Place> {
    (-90.0..=90.0, -180.0..=180.0).prop_map(|(lat, lon)| Place { lat, lon })
}

proptest! {
    #[test]
    fn the_way_back_is_as_far_and_no_way_round_is_shorter(
        a in any_place(), b in any_place(), c in any_place()
    ) {
        let distance = |from, to| distance_km(from, to).unwrap();
        prop_assert_eq!(distance(a, a), 0.0);
        prop_assert!((distance(a, b) - distance(b, a)).abs() < 1e-6);
        prop_assert!(distance(a, c) <= distance(a, b) + distance(b, c) + 1e-6);
        prop_assert!(distance(a, b) <= 20_016.0);
    }

    #[test]
    fn edits_are_counted_alike_from_both_sides(a in "[ab]{0,6}", b in "[ab]{0,6}", c in "[ab]{0,6}") {
        let edits = |one: &str, other: &str| levenshtein(one, other).unwrap();
        prop_assert_eq!(edits(&a, &b), edits(&b, &a));
        prop_assert_eq!(edits(&a, &b) == 0, a == b);
        prop_assert!(edits(&a, &c) <= edits(&a, &b) + edits(&b, &c));
    }

    #[test]
    fn a_slug_has_one_dash_between_words_and_none_around_them(title: String) {
        let slug = slug(&title);
        prop_assert!(!slug.contains("--") && !slug.starts_with('-') && !slug.ends_with('-'));
    }

    #[test]
    fn a_slug_of_plain_text_is_its_own_slug(title in "[ -~]{0,20}") {
        prop_assert_eq!(slug(&slug(&title)), slug(&title));
    }

    #[test]
    fn any_arguments_get_a_result_or_a_reason(arguments: String) {
        for name in ["distance_km", "slug", "levenshtein"] {
            called(name, &arguments);
        }
    }
}
