//! Filter expressions of replications, which select the documents that leave the bucket.
//!
//! ```text
//! REGEXP_CONTAINS(META().id, "^airline") AND (country = "France" OR NOT EXISTS(retired))
//!        text ─ lexer ─► tokens ─ parser ─► Test ─ holds(Subject) ─► true or false
//! ```
//!
//! The dialect is that of Couchbase's XDCR, which is not SQL++:
//!
//! - a path that leads nowhere makes a comparison false, and `NOT` of it true; `IS NOT NULL` is true for it;
//! - a constant forces its type on the other operand: `price > 3` holds for `"4"`;
//! - other values compare by type first, arrays by length first; the quotient of two integers is an integer;
//! - regular expressions are unanchored and support look-ahead and look-behind.
//!
//! Invariants: parsing and evaluating an expression never panic. Expressions nest at most [`parser::HEIGHT_MAX`] levels, and a
//! regular expression takes a bounded number of steps per document.

mod evaluate;
mod lexer;
mod parser;

use evaluate::{Subject, Test};
use nacre_types::{DATATYPE_JSON, Document};
use nacre_xdcr::Condition;
use std::fmt;

/// A parsed expression.
pub(crate) struct Expression {
    text: String,
    test: Test,
    looks_at: Parts,
}

/// The parts of documents that an expression uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Parts {
    body: bool,
    /// The key or extended attributes.
    meta: bool,
    /// Extended attributes.
    attributes: bool,
}

impl Expression {
    /// Reads an expression.
    ///
    /// # Errors
    /// A sentence with the position of the error, in characters from 1.
    pub fn parse(text: &str) -> Result<Expression, String> {
        let (test, looks_at) = parser::parse(text)?;
        Ok(Expression { text: text.to_owned(), test, looks_at })
    }

    /// Returns true if the expression uses no other part of a document than its key. It can then be evaluated for deletions.
    pub fn is_about_keys(&self) -> bool {
        !self.looks_at.body && !self.looks_at.attributes
    }
}

impl Condition for Expression {
    /// Returns true if a document passes the filter.
    ///
    /// Only a document whose root is an object has fields: other JSON fails an expression about the body. A document that
    /// is not JSON passes an expression about the body alone, and fails one that also uses its key or attributes. Source:
    /// XDCR advanced filtering.
    ///
    /// # Errors
    /// A regular expression takes too many steps, or JSON cannot be parsed.
    fn holds(&self, document: &Document) -> Result<bool, String> {
        let is_json = document.meta.datatype & DATATYPE_JSON != 0;
        if self.looks_at.body && !is_json {
            return Ok(!self.looks_at.meta);
        }
        match Subject::of(document, self.looks_at.body)? {
            Some(subject) => self.test.holds(&subject),
            None => Ok(false),
        }
    }
}

impl PartialEq for Expression {
    fn eq(&self, other: &Expression) -> bool {
        self.text == other.text
    }
}

impl Eq for Expression {}

impl fmt::Debug for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Expression").field(&self.text).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_types::{CollectionId, DATATYPE_XATTR, DocKey, Meta};
    use nacre_value::xattr::Xattrs;

    const BODY: &str = r#"{"type": "airline", "country": "France", "n": 5, "f": 2.5, "text": "12", "no": null,
        "yes": true, "list": [1, 2, {"x": "y"}], "empty": [], "o": {"b": 7, "odd name": 1}, "AND": 1,
        "created": "2026-03-01T10:00:00+02:00", "day": "2026-03-02", "yesno": "true"}"#;

    fn document(key: &str, datatype: u8, body: &str) -> Document {
        let mut attributes = Xattrs::default();
        attributes.set("v", br#"{"sync": 4}"#).unwrap();
        let value = [&attributes.encode()[..], body.as_bytes()].concat();
        let meta = Meta { datatype: datatype | DATATYPE_XATTR, ..Meta::default() };
        Document::new(meta, DocKey::new(CollectionId::DEFAULT, key.as_bytes()).prefixed(), &value)
    }

    fn outcome(expression: &str, document: &Document) -> Result<bool, String> {
        Expression::parse(expression)
            .unwrap_or_else(|error| panic!("{expression}: {error}"))
            .holds(document)
    }

    fn check(cases: &[&str], expected: bool) {
        let document = document("airline_10", DATATYPE_JSON, BODY);
        for text in cases {
            assert_eq!(outcome(text, &document), Ok(expected), "{text}");
        }
    }

    #[test]
    fn fields_of_a_document_are_compared() {
        check(
            &[
                r#"country = "France" AND type = "airline""#,
                "n == 5 and N IS MISSING",
                "n > 4 AND n >= 5 AND n < 6 AND n <= 5 AND n != 6 AND n <> 4",
                "6 > n",
                "o.b = 7 AND o.`odd name` = 1 AND `AND` = 1",
                r#"list[0] = 1 AND list[2].x = "y" AND list[3] IS MISSING"#,
                "yes = TRUE AND NOT yes = FALSE",
                "(a % 2 = 0 OR NOT n IS MISSING)",
                "(n + 1) * 2 = 12",
                "n % 2 = 1 AND n / 2 = 2 AND f * 2 = 5",
                "n - -1 = 6",
                "n < o.b",
                "TRUE OR FALSE",
                "EXISTS(o.b) AND EXISTS(no) AND NOT EXISTS(o.c)",
                "no IS NULL AND n IS NOT NULL AND n IS NOT MISSING",
                "n = ABS(-5) AND f < PI() AND POW(2, 3) = 8 AND FLOOR(f) = 2 AND n > SQRT(16)",
            ],
            true,
        );
        check(&["FALSE", "n = 6", "NOT n = 5", "n = 5 AND FALSE", "EXISTS(nothing)"], false);
    }

    #[test]
    fn a_path_that_leads_nowhere_makes_a_comparison_false() {
        check(&["nothing = 1", "nothing != 1", "n.b = 1", "no.b < 1", "nothing IS NULL"], false);
        check(&["NOT nothing = 1", "NOT nothing != 1", "nothing IS NOT NULL"], true);
        check(&["nothing + 1 > 0", "n / 0 = 0", "n % 0 = 0", r#"country + 1 > 0"#], false);
    }

    #[test]
    fn a_constant_forces_its_type_on_the_other_side() {
        check(&["text = 12", "text > 9", r#"n = "5""#, r#"yes = "true""#, "yesno = TRUE"], true);
        check(&["country > 9", "no < 1", "country != 5", r#"list > "z""#], true);
        check(&["country = 9", "text < 9", r#"n = "05""#], false);
    }

    #[test]
    fn arrays_compare_by_length_first() {
        let document = document("k", DATATYPE_JSON, r#"{"a": [9], "b": [1, 2], "c": {"z": 1}}"#);
        for (text, expected) in
            [("a < b", true), ("b < a", false), ("b < c", true), ("a = a", true)]
        {
            assert_eq!(outcome(text, &document), Ok(expected), "{text}");
        }
    }

    #[test]
    fn dates_are_compared_as_moments() {
        check(
            &[
                r#"DATE(created) >= DATE("2026-01-01")"#,
                r#"DATE(created) = DATE("2026-03-01T08:00:00Z")"#,
                r#"DATE(day) > DATE(created)"#,
                r#"DATE("2026-03-01T08:00:00.5Z") > DATE(created)"#,
            ],
            true,
        );
        check(&[r#"DATE(country) > DATE("2026-01-01")"#, r#"DATE(n) < DATE("2026-01-01")"#], false);
        for text in [r#"DATE(created) > "2026-01-01""#, r#"DATE("tomorrow") > DATE(day)"#] {
            assert!(Expression::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn expressions_can_refer_to_keys_and_attributes() {
        check(
            &[
                r#"REGEXP_CONTAINS(META().id, "^airline")"#,
                r#"META().id = "airline_10""#,
                "META().xattrs.v.sync > 3",
                "META().xattrs.w.sync IS MISSING AND EXISTS(META().xattrs.v)",
                r#"regexp_contains(meta().id, '_(?=1)\d{2}$') AND REGEXP_CONTAINS(country, "a\\w")"#,
                r#"REGEXP_CONTAINS(META().id, "^(?!hotel)")"#,
            ],
            true,
        );
        check(
            &[r#"REGEXP_CONTAINS(META().id, "^(?!airline)")"#, r#"REGEXP_CONTAINS(n, "5")"#],
            false,
        );
    }

    #[test]
    fn a_document_that_is_no_object_has_no_fields() {
        let (by_key, by_body) = (r#"META().id = "k""#, "NOT a = 1");
        let by_both = format!("{by_key} AND {by_body}");
        let array = document("k", DATATYPE_JSON, "[1]");
        let binary = document("k", 0, "\u{1}text");
        for (expression, of_array, of_binary) in
            [(by_key, true, true), (by_body, false, true), (by_both.as_str(), false, false)]
        {
            assert_eq!(outcome(expression, &array), Ok(of_array), "{expression}");
            assert_eq!(outcome(expression, &binary), Ok(of_binary), "{expression}");
        }
    }

    #[test]
    fn a_regular_expression_that_takes_too_long_is_an_error() {
        let document = document(&"a".repeat(200), DATATYPE_JSON, "{}");
        let outcome = outcome(r#"REGEXP_CONTAINS(META().id, "(?=(a+)+\\1+b)")"#, &document);
        assert!(outcome.is_err(), "{outcome:?}");
    }

    #[test]
    fn a_malformed_expression_is_refused_with_its_position() {
        for (text, reason) in [
            ("", "character 1: a condition is expected"),
            ("a", "character 2: a comparison is expected"),
            ("a = ", "character 5: a value is expected"),
            ("a = 1 b", "character 7: AND, OR or the end is expected"),
            ("(a = 1", "character 7: ) is expected"),
            ("a = 'x", "character 5: the text has no end"),
            ("a = `x", "character 5: the name has no end"),
            ("a[-1] = 1", "character 3: the index must be a whole number from 0"),
            ("a.* = 1", "character 3: a name is expected"),
            ("a = null", "character 5: write null in backticks if it is a name"),
            ("a IS 1", "character 6: NULL or MISSING is expected"),
            ("META().cas = 1", "character 8: only id and xattrs are known of META()"),
            ("META().xattrs = 1", "character 15: a name is expected"),
            ("UPPER(a) = 'A'", "character 1: UPPER is not a function of filters"),
            ("ATAN2(1) = 1", "character 1: ATAN2 takes 2 arguments"),
            ("REGEXP_CONTAINS(a, b)", "character 20: a regular expression in quotes is expected"),
            ("EXISTS(1)", "character 8: a path is expected"),
            ("(a = 1) = 2", "character 1: a value is expected, not a condition"),
            ("a = 1 = 2", "character 7: AND, OR or the end is expected"),
            ("a ~ 1", "character 3: unexpected ~"),
            ("DATE(a) = 1", "character 11: DATE is compared with DATE only"),
        ] {
            assert_eq!(Expression::parse(text).unwrap_err(), reason, "{text}");
        }
        let regex = Expression::parse(r#"REGEXP_CONTAINS(a, "(")"#).unwrap_err();
        assert!(
            regex.starts_with("character 20: the regular expression cannot be read: "),
            "{regex}"
        );
    }

    #[test]
    fn an_expression_about_keys_alone_is_known_as_such() {
        let is_about_keys = |text: &str| Expression::parse(text).unwrap().is_about_keys();
        for text in [r#"REGEXP_CONTAINS(META().id, "^a")"#, r#"META().id = "a" OR TRUE"#, "1 = 1"] {
            assert!(is_about_keys(text), "{text}");
        }
        for text in ["a = 1", "META().xattrs.v = 1", r#"META().id = "a" AND EXISTS(b)"#] {
            assert!(!is_about_keys(text), "{text}");
        }
    }

    #[test]
    fn an_expression_that_nests_without_end_is_refused() {
        for deep in ["(", "NOT ", "a+(", "-", "ABS("] {
            let error = Expression::parse(&deep.repeat(30_000)).unwrap_err();
            assert!(error.contains("nests"), "{deep}: {error}");
        }
        let wide = vec!["a = 1"; 5000].join(" AND ");
        assert!(Expression::parse(&wide).is_ok());
    }
}
