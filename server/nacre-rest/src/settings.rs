//! Settings of the cluster as a whole, below `/settings`. Paths, fields and texts are Couchbase's.
//!
//! The cluster stores only settings that have an effect in nacre. All others have a fixed value, which describes the
//! server. A form may repeat that value; the server refuses any other value, and names the field.

use super::body::{Reply, done, invalid, json_reply, ok};
use super::routes::{ADMINISTER, READ, Route, USERS, get, post, ready};
use super::{Call, fixed};
use hyper::StatusCode;
use nacre_cluster::{Change, ClusterChange, CurlAccess, MOVES_PER_NODE_MAX, SettingsChange};
use nacre_query_service::QuerySettings;
use nacre_sandbox::origin;
use serde_json::{Map, Value, json};

const REBALANCE: &str = "/settings/rebalance";
const INTERNAL: &str = "/internalSettings";
const STATS: &str = "/settings/stats";
const QUERY: &str = "/settings/querySettings";
/// Version of the list of alerts, which clients send back when they have shown the list. The server raises no alerts, so
/// that the version never changes.
pub(super) const ALERTS_TOKEN: &str = "0";
/// Couchbase has two names for this setting.
const CURL: [&str; 2] =
    ["/settings/querySettings/curlWhitelist", "/settings/querySettings/curlAllowlist"];

pub(super) const ROUTES: &[Route] = &[
    get(REBALANCE, READ, |call| ready(Ok(rebalance(&call)))),
    post(REBALANCE, ADMINISTER, |call| Box::pin(set_rebalance(call))),
    get(INTERNAL, READ, |call| ready(Ok(ok(&internal(&call))))),
    post(INTERNAL, ADMINISTER, |call| Box::pin(set_internal(call))),
    get(STATS, READ, |call| {
        ready(Ok(ok(&json!({"sendStats": call.node.cluster().settings.send_stats}))))
    }),
    post(STATS, ADMINISTER, |call| Box::pin(set_stats(call))),
    get(QUERY, READ, |call| ready(Ok(ok(&query(&call))))),
    post(QUERY, ADMINISTER, |call| Box::pin(set_query(call))),
    get(CURL[0], READ, |call| ready(Ok(curl(&call)))),
    post(CURL[0], ADMINISTER, |call| Box::pin(set_curl(call))),
    get(CURL[1], READ, |call| ready(Ok(curl(&call)))),
    post(CURL[1], ADMINISTER, |call| Box::pin(set_curl(call))),
    get("/settings/alerts", READ, |_| ready(Ok(ok(&alerts())))),
    post("/settings/alerts", ADMINISTER, |call| ready(confirm(&call, &alerts(), NO_MAIL))),
    post("/settings/alerts/testEmail", ADMINISTER, |_| {
        ready(Err(json_reply(StatusCode::BAD_REQUEST, &json!({"error": NO_MAIL}))))
    }),
    post("/controller/resetAlerts", ADMINISTER, |call| {
        ready(Ok(ok(&json!(call.parameter("token").as_deref() == Some(ALERTS_TOKEN)))))
    }),
    get("/settings/ldap", USERS, |_| ready(Ok(ok(&ldap())))),
    post("/settings/ldap", USERS, |call| ready(confirm(&call, &ldap(), NO_DIRECTORY))),
    get("/settings/saslauthdAuth", USERS, |_| ready(Ok(ok(&saslauthd())))),
    post("/settings/saslauthdAuth", USERS, |call| {
        ready(confirm(&call, &saslauthd(), NO_SASLAUTHD))
    }),
    get("/settings/autoReprovision", READ, |_| ready(Ok(ok(&reprovision())))),
    post("/settings/autoReprovision", ADMINISTER, |call| {
        let reason =
            "A node that restarts gets the documents of ephemeral buckets from their replicas.";
        ready(confirm(&call, &reprovision(), reason))
    }),
    get("/settings/analytics", READ, |_| ready(Ok(ok(&analytics())))),
    post("/settings/analytics", ADMINISTER, |call| {
        ready(confirm(&call, &analytics(), "The analytics service keeps no replicas."))
    }),
];

/// Changes a section of the settings.
pub(super) async fn change(call: &Call, change: SettingsChange) -> Result<(), Reply> {
    call.change(Change::Cluster(ClusterChange::ChangeSettings { change: Box::new(change) }))
        .await
        .map(drop)
}

const MOVES_FIELD: &str = "rebalanceMovesPerNode";

/// `/settings/rebalance`: the maximum number of vBuckets that a node moves at the same time.
fn rebalance(call: &Call) -> Reply {
    let known = call.node.cluster().settings.moves_per_node;
    ok(&json!({MOVES_FIELD: known.unwrap_or(MOVES_PER_NODE_MAX)}))
}

async fn set_rebalance(call: Call) -> Result<Reply, Reply> {
    for (field, value) in call.form() {
        if field != MOVES_FIELD {
            return Err(invalid(&field, "Unsupported key"));
        }
        set_moves(&call, &value).await?;
    }
    Ok(rebalance(&call))
}

async fn set_moves(call: &Call, value: &str) -> Result<(), Reply> {
    let reason = format!("The value must be in range from 1 to {MOVES_PER_NODE_MAX}");
    let moves = value.parse().map_err(|_| invalid(MOVES_FIELD, reason))?;
    change(call, SettingsChange::MovesPerNode(moves)).await
}

/// `/internalSettings`: Couchbase's settings that its tools read. Only the number of moves per node can be changed.
fn internal(call: &Call) -> Value {
    let moves = call.node.cluster().settings.moves_per_node;
    json!({
        "indexAwareRebalanceDisabled": false,
        "rebalanceIndexWaitingDisabled": false,
        "rebalanceIndexPausingDisabled": false,
        "rebalanceIgnoreViewCompactions": true,
        MOVES_FIELD: moves.unwrap_or(MOVES_PER_NODE_MAX),
        "rebalanceMovesBeforeCompaction": 64,
        "maxParallelIndexers": "",
        "maxParallelReplicaIndexers": "",
        "gotraceback": "single",
        "indexAutoFailoverDisabled": false,
    })
}

async fn set_internal(call: Call) -> Result<Reply, Reply> {
    let (moves, others): (Vec<_>, Vec<_>) =
        call.form().into_iter().partition(|(field, _)| field == MOVES_FIELD);
    // The server checks all fields first, and changes nothing if one of them is refused.
    let known = internal(&call);
    let known = known.as_object().cloned().unwrap_or_default();
    fixed::check_because(&known, &others, "The server decides by itself.")?;
    for (_, value) in moves {
        set_moves(&call, &value).await?;
    }
    Ok(ok(&json!([])))
}

/// `/settings/stats`: the permission to report the cluster's version. nacre never reports it, so the permission is only
/// stored.
async fn set_stats(call: Call) -> Result<Reply, Reply> {
    for (field, value) in call.form() {
        let allowed = match (field.as_str(), value.as_str()) {
            ("sendStats", "true") => true,
            ("sendStats", "false") => false,
            ("sendStats", _) => return Err(invalid(&field, "sendStats must be true or false")),
            _ => return Err(invalid(&field, "Unsupported key")),
        };
        change(&call, SettingsChange::SendStats(allowed)).await?;
    }
    Ok(ok(&json!([])))
}

/// `/settings/querySettings/curlWhitelist`: the URLs that queries may read.
fn curl(call: &Call) -> Reply {
    ok(&describe_curl(&call.node.cluster().settings.curl))
}

async fn set_curl(call: Call) -> Result<Reply, Reply> {
    let access = read_curl(&call.body)?;
    change(&call, SettingsChange::Curl(access)).await?;
    Ok(curl(&call))
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
            let list = list.ok_or_else(|| invalid(field, "Invalid array"))?;
            match list.iter().find(|url| origin(url).is_none()) {
                Some(url) => {
                    let reason = format!("{url} is not a URL of the form https://host/path");
                    Err(invalid(field, reason))
                }
                None => Ok(list),
            }
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

pub(super) const NO_MAIL: &str = "The server sends no mail: watch /metrics and /events instead.";

/// Answers a form that repeats fixed settings.
///
/// # Errors
/// A field that asks for another value, with the `reason` why it cannot be changed.
pub(super) fn confirm(call: &Call, known: &Value, reason: &str) -> Result<Reply, Reply> {
    let known = known.as_object().cloned().unwrap_or_default();
    fixed::check_because(&known, &call.form(), reason).map(|()| done())
}

pub(super) const NO_DIRECTORY: &str =
    "The server asks no directory: its users are below /settings/rbac/users.";
const NO_SASLAUTHD: &str =
    "The server asks no saslauthd: its users are below /settings/rbac/users.";

/// Returns the settings of the query service, and the URLs that it may read.
fn query(call: &Call) -> Value {
    let mut settings = query_settings();
    let cluster = call.node.cluster();
    let agreed = QuerySettings::of(&cluster);
    settings["queryTimeout"] = agreed.timeout_ns.into();
    settings["queryCompletedThreshold"] = agreed.completed_threshold_ms.into();
    settings["queryUseCBO"] = agreed.uses_costs.into();
    settings[STATISTICS_FIELD] = agreed.refreshes_statistics.into();
    settings[PERCENT_FIELD] = agreed.refresh_percent.into();
    settings["queryCurlWhitelist"] = describe_curl(&cluster.settings.curl);
    settings
}

async fn set_query(call: Call) -> Result<Reply, Reply> {
    let known = query(&call);
    let known = known.as_object().cloned().unwrap_or_default();
    let before = QuerySettings::of(&call.node.cluster());
    let (mut settings, mut others) = (before.clone(), Vec::new());
    for (field, value) in call.form() {
        match field.as_str() {
            "queryTimeout" => {
                let reason = "The value must be a number of nanoseconds, or 0 for no limit";
                settings.timeout_ns = value.parse().map_err(|_| invalid(&field, reason))?;
            }
            "queryCompletedThreshold" => {
                let reason = "The value must be a number of milliseconds, or -1";
                let threshold_ms = value.parse::<i64>().ok().filter(|ms| *ms >= -1);
                settings.completed_threshold_ms =
                    threshold_ms.ok_or_else(|| invalid(&field, reason))?;
            }
            "queryUseCBO" => settings.uses_costs = boolean(&field, &value)?,
            STATISTICS_FIELD => settings.refreshes_statistics = boolean(&field, &value)?,
            PERCENT_FIELD => {
                let reason = "The value must be in range from 1 to 100";
                let percent = value.parse::<u64>().ok();
                let percent = percent.filter(|percent| (1..=100).contains(percent));
                settings.refresh_percent = percent.ok_or_else(|| invalid(&field, reason))?;
            }
            _ => others.push((field, value)),
        }
    }
    fixed::check_because(&known, &others, "Requests set their own options.")?;
    if settings != before {
        call.change(settings.to_change()).await?;
    }
    Ok(ok(&query(&call)))
}

/// nacre's names for the settings of automatic statistics, which Couchbase changes by statements.
const STATISTICS_FIELD: &str = "queryAutoUpdateStatistics";
const PERCENT_FIELD: &str = "queryStatisticsChangePercentage";

fn boolean(field: &str, value: &str) -> Result<bool, Reply> {
    value.parse().map_err(|_| invalid(field, "The value must be true or false"))
}

fn saslauthd() -> Value {
    json!({"enabled": false, "admins": [], "roAdmins": []})
}

fn reprovision() -> Value {
    json!({"enabled": false, "max_nodes": 1, "count": 0})
}

fn analytics() -> Value {
    json!({"numReplicas": 0})
}

/// Returns the fixed settings of the query service, with Couchbase's names.
fn query_settings() -> Value {
    json!({
        "queryTmpSpaceDir": "",
        "queryTmpSpaceSize": 0,
        "queryPipelineBatch": 16,
        "queryPipelineCap": 512,
        "queryScanCap": 512,
        "queryPreparedLimit": 16384,
        "queryCompletedLimit": 4000,
        "queryLogLevel": "info",
        "queryMaxParallelism": 1,
        "queryTxTimeout": "0ms",
        "queryMemoryQuota": 0,
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
    fn settings_of_curl_are_read_from_a_body_or_refused() {
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
            r#"{"all_access": true, "disallowed_urls": ["a.example"]}"#,
            r#"{"all_access": true, "more": 1}"#,
        ] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
