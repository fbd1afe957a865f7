//! `/settings/outgoingHttp`: what functions and plugins may send requests to although it is denied by default.
//!
//! ```text
//! GET   {"allow": ["127.0.0.0/8", "hooks.example:8080"]}
//! POST  allow=127.0.0.0/8,hooks.example:8080          the whole list; empty for none
//! ```

use super::Call;
use super::body::{Reply, invalid, not_found, ok};
use nacre_auth::Privilege;
use nacre_cluster::{Change, OutgoingRule};
use serde_json::{Value, json};

pub(super) async fn route(call: Call) -> Result<Reply, Reply> {
    match call.method.as_str() {
        "GET" => {
            call.require(Privilege::ReadCluster, None)?;
            Ok(ok(&settings(&call.node.cluster().outgoing_http)))
        }
        "POST" => {
            call.require(Privilege::AdministerCluster, None)?;
            let allowed = read(&call.form())?;
            let cluster = call.change(Change::SetOutgoingHttp { allowed }).await?;
            Ok(ok(&settings(&cluster.outgoing_http)))
        }
        _ => Err(not_found()),
    }
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
