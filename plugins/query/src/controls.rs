//! `controls`: the parameters of a request other than its statement, reported in its response and in
//! `system:completed_requests`.

use crate::request::Request;
use nacre_sql::{Name, Value};

/// Maximum size in bytes of the JSON that is kept of a request's controls after its end.
const KEPT_BYTES_MAX: usize = 4096;

/// Returns the level of consistency, under its name in catalogs.
pub(crate) fn level_of(request: &Request) -> &'static str {
    match request.settings.consistency.level.as_str() {
        "" | "not_bounded" => "unbounded",
        "at_plus" => "at_plus",
        _ => "scan_plus",
    }
}

/// Returns the controls of a request; those that were not given and have no default are omitted.
pub(crate) fn of(request: &Request) -> Value {
    let settings = &request.settings;
    let some = |given: bool, value: Value| if given { value } else { Value::Missing };
    let named = settings.named.iter().map(|(name, value)| (name.clone(), value.clone()));
    let quota_mb = (settings.memory_quota >> 20) as i64;
    let timeout = request.timeout_ms.map_or(Value::Missing, |ms| format!("{ms}ms").into());
    Value::object([
        ("memoryQuota", some(quota_mb > 0, quota_mb.into())),
        ("namedArgs", some(!settings.named.is_empty(), Value::object::<Name>(named))),
        (
            "positionalArgs",
            some(!settings.positional.is_empty(), Value::array(settings.positional.clone())),
        ),
        ("readonly", some(settings.readonly, true.into())),
        ("scan_consistency", level_of(request).into()),
        ("timeout", timeout),
        ("use_cbo", (!settings.ignores_costs).to_string().into()),
    ])
}

/// Returns the controls as JSON if the request asked for them; `None` if they are too large to keep.
pub(crate) fn kept(request: &Request) -> Option<String> {
    let json = request.controls.then(|| of(request).to_json())?;
    (json.len() <= KEPT_BYTES_MAX).then_some(json)
}
