//! Settings that tools read and that cannot be changed: setting one to the value that it has succeeds. Paths and fields are
//! Couchbase's.

use super::Call;
use super::body::{Reply, done, invalid, ok};
use super::routes::{ADMINISTER, READ, Route, get, post, ready};
use serde_json::{Map, Value, json};

const PREVIEW: &str = "/settings/developerPreview";
const INTERNAL: &str = "/internalSettings";

pub(super) const ROUTES: &[Route] = &[
    get(PREVIEW, READ, |_| ready(Ok(ok(&preview())))),
    post(PREVIEW, ADMINISTER, |call| ready(set(&call, &preview()))),
    get(INTERNAL, READ, |_| ready(Ok(ok(&json!({}))))),
    post(INTERNAL, ADMINISTER, |call| ready(set(&call, &json!({})))),
];

fn preview() -> Value {
    json!({"enabled": false})
}

fn set(call: &Call, known: &Value) -> Result<Reply, Reply> {
    check(known.as_object().unwrap_or(&Map::new()), &call.form()).map(|()| done())
}

/// Refuses fields that are not known, and values other than those that they have.
pub(super) fn check(known: &Map<String, Value>, form: &[(String, String)]) -> Result<(), Reply> {
    check_because(known, form, "")
}

/// Like [`check`], with the `reason` why a value cannot be changed.
pub(super) fn check_because(
    known: &Map<String, Value>,
    form: &[(String, String)],
    reason: &str,
) -> Result<(), Reply> {
    for (field, value) in form {
        let is = known.get(field).ok_or_else(|| invalid(field, "Unsupported key"))?;
        let is_same = match is {
            Value::String(text) => text == value,
            _ => *is == serde_json::from_str::<Value>(value).unwrap_or_default(),
        };
        if !is_same {
            let text = format!("It is {is}, and cannot be changed. {reason}");
            return Err(invalid(field, text.trim_end()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_changed_may_be_set_to_what_it_is() {
        let known = json!({"moves": 64, "enabled": false, "level": "all", "names": []});
        let set = |field: &str, value: &str| {
            check(known.as_object().unwrap(), &[(field.to_owned(), value.to_owned())]).is_ok()
        };
        assert!(set("moves", "64") && set("enabled", "false"));
        assert!(set("level", "all") && set("names", "[]"));
        assert!(!set("moves", "4") && !set("enabled", "true") && !set("others", "1"));
        assert!(!set("level", "\"all\"") && !set("level", "control") && !set("names", "[\"a\"]"));
    }
}
