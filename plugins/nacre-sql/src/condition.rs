//! Conditions on one document, such as `type = "order" AND total > 100`.
//!
//! Only the document's fields that the condition mentions are parsed, because most documents that do not match are long, and
//! most conditions are short.

use crate::ast::Expr;
use crate::env::{Caches, Context, Env, Meta, NoHost};
use crate::eval::eval;
use crate::index::{SELF, resolve_key};
use crate::parser::parse_expr;
use crate::visit::each_child;
use crate::{Name, Object, Result, Value};
use serde::de::{Deserializer as _, IgnoredAny, MapAccess, Visitor};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

/// Maximum number of regular expressions that are kept; those from documents are dropped together.
const REGEXES_MAX: usize = 64;

/// A condition, ready for evaluation.
pub struct Condition {
    expr: Expr,
    document: Name,
    /// The top-level fields that it reads; `None` if it reads the whole document.
    fields: Option<BTreeSet<Name>>,
    caches: Caches,
}

impl Condition {
    /// Parses a condition: an expression over the fields of a document, and `META()`.
    ///
    /// # Errors
    /// A syntax error, with line and column; or the expression has a subquery, an aggregate, a parameter or a
    /// nondeterministic function.
    pub fn parse(text: &str) -> Result<Condition> {
        let document: Name = SELF.into();
        let mut expr = parse_expr(text)?;
        resolve_key(&mut expr, &document)?;
        let mut fields = Some(BTreeSet::new());
        name_fields(&mut expr, &document, &mut fields);
        Ok(Condition { expr, document, fields, caches: Caches::default() })
    }

    /// Returns true if it can be evaluated without a document because it reads only `META()`.
    pub fn needs_no_document(&self) -> bool {
        self.fields.as_ref().is_some_and(BTreeSet::is_empty)
    }

    /// Returns true if the condition holds for a document with this JSON. A value that is not an object has no fields.
    ///
    /// # Errors
    /// As for [`eval`]; the message of the parser if the JSON nests too deeply.
    pub fn holds(&self, json: &[u8], meta: Meta) -> Result<bool> {
        self.caches.sets.borrow_mut().clear();
        let mut regexes = self.caches.regexes.borrow_mut();
        if regexes.len() > REGEXES_MAX {
            regexes.clear();
        }
        drop(regexes);
        let value = match &self.fields {
            None => Value::parse(json),
            Some(wanted) => some_of(json, wanted),
        };
        let value = value.map_err(crate::Error::execution)?;
        let named = BTreeMap::new();
        let context = Context {
            host: &NoHost,
            positional: &[],
            named: &named,
            statement_ms: 0,
            caches: &self.caches,
        };
        let env = Env::new().with_document(&self.document, value, Some(Arc::new(meta)));
        Ok(eval(&self.expr, &env, &context)?.truth())
    }
}

/// Adds the top-level fields that `expr` reads; sets `fields` to `None` if they cannot be determined.
fn name_fields(expr: &mut Expr, document: &Name, fields: &mut Option<BTreeSet<Name>>) {
    let is_document = |of: &Expr| matches!(of, Expr::Ident(name) if name == document);
    match expr {
        Expr::Field(of, name, false) if is_document(of) => {
            if let Some(fields) = fields {
                fields.insert(name.clone());
            }
        }
        Expr::Call(function, args) if function.name == "META" && args.iter().all(is_document) => {}
        Expr::Ident(name) if name == document => *fields = None,
        _ => {
            let done = each_child(expr, &mut |child| {
                name_fields(child, document, fields);
                Ok(())
            });
            debug_assert!(done.is_ok(), "naming refuses nothing");
        }
    }
}

/// Returns the fields `wanted` of a document; all of a value that is not an object.
fn some_of(json: &[u8], wanted: &BTreeSet<Name>) -> std::result::Result<Value, String> {
    if json.iter().find(|byte| !byte.is_ascii_whitespace()) != Some(&b'{') {
        return Value::parse(json);
    }
    let mut deserializer = serde_json::Deserializer::from_slice(json);
    let fields = deserializer.deserialize_map(Fields(wanted));
    fields.map(|fields| Value::Object(Arc::new(fields))).map_err(|error| error.to_string())
}

struct Fields<'a>(&'a BTreeSet<Name>);

impl<'de> Visitor<'de> for Fields<'_> {
    type Value = Object;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<Object, A::Error> {
        let mut found = Object::default();
        while let Some(name) = map.next_key::<std::borrow::Cow<'de, str>>()? {
            match self.0.get(&*name) {
                Some(name) => drop(found.insert(name.clone(), map.next_value()?)),
                None => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &str = r#"{"type": "order", "items": [{"sku": "a", "deep": [1]}, {"sku": "b"}],
        "to\u0074al": 120.5, "a": {"b": {"c": null}}, "type": "order"}"#;

    fn holds(condition: &str) -> bool {
        let meta = Meta { id: "order::7".into(), json: true, ..Meta::default() };
        Condition::parse(condition).unwrap().holds(DOCUMENT.as_bytes(), meta).unwrap()
    }

    /// The result is the same if only some fields are read.
    #[test]
    fn a_condition_evaluates_as_in_a_query() {
        for condition in [
            "type = 'order' AND total > 100",
            "ANY i IN items SATISFIES i.sku = 'b' END",
            "a.b.c IS NULL AND a.b.d IS MISSING AND nothing IS MISSING",
            "META().id LIKE 'order::%'",
            "ARRAY_LENGTH(OBJECT_NAMES(self)) = 4",
            "self.total BETWEEN 120 AND 121",
            "TYPE = 'x' OR `type` IN ['a', 'order']",
            "items[0].deep[0] = 1",
        ] {
            assert!(holds(condition), "{condition}");
            assert!(!holds(&format!("NOT ({condition})")), "{condition}");
        }
        assert!(!holds("missing > 1") && !holds("type > 1 AND FALSE"));
    }

    #[test]
    fn values_other_than_objects_have_no_fields() {
        let condition = Condition::parse("a = 1 OR self = 5").unwrap();
        let of = |json: &str| condition.holds(json.as_bytes(), Meta::default()).unwrap();
        assert!(of("5") && of(" {\"a\": 1}") && !of("[1]") && !of("null"));
        let condition = Condition::parse("a IS MISSING").unwrap();
        assert!(condition.holds(b"[1]", Meta::default()).unwrap());
        assert!(condition.holds(b"{\"a\":", Meta::default()).is_err());
    }

    #[test]
    fn only_metadata_needs_no_document() {
        let needs_none = |text: &str| Condition::parse(text).unwrap().needs_no_document();
        assert!(needs_none("META().id LIKE 'a%'") && needs_none("META(self).id = 'a' AND TRUE"));
        assert!(!needs_none("a = 1") && !needs_none("self = 1") && !needs_none("META().id = a"));
    }

    #[test]
    fn invalid_conditions_are_refused_with_their_position() {
        let refusal = |text: &str| Condition::parse(text).err().map(|error| error.message);
        for text in ["", "type = ", "a = $1", "SUM(a) > 1", "(SELECT 1) = 1", "NOW_MILLIS() > 1"] {
            assert!(refusal(text).is_some(), "{text}");
        }
        let message = refusal("a = 1 AND\n  b ==== 2").unwrap();
        assert!(message.contains("line 2, column"), "{message}");
    }
}
