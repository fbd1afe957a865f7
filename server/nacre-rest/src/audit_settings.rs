//! `/settings/audit`: whether the node keeps an audit log of logins and administrative requests. Paths, fields and texts are
//! Couchbase's.

use super::Call;
use super::body::{Reply, done, invalid, ok};
use super::routes::{Route, USERS, get, post, ready};
use super::settings;
use nacre_cluster::{Audit, SettingsChange};
use nacre_links::audit::{AuditKind, kinds};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::ops::RangeInclusive;

/// Seconds after which the node closes a file and starts a new one. Source: Couchbase.
const ROTATE_S: RangeInclusive<u64> = 900..=604_800;
/// Size in bytes at which the node closes a file and starts a new one; 0 for no limit. Source: Couchbase.
const ROTATE_BYTES: RangeInclusive<u64> = 0..=524_288_000;
/// Seconds after which the node removes closed files. Source: Couchbase.
const PRUNE_S: RangeInclusive<u64> = 0..=35_791_394;

const AUDIT: &str = "/settings/audit";

pub(super) const ROUTES: &[Route] = &[
    get(AUDIT, USERS, |call| ready(Ok(ok(&describe(&call, &call.node.cluster().settings.audit))))),
    post(AUDIT, USERS, |call| Box::pin(change(call))),
    get("/settings/audit/descriptors", USERS, |_| ready(Ok(describe_kinds(true)))),
    get("/settings/audit/nonFilterableDescriptors", USERS, |_| ready(Ok(describe_kinds(false)))),
];

async fn change(call: Call) -> Result<Reply, Reply> {
    let mut audit = call.node.cluster().settings.audit.clone();
    for (field, value) in call.form() {
        read(&call, &mut audit, &field, &value)?;
    }
    settings::change(&call, SettingsChange::Audit(audit)).await?;
    Ok(done())
}

/// Describes the kinds of events that can be disabled, or those that cannot.
fn describe_kinds(filterable: bool) -> Reply {
    let kinds = kinds().into_iter().filter(|kind| kind.filterable == filterable);
    ok(&Value::Array(kinds.map(|kind| describe_kind(&kind)).collect()))
}

fn describe_kind(kind: &AuditKind) -> Value {
    json!({"id": kind.id, "name": kind.name, "module": "ns_server", "description": kind.description})
}

fn read(call: &Call, audit: &mut Audit, field: &str, value: &str) -> Result<(), Reply> {
    if field == "logPath" {
        let folder = call.records.audit.folder();
        if folder.as_os_str() != value {
            let reason = format!("The log is in the data directory: {}", folder.display());
            return Err(invalid(field, reason));
        }
        return Ok(());
    }
    read_field(audit, field, value)
}

fn read_field(audit: &mut Audit, field: &str, value: &str) -> Result<(), Reply> {
    let number = |range: RangeInclusive<u64>| {
        let number = value.parse().ok().filter(|number| range.contains(number));
        let (least, most) = (range.start(), range.end());
        let reason = format!("The value must be in range from {least} to {most}");
        number.ok_or_else(|| invalid(field, reason))
    };
    let seconds = |range| number(range).map(|seconds| u32::try_from(seconds).unwrap_or(u32::MAX));
    match field {
        "auditdEnabled" => {
            audit.enabled = match value {
                "true" => true,
                "false" => false,
                _ => return Err(invalid(field, "auditdEnabled must be true or false")),
            };
        }
        "rotateInterval" => audit.rotate_s = seconds(ROTATE_S)?,
        "rotateSize" => {
            let bytes = number(ROTATE_BYTES)?;
            audit.rotate_bytes = if bytes == 0 { u64::MAX } else { bytes };
        }
        "pruneAge" => audit.prune_s = seconds(PRUNE_S)?,
        "disabled" => {
            let mut disabled = BTreeSet::new();
            for text in value.split(',').map(str::trim).filter(|text| !text.is_empty()) {
                let id = text.parse().ok();
                let is_known = |kind: &AuditKind| kind.filterable && Some(kind.id) == id;
                if !kinds().iter().any(is_known) {
                    let reason = format!("Unknown or not modifiable event ID: {text}");
                    return Err(invalid(field, reason));
                }
                disabled.extend(id);
            }
            audit.disabled_events = disabled;
        }
        "disabledUsers" => {
            let users = value.split(',').map(str::trim).filter(|user| !user.is_empty());
            let is_whole = |user: &str| {
                user.rsplit_once('/').is_some_and(|(name, domain)| {
                    !name.is_empty()
                        && ["local", "external", "admin", "couchbase"].contains(&domain)
                })
            };
            let mut disabled = BTreeSet::new();
            for user in users {
                if !is_whole(user) {
                    let reason = format!("Users are named as name/domain: {user}");
                    return Err(invalid(field, reason));
                }
                disabled.insert(user.to_owned());
            }
            audit.disabled_users = disabled;
        }
        _ => return Err(invalid(field, "Unsupported key")),
    }
    Ok(())
}

fn describe(call: &Call, audit: &Audit) -> Value {
    let users = audit.disabled_users.iter().filter_map(|user| user.rsplit_once('/'));
    let users: Vec<Value> =
        users.map(|(name, domain)| json!({"name": name, "domain": domain})).collect();
    json!({
        "auditdEnabled": audit.enabled,
        "disabled": audit.disabled_events,
        "disabledUsers": users,
        "logPath": call.records.audit.folder().display().to_string(),
        "rotateInterval": audit.rotate_s,
        "rotateSize": if audit.rotate_bytes == u64::MAX { 0 } else { audit.rotate_bytes },
        "pruneAge": audit.prune_s,
        "uid": call.node.cluster().rev.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_links::audit::{LOGIN_FAILURE, OTHER_REQUEST};

    #[test]
    fn fields_are_read_or_refused() {
        let mut audit = Audit::default();
        let other = OTHER_REQUEST.id.to_string();
        for (field, value) in [
            ("auditdEnabled", "true"),
            ("rotateInterval", "900"),
            ("rotateSize", "1024"),
            ("pruneAge", "60"),
            ("disabled", other.as_str()),
            ("disabledUsers", "ann/local,bob/external"),
        ] {
            read_field(&mut audit, field, value).unwrap();
        }
        let expected = Audit {
            enabled: true,
            disabled_events: [OTHER_REQUEST.id].into(),
            disabled_users: ["ann/local".to_owned(), "bob/external".to_owned()].into(),
            rotate_s: 900,
            rotate_bytes: 1024,
            prune_s: 60,
        };
        assert_eq!(audit, expected);
        let failure = LOGIN_FAILURE.id.to_string();
        for (field, value) in [
            ("auditdEnabled", "on"),
            ("rotateInterval", "899"),
            ("rotateSize", "-1"),
            ("pruneAge", "x"),
            ("disabled", failure.as_str()),
            ("disabled", "1"),
            ("disabledUsers", "ann"),
            ("colour", "blue"),
        ] {
            assert!(read_field(&mut audit, field, value).is_err(), "{field} {value}");
        }
        read_field(&mut audit, "rotateSize", "0").unwrap();
        assert_eq!(audit.rotate_bytes, u64::MAX);
    }
}
