//! Replications and their settings: `/controller/createReplication`, `/controller/cancelXDCR`, `/settings/replications`.

use crate::conflict_log::LogRules;
use crate::form::{self, Form, ok, refused, wrapped};
use crate::mapping::Rules;
use crate::plan::{expression_of, resolution_name};
use crate::record::{self, Agreed, Reference, Replication, Write};
use crate::settings::{self, Chosen, Scope, Values};
use crate::target::{Management, Target, Unusable};
use nacre_auth::{Keyspace, Privilege};
use nacre_cluster::{Bucket, Cluster};
use nacre_node::service::{HttpReply, HttpRequest};
use nacre_node::{Error, Node};
use serde_json::{Value, json};
use std::sync::Arc;

/// Response for a replication that does not exist. Source: Couchbase.
const NOT_FOUND: &str = "requested resource not found";
/// Name of the conflict log setting.
const LOGGING: &str = "conflictLogging";
/// Name of the setting that leaves received versions to their own clusters.
const OWN_ONLY: &str = "forwardLocalOnly";
/// Nanoseconds of an hour.
const HOUR_NS: u64 = 3_600_000_000_000;

/// Why the attribute of Sync Gateway cannot be handled.
const MOBILE: &str = "only Off is supported: nacre does not keep the attribute _sync of the target apart from that of the source";
/// Why merge functions are not called.
const MERGE_FUNCTIONS: &str =
    "merge functions are not supported: deploy a plugin that resolves the conflicts of the bucket";
/// Why collections are not mirrored.
const MIRRORING: &str =
    "only false is supported: a replication never creates collections at the target";
/// Why a replication is not paused by its log.
const PAUSED_BY_LOG: &str = "only 0 is supported: conflicts never pause a replication";

/// Settings that select deletions and expirations by the expression, with the switch that each refines.
const SELECTIONS: [(&str, &str); 2] = [
    ("filterDeletionsWithExpression", "filterDeletion"),
    ("filterExpirationsWithExpression", "filterExpiration"),
];

/// `POST /controller/createReplication`.
pub(super) fn create(node: &Arc<Node>, request: &HttpRequest) -> HttpReply {
    make(node, request).unwrap_or_else(|reply| reply)
}

fn make(node: &Arc<Node>, request: &HttpRequest) -> Result<HttpReply, HttpReply> {
    let form = form::read(request)?;
    node.catch_up();
    let cluster = node.cluster();
    let agreed = record::agreed_of(node, &cluster);
    let (source, target, reference) = places(&form, &agreed)?;
    let bucket = cluster.buckets.get(&source).ok_or_else(|| {
        let reason = format!("Error validating source bucket '{source}'. err=Bucket doesn't exist");
        wrapped("fromBucket", reason)
    })?;
    let mut values = agreed.defaults.clone();
    values.extend(settings::read(&form, Scope::Replication).map_err(all_wrapped)?);
    values.retain(|name, _| name != "goMaxProcs" && name != "goGC");
    check(&Chosen(values.clone())).map_err(|(field, reason)| wrapped(field, reason))?;
    let there = look(reference, &target)?;
    check_pair(&cluster.uuid, bucket, &there)?;
    let chosen = Chosen(values.clone());
    check_clock(node, &source, &chosen).map_err(|reason| wrapped("fromBucket", reason))?;
    let keeps = bucket.settings.histories_since.is_some() && there.histories_since.is_some();
    let with_histories = |is_wanted: bool| match is_wanted && !keeps {
        true => Err(WITHOUT_HISTORIES.to_owned()),
        false => Ok(()),
    };
    with_histories(chosen.flag(OWN_ONLY)).map_err(|reason| wrapped(OWN_ONLY, reason))?;
    check_log(node, &cluster, request, &chosen)
        .and_then(with_histories)
        .map_err(|reason| wrapped(LOGGING, reason))?;
    let id = Replication::id_of(&there.cluster.uuid, &source, &target);
    if agreed.replication(&id).is_some() {
        let reason = "Replication to the same remote cluster and bucket already exists";
        return Err(wrapped("_", reason));
    }
    let answer = ok(&json!({"id": id}));
    if form.get("just_validate").is_some_and(|value| value == "1" || value == "true") {
        return Ok(answer);
    }
    let replication = Replication {
        id,
        uid: node.new_uuid(),
        source,
        source_uuid: bucket.uuid.clone(),
        cluster: there.cluster.uuid,
        target,
        target_uuid: there.uuid,
        restream: 0,
        settings: values,
    };
    let put = record::put(node, &cluster, &Write::Replication(&replication));
    match put {
        Err(Error::Refused(refusal)) => Err(wrapped("_", refusal.to_string())),
        Err(error) => Err(refused(&error)),
        Ok(()) => Ok(answer),
    }
}

/// Returns the buckets and the reference that a form names.
fn places<'a>(
    form: &Form,
    agreed: &'a Agreed,
) -> Result<(String, String, &'a Reference), HttpReply> {
    let mut wrong = serde_json::Map::new();
    let mut required = |field: &str, reason: &str| {
        let value = form.get(field).filter(|value| !value.is_empty()).cloned();
        if value.is_none() {
            wrong.insert(field.to_owned(), json!(reason));
        }
        value.unwrap_or_default()
    };
    let source = required("fromBucket", "source bucket is missing");
    let target = required("toBucket", "target bucket is missing");
    let to_cluster = required("toCluster", "target cluster is missing");
    let kind = required("replicationType", "replicationType is missing");
    if !kind.is_empty() && kind != "continuous" {
        wrong.insert("replicationType".to_owned(), json!("it must be continuous"));
    }
    let reference = agreed.reference(&to_cluster);
    if reference.is_none() && !to_cluster.is_empty() {
        wrong.insert("toCluster".to_owned(), json!("cannot find remote cluster"));
    }
    match reference {
        Some(reference) if wrong.is_empty() => Ok((source, target, reference)),
        _ => Err(form::reply(400, &json!({"errors": wrong}))),
    }
}

fn all_wrapped(wrong: Vec<(String, String)>) -> HttpReply {
    form::reply(400, &json!({"errors": as_object(wrong)}))
}

fn as_object(wrong: Vec<(String, String)>) -> Value {
    Value::Object(wrong.into_iter().map(|(field, reason)| (field, json!(reason))).collect())
}

/// Reads the description of the target's bucket.
fn look(reference: &Reference, target: &str) -> Result<Target, HttpReply> {
    let management =
        Management::new(reference, &[]).map_err(|reason| wrapped("toCluster", reason))?;
    management.bucket(target).map_err(|unusable| match unusable {
        Unusable::NoBucket(_) => {
            let reason =
                format!("Error validating target bucket '{target}'. err=Bucket doesn't exist");
            wrapped("toBucket", reason)
        }
        other => wrapped("toCluster", format!("cannot reach the remote cluster: {other}")),
    })
}

/// Refuses a pair of buckets between which replication is impossible.
fn check_pair(cluster: &str, source: &Bucket, target: &Target) -> Result<(), HttpReply> {
    if target.cluster.uuid == cluster && target.uuid == source.uuid {
        return Err(wrapped(
            "toBucket",
            "Replication from a bucket to the same bucket is not allowed",
        ));
    }
    if resolution_name(source.settings.conflict_resolution) != target.resolution {
        let reason = "Replication between buckets with different ConflictResolutionType setting is not allowed";
        return Err(wrapped("toBucket", reason));
    }
    Ok(())
}

/// Refuses settings that contradict each other or that are not implemented.
fn check(chosen: &Chosen) -> Result<(), (&'static str, String)> {
    if chosen.flag("collectionsExplicitMapping") && chosen.flag("collectionsMigrationMode") {
        let reason = "explicit mapping and migration exclude each other".to_owned();
        return Err(("collectionsMigrationMode", reason));
    }
    Rules::read(chosen).map_err(|reason| ("colMappingRules", reason))?;
    let expression = expression_of(chosen).map_err(|reason| ("filterExpression", reason))?;
    let is_about_keys = expression.is_some_and(|it| it.is_about_keys());
    for (field, switch) in SELECTIONS {
        if chosen.flag(field) && !(chosen.flag(switch) && is_about_keys) {
            let reason = format!(
                "it needs {switch}=true, and a filterExpression that is about META().id only"
            );
            return Err((field, reason));
        }
    }
    let has_functions = !chosen.object("mergeFunctionMapping").is_empty();
    for (field, is_set, reason) in [
        ("mobile", chosen.text("mobile") != "Off", MOBILE),
        ("mergeFunctionMapping", has_functions, MERGE_FUNCTIONS),
        ("collectionsMirroringMode", chosen.flag("collectionsMirroringMode"), MIRRORING),
        ("cLogPauseReplThreshold", chosen.number("cLogPauseReplThreshold") > 0, PAUSED_BY_LOG),
    ] {
        if is_set {
            return Err((field, reason.to_owned()));
        }
    }
    LogRules::read(chosen).map(drop).map_err(|reason| (LOGGING, reason))
}

/// Refuses a source with versions of the future, which would win conflicts until then. Looks at the vBuckets of this node.
fn check_clock(node: &Node, source: &str, chosen: &Chosen) -> Result<(), String> {
    let hours = chosen.number("preCheckCasDriftThresholdHours");
    let Some(bucket) = node.bucket(source).filter(|_| hours > 0) else { return Ok(()) };
    let mut newest_ns = 0;
    for vbid in bucket.active_vbids().iter() {
        let cas_ns = bucket.active(vbid).map_or(0, |vbucket| vbucket.max_cas().unix_ns());
        newest_ns = newest_ns.max(cas_ns);
    }
    if newest_ns <= node.now().unix_ns.saturating_add(hours.saturating_mul(HOUR_NS)) {
        return Ok(());
    }
    Err(format!(
        "the bucket has versions more than {hours} h ahead of the clock (preCheckCasDriftThresholdHours)"
    ))
}

/// Response for a conflict log when one of the buckets keeps no histories.
const WITHOUT_HISTORIES: &str =
    "both buckets must keep histories of versions (enableCrossClusterVersioning)";

/// Refuses a log collection that does not exist or that the user may not write to. Returns true if conflicts are logged.
fn check_log(
    node: &Node,
    cluster: &Cluster,
    request: &HttpRequest,
    chosen: &Chosen,
) -> Result<bool, String> {
    let Some(rules) = LogRules::read(chosen)? else { return Ok(false) };
    for place in rules.places() {
        let (scope, collection) = &place.path;
        let keyspace = Keyspace {
            bucket: Some(&place.bucket),
            scope: Some(scope),
            collection: Some(collection),
        };
        // Check the privilege first, so that an unprivileged user cannot probe which collections exist.
        if request.login.is_some() && !request.may(node, Privilege::WriteData, keyspace) {
            return Err(format!("you may not write to {}.{}", place.bucket, place.collection()));
        }
        let bucket = cluster.buckets.get(&place.bucket);
        let bucket = bucket.ok_or_else(|| format!("there is no bucket {}", place.bucket))?;
        if bucket.manifest.collection(scope, collection).is_none() {
            return Err(format!("there is no collection {}.{}", place.bucket, place.collection()));
        }
    }
    Ok(true)
}

/// `POST` and `DELETE /controller/cancelXDCR/{id}`.
pub(super) fn cancel(node: &Arc<Node>, request: &HttpRequest) -> HttpReply {
    let id = &request.parameters[0];
    let cancelled = record::change(node, |seen, agreed| {
        if agreed.replication(id).is_none() {
            return Ok(wrapped("_", NOT_FOUND));
        }
        record::put(node, seen, &Write::NoReplication(id))?;
        Ok(ok(&json!([])))
    });
    cancelled.unwrap_or_else(|error| refused(&error))
}

/// `GET /settings/replications`.
pub(super) fn defaults(node: &Arc<Node>, _: &HttpRequest) -> HttpReply {
    let agreed = record::agreed(node);
    ok(&settings::describe(&agreed.defaults, Scope::Defaults))
}

/// `POST /settings/replications`.
pub(super) fn set_defaults(node: &Arc<Node>, request: &HttpRequest) -> HttpReply {
    let form = match form::read(request) {
        Ok(form) => form,
        Err(reply) => return reply,
    };
    let values = match settings::read(&form, Scope::Defaults) {
        Ok(values) => values,
        Err(wrong) => return form::reply(400, &as_object(wrong)),
    };
    let set = record::change(node, |seen, agreed| {
        let mut defaults = agreed.defaults;
        defaults.extend(values.clone());
        record::put(node, seen, &Write::Defaults(&defaults))?;
        Ok(ok(&settings::describe(&defaults, Scope::Defaults)))
    });
    set.unwrap_or_else(|error| refused(&error))
}

/// `GET /settings/replications/{id}`.
pub(super) fn settings(node: &Arc<Node>, request: &HttpRequest) -> HttpReply {
    let agreed = record::agreed(node);
    match agreed.replication(&request.parameters[0]) {
        Some(replication) => ok(&settings::describe(&replication.settings, Scope::Replication)),
        None => form::reply(404, &json!(NOT_FOUND)),
    }
}

/// `POST /settings/replications/{id}`.
pub(super) fn set(node: &Arc<Node>, request: &HttpRequest) -> HttpReply {
    let form = match form::read(request) {
        Ok(form) => form,
        Err(reply) => return reply,
    };
    let values = match settings::read(&form, Scope::Replication) {
        Ok(values) => values,
        Err(wrong) => return form::reply(400, &as_object(wrong)),
    };
    let id = &request.parameters[0];
    let set = record::change(node, |seen, agreed| {
        let Some(known) = agreed.replication(id) else {
            return Ok(form::reply(404, &json!(NOT_FOUND)));
        };
        match changed(known, &values) {
            Err((field, reason)) => Ok(form::invalid(field, reason)),
            Ok(replication) => {
                let source = seen.buckets.get(&replication.source);
                let keeps = source.is_some_and(|it| it.settings.histories_since.is_some());
                if values.contains_key(OWN_ONLY) && replication.chosen().flag(OWN_ONLY) && !keeps {
                    return Ok(form::invalid(OWN_ONLY, WITHOUT_HISTORIES));
                }
                if values.contains_key(LOGGING) {
                    match check_log(node, seen, request, &replication.chosen()) {
                        Err(reason) => return Ok(form::invalid(LOGGING, reason)),
                        Ok(true) if !keeps => return Ok(form::invalid(LOGGING, WITHOUT_HISTORIES)),
                        Ok(_) => {}
                    }
                }
                record::put(node, seen, &Write::Replication(&replication))?;
                Ok(ok(&settings::describe(&replication.settings, Scope::Replication)))
            }
        }
    });
    set.unwrap_or_else(|error| refused(&error))
}

/// Returns a replication with other settings. Increases `restream` if documents must be sent again, for example after a
/// filter change.
fn changed(known: &Replication, values: &Values) -> Result<Replication, (&'static str, String)> {
    let mut replication = known.clone();
    // Earlier versions stored this setting, which never had an effect.
    replication.settings.remove("collectionsMirroringMode");
    replication.settings.extend(values.clone());
    check(&replication.chosen())?;
    let expression = |replication: &Replication| replication.chosen().text("filterExpression");
    let skips = values.get("filterSkipRestream");
    if values.contains_key("filterExpression") && skips.is_none() {
        let reason = "filterExpression and filterSkipRestream are changed together".to_owned();
        return Err(("filterSkipRestream", reason));
    }
    if expression(known) != expression(&replication) && skips == Some(&json!(false)) {
        replication.restream += 1;
    }
    // Checkpoints record the mapping of collections, but not which documents of a collection were sent.
    let migration = |of: &Replication| {
        let chosen = of.chosen();
        let is_one = chosen.flag("collectionsMigrationMode");
        is_one.then(|| chosen.object("colMappingRules"))
    };
    if migration(known) != migration(&replication) {
        replication.restream += 1;
    }
    // Documents that the earlier filter dropped are sent now, unless the request says otherwise.
    let (before, after) = (known.chosen(), replication.chosen());
    let lets_more = ["filterDeletion", "filterExpiration", "filterBinary", OWN_ONLY]
        .iter()
        .any(|name| before.flag(name) && !after.flag(name));
    let selects_more = SELECTIONS
        .iter()
        .any(|(name, switch)| before.flag(switch) && !before.flag(name) && after.flag(name));
    if (lets_more || selects_more) && skips != Some(&json!(true)) {
        replication.restream += 1;
    }
    Ok(replication)
}

/// `GET /pools/default/replications`.
pub(super) fn list(node: &Arc<Node>, _: &HttpRequest) -> HttpReply {
    let agreed = record::agreed(node);
    let describe = |replication: &Replication| {
        json!({
            "id": replication.id,
            "sourceBucketName": replication.source,
            "sourceBucketUUID": replication.source_uuid,
            "targetClusterUUID": replication.cluster,
            "targetBucketName": replication.target,
            "targetBucketUUID": replication.target_uuid,
            "internalId": replication.uid,
            "settings": settings::describe(&replication.settings, Scope::Replication),
        })
    };
    ok(&Value::Array(agreed.replications.iter().map(describe).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(fields: &[(&str, Value)]) -> Values {
        fields.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect()
    }

    #[test]
    fn a_repeated_request_is_sent_from_the_beginning() {
        let known =
            changed(&Replication::sample(), &values(&[("filterDeletion", json!(true))])).unwrap();
        assert_eq!(known.restream, 0);
        let later = changed(&known, &values(&[("filterDeletion", json!(false))])).unwrap();
        assert_eq!(later.restream, 1);
        let skips =
            values(&[("filterDeletion", json!(false)), ("filterSkipRestream", json!(true))]);
        assert_eq!(changed(&known, &skips).unwrap().restream, 0);
        let paused = changed(&later, &values(&[("pauseRequested", json!(true))])).unwrap();
        assert_eq!(paused.restream, 1);
        let alone = changed(&later, &values(&[("filterExpression", json!(""))])).unwrap_err();
        assert_eq!(alone.0, "filterSkipRestream");
        let own = changed(&Replication::sample(), &values(&[(OWN_ONLY, json!(true))])).unwrap();
        assert_eq!(own.restream, 0);
        assert_eq!(changed(&own, &values(&[(OWN_ONLY, json!(false))])).unwrap().restream, 1);
    }

    #[test]
    fn deletions_are_selected_by_an_expression_about_keys() {
        let selects = ("filterDeletionsWithExpression", json!(true));
        let drops = ("filterDeletion", json!(true));
        let about_keys = ("filterExpression", json!(r#"REGEXP_CONTAINS(META().id, "^a")"#));
        let about_fields = ("filterExpression", json!("a = 1"));
        for wrong in [
            vec![selects.clone()],
            vec![selects.clone(), drops.clone()],
            vec![selects.clone(), about_keys.clone()],
            vec![selects.clone(), drops.clone(), about_fields],
        ] {
            let refused = check(&Chosen(values(&wrong))).unwrap_err();
            assert_eq!(refused.0, "filterDeletionsWithExpression", "{wrong:?}");
        }
        let skips = ("filterSkipRestream", json!(true));
        let known = values(&[drops, about_keys, skips.clone()]);
        let known = changed(&Replication::sample(), &known).unwrap();
        let selected = changed(&known, &values(std::slice::from_ref(&selects))).unwrap();
        assert_eq!(selected.restream, known.restream + 1, "earlier deletions are sent");
        let selected = changed(&known, &values(&[selects, skips])).unwrap();
        assert_eq!(selected.restream, known.restream);
    }

    #[test]
    fn settings_whose_effect_is_missing_are_refused_by_name() {
        for (name, value) in [
            ("mobile", json!("Active")),
            ("mergeFunctionMapping", json!({"default": "merge"})),
            ("collectionsMirroringMode", json!(true)),
            ("cLogPauseReplThreshold", json!(1)),
        ] {
            let refused = check(&Chosen(values(&[(name, value)]))).unwrap_err();
            assert_eq!(refused.0, name);
            assert!(refused.1.contains("supported"), "{}", refused.1);
        }
        assert_eq!(check(&Chosen(Values::new())), Ok(()));
    }

    #[test]
    fn a_refused_setting_of_an_earlier_version_prevents_no_change() {
        let mirrors = values(&[("collectionsMirroringMode", json!(true))]);
        let known = Replication { settings: mirrors.clone(), ..Replication::sample() };
        let pause = values(&[("pauseRequested", json!(true))]);
        assert_eq!(changed(&known, &pause).unwrap().settings, pause);
        assert_eq!(changed(&known, &mirrors).unwrap_err().0, "collectionsMirroringMode");
    }

    #[test]
    fn a_missing_field_of_a_request_is_named() {
        let agreed = Agreed::default();
        let given = |fields: &[(&str, &str)]| {
            let form = fields.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
            String::from_utf8(places(&form, &agreed).unwrap_err().body).unwrap()
        };
        insta::assert_snapshot!(given(&[("toCluster", "x"), ("replicationType", "once")]), @r#"{"errors":{"fromBucket":"source bucket is missing","replicationType":"it must be continuous","toBucket":"target bucket is missing","toCluster":"cannot find remote cluster"}}"#);
    }
}
