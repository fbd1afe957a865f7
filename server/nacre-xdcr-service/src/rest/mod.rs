//! Management endpoints. Paths, fields and messages are Couchbase's, because SDKs and tools depend on them.

mod reference;
mod replication;
mod stuck;
mod trial;

use crate::Xdcr;
use crate::form::{self, segment};
use crate::record::{self, Replication};
use crate::status::{Activity, Status};
use nacre_auth::Privilege;
use nacre_cluster::Ports;
use nacre_node::Node;
use nacre_node::service::{Access, HttpReply, HttpRequest, Route};
use serde_json::{Value, json};
use std::sync::Arc;

type Handler = fn(&Arc<Node>, &HttpRequest) -> HttpReply;

const REFERENCES: &str = "/pools/default/remoteClusters";
const REFERENCE: &str = "/pools/default/remoteClusters/{name}";
const CANCEL: &str = "/controller/cancelXDCR/{id}";
const DEFAULTS: &str = "/settings/replications";
const SETTINGS: &str = "/settings/replications/{id}";

/// All endpoints.
pub(crate) const ROUTES: &[Route] = &[
    reads("GET", REFERENCES, reference::list),
    writes("POST", REFERENCES, reference::create),
    writes("POST", REFERENCE, reference::edit),
    writes("DELETE", REFERENCE, reference::delete),
    writes("POST", "/controller/createReplication", replication::create),
    writes("POST", CANCEL, replication::cancel),
    writes("DELETE", CANCEL, replication::cancel),
    reads("GET", DEFAULTS, replication::defaults),
    writes("POST", DEFAULTS, replication::set_defaults),
    reads("GET", SETTINGS, replication::settings),
    writes("POST", SETTINGS, replication::set),
    reads("GET", "/pools/default/replications", replication::list),
    reads("GET", "/pools/default/replicationInfos", infos),
    reads("GET", "/pools/default/replications/{id}/stuckDocuments", stuck::list),
    writes("POST", "/controller/skipStuckDocument/{id}", stuck::skip),
    writes("POST", "/controller/regexpValidation", trial::try_out),
];

const fn reads(method: &'static str, path: &'static str, handler: Handler) -> Route {
    route(method, path, Privilege::ReadCluster, handler)
}

const fn writes(method: &'static str, path: &'static str, handler: Handler) -> Route {
    route(method, path, Privilege::AdministerReplications, handler)
}

const fn route(
    method: &'static str,
    path: &'static str,
    privilege: Privilege,
    handler: Handler,
) -> Route {
    Route { port: Ports::MGMT, method, path, access: Access::Cluster(privilege), handler }
}

/// Returns the entries of `/pools/default/tasks`.
pub(crate) fn tasks(service: &Xdcr, node: &Arc<Node>) -> Vec<Value> {
    let cluster = node.cluster();
    let agreed = record::agreed_of(node, &cluster);
    if agreed.replications.is_empty() {
        return Vec::new();
    }
    let statuses = service.statuses(node);
    let task = |replication: &Replication| {
        let mut status = statuses.get(&replication.id).cloned().unwrap_or_default();
        if !replication.has_source(&cluster) {
            let text = format!("the source bucket {} does not exist any more", replication.source);
            status.note(node.now().unix_s(), text);
        }
        describe(replication, &status)
    };
    agreed.replications.iter().map(task).collect()
}

fn describe(replication: &Replication, status: &Status) -> Value {
    let id = segment(&replication.id);
    let chosen = replication.chosen();
    let sums = &status.sums;
    json!({
        "type": "xdcr",
        "id": replication.id,
        "source": replication.source,
        "target": format!("/remoteClusters/{}/buckets/{}", replication.cluster, replication.target),
        "status": activity(replication, status),
        "pauseRequested": replication.is_paused(),
        "replicationType": "xmem",
        "continuous": true,
        "filterExpression": chosen.text("filterExpression"),
        "filterDeletion": chosen.flag("filterDeletion"),
        "filterExpiration": chosen.flag("filterExpiration"),
        "filterBypassExpiry": chosen.flag("filterBypassExpiry"),
        "filterBinary": chosen.flag("filterBinary"),
        "changesLeft": status.changes_left,
        "docsChecked": sums.looked_up,
        "docsWritten": sums.stored + sums.kept_at_target,
        "maxVBReps": null,
        "errors": errors(status),
        "cancelURI": format!("/controller/cancelXDCR/{id}"),
        "settingsURI": format!("/settings/replications/{id}"),
        "recommendedRefreshPeriod": 10,
        "stuckDocuments": status.stuck,
        "conflictsLogged": status.logged,
        "conflictsNotLogged": status.not_logged,
    })
}

fn activity(replication: &Replication, status: &Status) -> &'static str {
    match status.activity {
        Activity::Paused if replication.is_paused() => "paused",
        Activity::Running if !replication.is_paused() => "running",
        // A pause was requested, but some pipelines are still running.
        Activity::Running => "running",
        _ => "notRunning",
    }
}

fn errors(status: &Status) -> Vec<String> {
    status.errors.iter().map(|(second, text)| format!("{} {text}", date(*second))).collect()
}

/// `GET /pools/default/replicationInfos`.
fn infos(node: &Arc<Node>, _: &HttpRequest) -> HttpReply {
    let Some(service) = node.service::<Xdcr>() else { return form::not_found() };
    let statuses = service.statuses(node);
    let agreed = record::agreed(node);
    let info = |replication: &Replication| {
        let status = statuses.get(&replication.id).cloned().unwrap_or_default();
        let sums = &status.sums;
        json!({
            "Id": replication.id,
            "StatsMap": {
                "changes_left": status.changes_left,
                "docs_written": sums.stored + sums.kept_at_target,
                "docs_checked": sums.looked_up,
                "docs_processed": sums.done,
                "docs_filtered": sums.filtered,
                "docs_cloned": sums.cloned,
                "true_conflicts_detected": sums.conflicts,
                "docs_failed_cr_source": sums.kept_at_source,
                "docs_failed_cr_target": sums.kept_at_target,
                "docs_received_from_dcp": sums.received,
                "num_checkpoints": sums.checkpoints,
                "size_rep_queue": status.window_bytes,
            },
            "ErrorList": status.errors.iter().map(|(second, text)| {
                json!({"Time": u64::from(*second) * 1_000_000_000, "ErrorMsg": text})
            }).collect::<Vec<_>>(),
        })
    };
    form::ok(&Value::Array(agreed.replications.iter().map(info).collect()))
}

/// Formats seconds since the Unix epoch as date and time in UTC.
fn date(unix_s: u32) -> String {
    let (days, second) = (unix_s / 86_400, unix_s % 86_400);
    // Days since 1 March of year 0: a year then ends with the leap day. Source: Howard Hinnant, chrono-compatible
    // low-level date algorithms.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let date = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era * 400 + year + u32::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{date:02} {hour:02}:{minute:02}:{second:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_shown_as_dates() {
        for (second, text) in [
            (0, "1970-01-01 00:00:00"),
            (951_782_399, "2000-02-28 23:59:59"),
            (951_782_400, "2000-02-29 00:00:00"),
            (1_800_000_000, "2027-01-15 08:00:00"),
        ] {
            assert_eq!(date(second), text);
        }
    }

    #[test]
    fn a_replication_is_shown_as_a_task() {
        let replication = Replication {
            id: "c1/a/b".to_owned(),
            uid: "u".to_owned(),
            source: "a".to_owned(),
            source_uuid: "s".to_owned(),
            cluster: "c1".to_owned(),
            target: "b".to_owned(),
            target_uuid: "t".to_owned(),
            restream: 0,
            settings: [("pauseRequested".to_owned(), json!(true))].into(),
        };
        let mut status = Status { activity: Activity::Paused, ..Status::default() };
        status.note(0, "it broke".to_owned());
        let task = describe(&replication, &status);
        assert_eq!(task["status"], "paused");
        assert_eq!(task["cancelURI"], "/controller/cancelXDCR/c1%2Fa%2Fb");
        assert_eq!(task["target"], "/remoteClusters/c1/buckets/b");
        assert_eq!(task["errors"], json!(["1970-01-01 00:00:00 it broke"]));
        status.activity = Activity::Running;
        assert_eq!(describe(&replication, &status)["status"], "running", "something still goes");
    }
}
