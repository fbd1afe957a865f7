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
    check_log(node, &cluster, request, &chosen)
        .and_then(|is_logged| {
            let keeps =
                bucket.settings.histories_since.is_some() && there.histories_since.is_some();
            if is_logged && !keeps { Err(WITHOUT_HISTORIES.to_owned()) } else { Ok(()) }
        })
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
    expression_of(chosen).map_err(|reason| ("filterExpression", reason))?;
    let absent = |name, is_set: bool| {
        let reason = "it is not supported yet".to_owned();
        if is_set { Err((name, reason)) } else { Ok(()) }
    };
    absent("mobile", chosen.text("mobile") != "Off")?;
    absent("mergeFunctionMapping", !chosen.object("mergeFunctionMapping").is_empty())?;
    LogRules::read(chosen).map(drop).map_err(|reason| (LOGGING, reason))
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
                if values.contains_key(LOGGING) {
                    let source = seen.buckets.get(&replication.source);
                    let keeps = source.is_some_and(|it| it.settings.histories_since.is_some());
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
    let lets_more = ["filterDeletion", "filterExpiration", "filterBinary"]
        .iter()
        .any(|name| known.chosen().flag(name) && !replication.chosen().flag(name));
    if lets_more && skips != Some(&json!(true)) {
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

    fn replication() -> Replication {
        Replication {
            id: "c/a/b".to_owned(),
            uid: "u".to_owned(),
            source: "a".to_owned(),
            source_uuid: "s".to_owned(),
            cluster: "c".to_owned(),
            target: "b".to_owned(),
            target_uuid: "t".to_owned(),
            restream: 0,
            settings: Values::new(),
        }
    }

    fn values(fields: &[(&str, Value)]) -> Values {
        fields.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect()
    }

    #[test]
    fn a_repeated_request_is_sent_from_the_beginning() {
        let known = changed(&replication(), &values(&[("filterDeletion", json!(true))])).unwrap();
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
