//! Settings of the cluster as a whole, below `/settings`. Paths, fields and texts are Couchbase's.
//!
//! A setting that means something here is written and read back. Of all others there is the value that describes what the server does:
//! a form may repeat it, and is refused with the name of the field if it asks for anything else.

use super::body::{Reply, done, invalid, json_reply, not_found, ok};
use super::{Call, audit_settings, compaction_settings, fixed, security_settings};
use hyper::StatusCode;
use nacre_auth::Privilege;
use nacre_cluster::{Change, CurlAccess, MOVES_PER_NODE_MAX, SettingsChange};
use serde_json::{Map, Value, json};

/// Dispatches what is below `/settings`, and `/controller/setAutoCompaction`.
pub(super) async fn route(call: Call, path: &[&str]) -> Result<Reply, Reply> {
    match path {
        ["settings", "autoCompaction"] | ["controller", "setAutoCompaction"] => {
            compaction_settings::route(&call).await
        }
        ["settings", "security", rest @ ..] => security_settings::route(&call, rest).await,
        ["settings", "audit", rest @ ..] => audit_settings::route(&call, rest).await,
        ["settings", "rebalance"] => rebalance(&call).await,
        ["settings", "stats"] => stats(&call).await,
        ["settings", "querySettings", "curlWhitelist" | "curlAllowlist"] => curl(&call).await,
        ["settings", "alerts", "testEmail"] if call.method == "POST" => {
            call.require(Privilege::AdministerCluster, None)?;
            Err(json_reply(StatusCode::BAD_REQUEST, &json!({"error": NO_MAIL})))
        }
        _ => unchanging(&call, path),
    }
}

/// Changes a section of the settings.
pub(super) async fn change(call: &Call, change: SettingsChange) -> Result<(), Reply> {
    call.change(Change::ChangeSettings { change: Box::new(change) }).await.map(drop)
}

/// Refuses users who may not read or write settings of the cluster.
fn require(call: &Call, read: Privilege, write: Privilege) -> Result<(), Reply> {
    call.require(if call.method == "GET" { read } else { write }, None)
}

/// `/settings/rebalance`: how many vBuckets a node moves at once.
async fn rebalance(call: &Call) -> Result<Reply, Reply> {
    const FIELD: &str = "rebalanceMovesPerNode";
    require(call, Privilege::ReadCluster, Privilege::AdministerCluster)?;
    if call.method != "GET" {
        for (field, value) in call.form() {
            if field != FIELD {
                return Err(invalid(&field, "Unsupported key"));
            }
            let reason = format!("The value must be in range from 1 to {MOVES_PER_NODE_MAX}");
            let moves = value.parse().map_err(|_| invalid(FIELD, reason))?;
            change(call, SettingsChange::MovesPerNode(moves)).await?;
        }
    }
    let known = call.node.cluster().settings.moves_per_node;
    Ok(ok(&json!({FIELD: known.unwrap_or(MOVES_PER_NODE_MAX)})))
}

/// `/settings/stats`: whether the cluster may report its version. It never does, so the permission is only kept.
async fn stats(call: &Call) -> Result<Reply, Reply> {
    require(call, Privilege::ReadCluster, Privilege::AdministerCluster)?;
    if call.method == "GET" {
        return Ok(ok(&json!({"sendStats": call.node.cluster().settings.send_stats})));
    }
    for (field, value) in call.form() {
        let allowed = match (field.as_str(), value.as_str()) {
            ("sendStats", "true") => true,
            ("sendStats", "false") => false,
            ("sendStats", _) => return Err(invalid(&field, "sendStats must be true or false")),
            _ => return Err(invalid(&field, "Unsupported key")),
        };
        change(call, SettingsChange::SendStats(allowed)).await?;
    }
    Ok(ok(&json!([])))
}

/// `/settings/querySettings/curlWhitelist`: the URLs that queries may read.
async fn curl(call: &Call) -> Result<Reply, Reply> {
    require(call, Privilege::ReadCluster, Privilege::AdministerCluster)?;
    if call.method != "GET" {
        let access = read_curl(&call.body)?;
        change(call, SettingsChange::Curl(access)).await?;
    }
    Ok(ok(&describe_curl(&call.node.cluster().settings.curl)))
}

fn describe_curl(access: &CurlAccess) -> Value {
    json!({
        "all_access": access.all_access,
        "allowed_urls": access.allowed_urls,
        "disallowed_urls": access.disallowed_urls,
    })
}

fn read_curl(body: &[u8]) -> Result<CurlAccess, Reply> {
    let body: Map<String, Value> =
        serde_json::from_slice(body).map_err(|_| invalid("_", "Unexpected Json"))?;
    let mut access = CurlAccess::default();
    let mut says_all = false;
    for (field, value) in &body {
        let list = || {
            let list: Option<Vec<String>> = value.as_array().and_then(|items| {
                items.iter().map(|item| item.as_str().map(str::to_owned)).collect()
            });
            list.ok_or_else(|| invalid(field, "Invalid array"))
        };
        match field.as_str() {
            "all_access" => {
                says_all = true;
                access.all_access =
                    value.as_bool().ok_or_else(|| invalid(field, "The value must be a boolean"))?;
            }
            "allowed_urls" => access.allowed_urls = list()?,
            "disallowed_urls" => access.disallowed_urls = list()?,
            _ => return Err(invalid(field, "Unsupported key")),
        }
    }
    if says_all { Ok(access) } else { Err(invalid("all_access", "The value must be supplied")) }
}

const NO_MAIL: &str = "The server sends no mail: watch /metrics and /events instead.";

/// Settings that describe what the server does: by path, who may read and write them, their values, and why they are so.
fn unchanging(call: &Call, path: &[&str]) -> Result<Reply, Reply> {
    let (write, settings, reason) = match path {
        ["settings", "querySettings"] => {
            let mut settings = query();
            settings["queryCurlWhitelist"] = describe_curl(&call.node.cluster().settings.curl);
            (Privilege::AdministerCluster, settings, "Each request says what differs for it.")
        }
        ["settings", "alerts"] => (Privilege::AdministerCluster, alerts(), NO_MAIL),
        ["settings", "ldap"] => (
            Privilege::AdministerUsers,
            ldap(),
            "The server asks no directory: its users are below /settings/rbac/users.",
        ),
        ["settings", "saslauthdAuth"] => (
            Privilege::AdministerUsers,
            json!({"enabled": false, "admins": [], "roAdmins": []}),
            "The server asks no saslauthd: its users are below /settings/rbac/users.",
        ),
        ["settings", "autoReprovision"] => (
            Privilege::AdministerCluster,
            json!({"enabled": false, "max_nodes": 1, "count": 0}),
            "A node that restarts gets the documents of ephemeral buckets from their replicas.",
        ),
        ["settings", "analytics"] => (
            Privilege::AdministerCluster,
            json!({"numReplicas": 0}),
            "There is no analytics service.",
        ),
        ["settings", "replications"] => {
            (Privilege::AdministerCluster, json!({}), "There is no replication between clusters.")
        }
        _ => return Err(not_found()),
    };
    let read = if write == Privilege::AdministerUsers { write } else { Privilege::ReadCluster };
    require(call, read, write)?;
    if call.method == "GET" {
        return Ok(ok(&settings));
    }
    let known = settings.as_object().cloned().unwrap_or_default();
    fixed::check_because(&known, &call.form(), reason)?;
    Ok(match path {
        ["settings", "querySettings"] => ok(&settings),
        _ => done(),
    })
}

/// What the query service does, in the words of its settings at Couchbase.
fn query() -> Value {
    json!({
        "queryTmpSpaceDir": "",
        "queryTmpSpaceSize": 0,
        "queryPipelineBatch": 16,
        "queryPipelineCap": 512,
        "queryScanCap": 512,
        "queryTimeout": 0,
        "queryPreparedLimit": 16384,
        "queryCompletedLimit": 4000,
        "queryCompletedThreshold": 1000,
        "queryLogLevel": "info",
        "queryMaxParallelism": 1,
        "queryTxTimeout": "0ms",
        "queryMemoryQuota": 0,
        "queryUseCBO": false,
        "queryCleanupClientAttempts": true,
        "queryCleanupLostAttempts": true,
        "queryCleanupWindow": "60s",
        "queryNumAtrs": 1024,
        "queryN1QLFeatCtrl": 0,
        "queryNodeQuota": 0,
        "queryUseReplica": "unset",
        "queryNodeQuotaValPercent": 67,
        "queryNumCpus": 0,
        "queryCompletedMaxPlanSize": 262_144,
    })
}

fn alerts() -> Value {
    json!({
        "enabled": false,
        "recipients": "",
        "sender": "",
        "emailUser": "",
        "emailPass": "",
        "emailHost": "",
        "emailPort": 25,
        "emailEncrypt": false,
        "subject": "",
        "body": "",
        "emailServer": {"user": "", "pass": "", "host": "", "port": 25, "encrypt": false},
        "alerts": "",
        "pop_up_alerts": "",
    })
}

fn ldap() -> Value {
    json!({
        "authenticationEnabled": false,
        "authorizationEnabled": false,
        "hosts": [],
        "port": 389,
        "encryption": "None",
        "serverCertValidation": true,
        "bindDN": "",
        "bindPass": "",
        "userDNMapping": "None",
        "nestedGroupsEnabled": false,
        "nestedGroupsMaxDepth": 10,
        "groupsQuery": "",
        "failOnMaxDepth": false,
        "requestTimeout": 5000,
        "maxParallelConnections": 100,
        "maxCacheSize": 10_000,
        "cacheValueLifetime": 300_000,
        "cacheValueTimeout": 5000,
        "cacert": "",
        "clientTLSCert": "",
        "clientTLSKey": "",
        "middleboxCompMode": true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_queries_may_read_is_read_from_a_body_or_refused() {
        let read = |text: &str| read_curl(text.as_bytes());
        let access =
            read(r#"{"all_access": false, "allowed_urls": ["https://a"], "disallowed_urls": []}"#);
        assert_eq!(access.unwrap().allowed_urls, ["https://a"]);
        assert!(read(r#"{"all_access": true}"#).unwrap().all_access);
        for text in [
            "",
            "[]",
            "{}",
            r#"{"all_access": "yes"}"#,
            r#"{"all_access": true, "allowed_urls": "a"}"#,
            r#"{"all_access": true, "allowed_urls": [1]}"#,
            r#"{"all_access": true, "more": 1}"#,
        ] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
