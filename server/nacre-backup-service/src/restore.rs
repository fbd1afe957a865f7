//! Requests to restore a backup.

use crate::command::{self, Command, Target};
use crate::record::State;
use crate::reply::{Failure, body};
use crate::repository::{self, begin};
use crate::runner::Job;
use crate::{Outcome, endpoint, settings};
use jiff::Timestamp;
use nacre_node::Node;
use nacre_node::service::HttpRequest;
use serde::Deserialize;
use std::sync::Arc;

/// Digits of the id of a backup.
const ID_BYTES: usize = 26;

/// What a request asks for. Members that are not here are refused: a restore that does something else than was asked for is worse than none.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Restore {
    #[serde(default)]
    target: String,
    #[serde(default)]
    user: String,
    #[serde(default)]
    password: String,
    #[serde(default)]
    start: String,
    #[serde(default)]
    end: String,
    #[serde(default)]
    auto_create_buckets: bool,
    #[serde(default)]
    auto_remove_collections: bool,
    #[serde(default)]
    enable_bucket_config: bool,
    #[serde(default)]
    force_updates: bool,
    #[serde(default)]
    include_data: String,
    #[serde(default)]
    exclude_data: String,
    #[serde(default)]
    filter_keys: String,
    #[serde(default)]
    filter_values: String,
    #[serde(default)]
    map_data: String,
    #[serde(default)]
    replace_ttl: String,
    #[serde(default)]
    replace_ttl_with: String,
    #[serde(default)]
    disable_views: bool,
    #[serde(default)]
    disable_gsi_indexes: bool,
    #[serde(default)]
    disable_ft_indexes: bool,
    /// Nothing of this is in a backup, so that nothing is left out.
    #[serde(default, rename = "disable_ft_alias")]
    _alias: bool,
    #[serde(default)]
    disable_eventing: bool,
    /// Nothing of this is in a backup, so that nothing is left out.
    #[serde(default, rename = "disable_analytics")]
    _analytics: bool,
    /// Nothing of this is in a backup, so that nothing is left out.
    #[serde(default, rename = "disable_cluster_analytics")]
    _cluster_analytics: bool,
    /// Nothing of this is in a backup, so that nothing is left out.
    #[serde(default, rename = "disable_bucket_query")]
    _bucket_query: bool,
    /// Nothing of this is in a backup, so that nothing is left out.
    #[serde(default, rename = "disable_cluster_query")]
    _cluster_query: bool,
    #[serde(default)]
    disable_data: bool,
}

/// `POST …/{state}/{id}/restore`.
pub(crate) fn restore(node: &Arc<Node>, request: &HttpRequest, state: State) -> Outcome {
    let restore: Restore = body(request)?;
    let options = restore.options()?;
    let (repository, _) = repository::find(node, request, state)?;
    let target = restore.target(node)?;
    let uuid = crate::runner::own_uuid(&node.cluster(), node).unwrap_or_default();
    let mut command = Command::new(["restore", "--quiet"])
        .with(format!("--threads={}", settings::own_threads(node, &uuid)));
    command.arguments.extend(options);
    let command = command.with("--").with(repository.place()).with(restore.end());
    let store = endpoint::variables(node, &repository.cloud).map_err(Failure::bad_request)?;
    let command = command.on(&target).in_store(&store);
    begin(node, &repository, Job { kind: "RESTORE", command })
}

impl Restore {
    /// The cluster that is restored, and the login there: that of the service may not write.
    fn target(&self, node: &Node) -> Result<Target, Failure> {
        if self.user.is_empty() || self.password.is_empty() {
            return Err(Failure::bad_request("user and password of the target are needed"));
        }
        let url = match &*self.target {
            "" => command::own_url(node).map_err(Failure::bad_request)?,
            target => target.to_owned(),
        };
        // A name that begins with @ is one of the contexts of a person.
        if url.starts_with('@') || url.chars().any(|c| c.is_control() || c.is_whitespace()) {
            return Err(Failure::bad_request("the target is the address of a node"));
        }
        Ok(Target { url, user: self.user.clone(), password: self.password.clone() })
    }

    /// The backup to restore.
    fn end(&self) -> &str {
        if self.end.is_empty() { "latest" } else { &self.end }
    }

    /// The options of the command.
    fn options(&self) -> Result<Vec<String>, Failure> {
        let refused = |message: &str| Err(Failure::bad_request(message));
        let is_id = |text: &str| {
            text.len() == ID_BYTES && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
        };
        if [&self.start, &self.end].iter().any(|name| !name.is_empty() && !is_id(name)) {
            return refused("start and end are names of backups");
        }
        if !self.start.is_empty() && self.start > self.end && !self.end.is_empty() {
            return refused("start is newer than end");
        }
        let mut options = Vec::new();
        if !self.start.is_empty() {
            options.push(format!("--from={}", self.start));
        }
        if self.auto_create_buckets {
            options.push("--create-buckets".to_owned());
        }
        if self.auto_remove_collections {
            options.push("--drop-collections".to_owned());
        }
        if self.enable_bucket_config {
            options.push("--bucket-settings".to_owned());
        }
        if self.force_updates {
            options.push("--force".to_owned());
        }
        options.extend(self.definitions());
        if self.disable_data {
            options.push("--no-data".to_owned());
        }
        for (name, text) in [
            ("include", &self.include_data),
            ("exclude", &self.exclude_data),
            ("mapping", &self.map_data),
        ] {
            let listed = text.split(',').filter(|one| !one.is_empty());
            options.extend(listed.map(|one| format!("--{name}={one}")));
        }
        for (name, text) in [("keys", &self.filter_keys), ("values", &self.filter_values)] {
            if !text.is_empty() {
                options.push(format!("--filter-{name}={text}"));
            }
        }
        options.extend(self.expiry()?);
        Ok(options)
    }

    /// Returns the options for the expiry of documents.
    ///
    /// # Errors
    /// The member that is invalid.
    fn expiry(&self) -> Result<Vec<String>, Failure> {
        let documents = match &*self.replace_ttl {
            "" | "none" if self.replace_ttl_with.is_empty() => return Ok(Vec::new()),
            kind @ ("all" | "expired") => kind,
            _ => {
                return Err(Failure::bad_request(
                    "invalid replace_ttl: expected none, all or expired",
                ));
            }
        };
        let expiry = match &*self.replace_ttl_with {
            "0" => "none".to_owned(),
            time => match time.parse::<Timestamp>() {
                Ok(time) => time.to_string(),
                Err(_) => {
                    let reason = "replace_ttl_with is a time as 2027-01-31T12:00:00Z, or 0";
                    return Err(Failure::bad_request(reason));
                }
            },
        };
        Ok(vec![format!("--ttl={expiry}"), format!("--ttl-for={documents}")])
    }

    /// Returns the option for the kinds of definitions to restore; `None` if all are disabled.
    fn definitions(&self) -> Option<String> {
        let kinds = [
            (self.disable_views, "views"),
            (self.disable_gsi_indexes, "indexes"),
            (self.disable_ft_indexes, "search"),
            (self.disable_eventing, "functions"),
        ];
        let wanted = kinds.iter().filter(|(is_disabled, _)| !is_disabled);
        let wanted: Vec<&str> = wanted.map(|(_, kind)| *kind).collect();
        match wanted.len() {
            0 => None,
            count if count == kinds.len() => Some("--definitions".to_owned()),
            _ => Some(format!("--definitions={}", wanted.join(","))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(text: &str) -> Result<Vec<String>, String> {
        let restore: Restore = serde_json::from_str(text).map_err(|error| error.to_string())?;
        restore.options().map_err(|failure| failure.message)
    }

    #[test]
    fn members_become_options() {
        assert_eq!(options("{}"), Ok(vec!["--definitions".to_owned()]));
        let all = r#"{"auto_create_buckets":true,"auto_remove_collections":true,"enable_bucket_config":true,"force_updates":true,"map_data":"a=b,a.s.c=b.s.c",
            "include_data":"a,b.s","exclude_data":"a.s.d","filter_keys":"^a,b","filter_values":"x$",
            "replace_ttl":"all","replace_ttl_with":"0","disable_views":true,
            "disable_gsi_indexes":true,"disable_ft_indexes":true,"disable_eventing":true}"#;
        let expected = [
            "--create-buckets",
            "--drop-collections",
            "--bucket-settings",
            "--force",
            "--include=a",
            "--include=b.s",
            "--exclude=a.s.d",
            "--mapping=a=b",
            "--mapping=a.s.c=b.s.c",
            "--filter-keys=^a,b",
            "--filter-values=x$",
            "--ttl=none",
            "--ttl-for=all",
        ];
        assert_eq!(options(all).unwrap(), expected);
        let some = r#"{"disable_views":true,"disable_eventing":true,"disable_data":true}"#;
        assert_eq!(options(some).unwrap(), ["--definitions=indexes,search", "--no-data"]);
        let range = r#"{"start":"01J00000000000000000000001","end":"01J00000000000000000000002"}"#;
        let expected = ["--from=01J00000000000000000000001", "--definitions"];
        assert_eq!(options(range).unwrap(), expected);
        let expired = r#"{"replace_ttl":"expired","replace_ttl_with":"2027-01-31T13:00:00+01:00"}"#;
        let expected = ["--definitions", "--ttl=2027-01-31T12:00:00Z", "--ttl-for=expired"];
        assert_eq!(options(expired).unwrap(), expected);
    }

    #[test]
    fn unsupported_options_of_a_restore_are_refused() {
        for (words, text) in [
            ("replace_ttl_with is a time", r#"{"replace_ttl":"expired"}"#),
            ("invalid replace_ttl", r#"{"replace_ttl":"some","replace_ttl_with":"0"}"#),
            ("invalid replace_ttl", r#"{"replace_ttl_with":"0"}"#),
            ("names of backups", r#"{"end":"--force"}"#),
            ("names of backups", r#"{"start":"2026-11-01"}"#),
            (
                "start is newer than end",
                r#"{"start":"01J00000000000000000000002","end":"01J00000000000000000000001"}"#,
            ),
            ("unknown field", r#"{"force":true}"#),
        ] {
            let refused = options(text).unwrap_err();
            assert!(refused.contains(words), "{text}: {refused}");
        }
    }
}
