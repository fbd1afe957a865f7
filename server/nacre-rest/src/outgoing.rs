//! Exceptions to the targets that functions and plugins may not send requests to by default: `/settings/outgoingHttp`.
//!
//! ```text
//! GET   {"allow": ["127.0.0.0/8", "hooks.example:8080"]}
//! POST  allow=127.0.0.0/8,hooks.example:8080          the whole list; empty for none
//! ```

use super::Call;
use super::body::{Reply, invalid, ok};
use super::routes::{ADMINISTER, READ, Route, get, post, ready};
use nacre_cluster::{Change, ClusterChange, OutgoingRule};
use serde_json::{Value, json};

const PATH: &str = "/settings/outgoingHttp";

pub(super) const ROUTES: &[Route] = &[
    get(PATH, READ, |call| ready(Ok(ok(&settings(&call.node.cluster().outgoing_http))))),
    post(PATH, ADMINISTER, |call| Box::pin(set(call))),
];

async fn set(call: Call) -> Result<Reply, Reply> {
    let allowed = read(&call.form())?;
    let cluster = call.change(Change::Cluster(ClusterChange::SetOutgoingHttp { allowed })).await?;
    Ok(ok(&settings(&cluster.outgoing_http)))
}

fn settings(rules: &[OutgoingRule]) -> Value {
    json!({"allow": rules.iter().map(ToString::to_string).collect::<Vec<_>>()})
}

fn read(form: &[(String, String)]) -> Result<Vec<OutgoingRule>, Reply> {
    if let Some((field, _)) = form.iter().find(|(field, _)| field != "allow") {
        return Err(invalid(field, "Unsupported key"));
    }
    let (_, list) = form.first().ok_or_else(|| invalid("allow", "The value must be supplied"))?;
    let entries = list.split(',').map(str::trim).filter(|entry| !entry.is_empty());
    entries
        .map(|entry| entry.parse().map_err(|reason| invalid("allow", format!("{reason}"))))
        .collect()
}
