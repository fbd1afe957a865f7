//! Slow operations of this node.

use super::super::Call;
use super::super::body::{Reply, ok};
use super::super::dates::date;
use nacre_auth::{Keyspace, Privilege, User};
use nacre_bucket::{SlowOperation, SlowService};
use serde_json::{Value, json};
use std::time::Duration;

/// `GET /api/v1/slow-operations`: the latest slow operations, newest first. Keys and statements are shown only to users
/// who may read them anyway.
pub(super) fn list(call: &Call) -> Result<Reply, Reply> {
    let users = call.node.users();
    let user = call.holder(&users);
    let kept = call.node.slow_log().kept();
    let operations: Vec<Value> = kept.iter().map(|operation| describe(operation, user)).collect();
    let counts = SlowService::ALL.map(|of| (of.name().to_owned(), call.node.slow_log().count(of)));
    let counts: serde_json::Map<String, Value> =
        counts.into_iter().map(|(name, count)| (name, count.into())).collect();
    Ok(ok(&json!({"counts": counts, "operations": operations})))
}

fn describe(operation: &SlowOperation, asker: Option<&User>) -> Value {
    let SlowOperation { service, operation: what, bucket, target, user, elapsed, spent, unix_ms } =
        operation;
    let ms = |time: &Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let spent: Vec<Value> =
        spent.iter().map(|(on, time)| json!({"on": on, "ms": ms(time)})).collect();
    let seconds = i64::try_from(unix_ms / 1000).unwrap_or(i64::MAX);
    let mut described = json!({
        "service": service.name(),
        "operation": what,
        "bucket": bucket,
        "ms": ms(elapsed),
        "spent": spent,
        "ended": date(seconds, 0),
    });
    if asker.is_some_and(|asker| sees(asker, operation)) {
        described["target"] = json!(target);
        described["user"] = json!(user);
    }
    described
}

/// Returns true if a user may see the user data in an operation.
fn sees(asker: &User, operation: &SlowOperation) -> bool {
    let bucket = Some(operation.bucket.as_str()).filter(|bucket| !bucket.is_empty());
    let place = Keyspace { bucket, ..Keyspace::default() };
    match operation.service {
        SlowService::Query => {
            asker.name == operation.user || asker.may(Privilege::ManageRequests, place)
        }
        SlowService::Kv | SlowService::Views => asker.may(Privilege::ReadData, place),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_auth::Role;

    #[test]
    fn keys_and_statements_are_shown_only_to_users_with_rights_to_them() {
        let slow = |service, user: &str| SlowOperation {
            service,
            operation: "Get".into(),
            bucket: if service == SlowService::Query { String::new() } else { "a".into() },
            target: "key".into(),
            user: user.into(),
            elapsed: Duration::from_millis(812),
            spent: Vec::new(),
            unix_ms: 1_000,
        };
        let asker = |role: &str| {
            let roles: Vec<Role> = vec![role.parse().unwrap()];
            User::new("ann", "secret", roles, [1; nacre_auth::SALT_BYTES])
        };
        let shows = |role: &str, operation: &SlowOperation| {
            describe(operation, Some(&asker(role))).get("target").is_some()
        };
        assert!(shows("data_reader[a]", &slow(SlowService::Kv, "bob")));
        assert!(!shows("data_reader[b]", &slow(SlowService::Kv, "ann")));
        assert!(!shows("external_stats_reader", &slow(SlowService::Views, "bob")));
        assert!(!shows("external_stats_reader", &slow(SlowService::Query, "bob")));
        assert!(shows("external_stats_reader", &slow(SlowService::Query, "ann")));
        assert!(shows("admin", &slow(SlowService::Query, "bob")));
        assert!(describe(&slow(SlowService::Kv, "bob"), None).get("target").is_none());
    }
}
