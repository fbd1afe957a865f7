//! `controls`: what a request asked for beside its statement, told in its answer and in `system:completed_requests`.

use crate::request::Request;
use nacre_sql::{Name, Value};

/// Bytes of JSON that are kept of a request's controls once it has ended.
const KEPT_BYTES_MAX: usize = 4096;

/// The level of consistency, by the names that catalogs have for them.
pub(crate) fn level_of(request: &Request) -> &'static str {
    match request.settings.consistency.level.as_str() {
        "" | "not_bounded" => "unbounded",
        "at_plus" => "at_plus",
        _ => "scan_plus",
    }
}

/// The controls of a request; those that were not given and have no default are left out.
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

/// The controls as JSON, of a request that asked for them; none where they are too many to be kept.
pub(crate) fn kept(request: &Request) -> Option<String> {
    let json = request.controls.then(|| of(request).to_json())?;
    (json.len() <= KEPT_BYTES_MAX).then_some(json)
}
