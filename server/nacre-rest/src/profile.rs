//! `GET /deployments/{name}/profile?seconds=5`: profiles the calls of a deployment on this node.

use super::Call;
use super::body::{Reply, error_reply, form, reply};
use hyper::StatusCode;
use nacre_plugins_service::Deployment;
use nacre_plugins_service::NodePlugins;
use nacre_sandbox::Reader;
use std::sync::Arc;
use std::time::Duration;

/// Default and longest duration of a profile, in seconds.
const SECONDS: (u64, u64) = (5, 60);
const FAILED: &str = "profile_failed";

/// A running profile. Dropping it ends the profile, for instance when the client disconnects.
struct Counting<'a>(Option<&'a Deployment>);

impl Counting<'_> {
    /// Ends the profiles of the lanes in reverse order of their start, so that another request gets all lanes or none.
    fn end(&mut self) -> String {
        let readers = self.0.take().map_or(&[][..], Deployment::readers);
        readers.iter().rev().map(Reader::end_profile).collect()
    }
}

impl Drop for Counting<'_> {
    fn drop(&mut self) {
        self.end();
    }
}

/// Profiles for some seconds. The answer has one line for each stack, as flame-graph tools read it.
pub(super) async fn profile(call: &Call, name: &str) -> Result<Reply, Reply> {
    let refused = |status, reason: &str| error_reply(status, FAILED, reason);
    let wanted = form(call.query.as_bytes()).into_iter().find(|(name, _)| name == "seconds");
    let seconds = wanted.map_or(Ok(SECONDS.0), |(_, text)| text.parse());
    let seconds = seconds.ok().filter(|seconds| (1..=SECONDS.1).contains(seconds));
    let seconds = seconds.ok_or_else(|| {
        let reason = format!("seconds is a number from 1 to {}", SECONDS.1);
        refused(StatusCode::BAD_REQUEST, &reason)
    })?;
    let deployment: Option<Arc<Deployment>> = call.node.plugins().deployment(name);
    let is_running = |found: &&Deployment| !found.readers().is_empty();
    let Some(deployment) = deployment.as_deref().filter(is_running) else {
        let reason = format!("{name} does not run on this node");
        return Err(refused(StatusCode::CONFLICT, &reason));
    };
    if !deployment.readers().iter().all(Reader::begin_profile) {
        return Err(refused(
            StatusCode::CONFLICT,
            "another profile of it is being taken: try again later",
        ));
    }
    let mut counting = Counting(Some(deployment));
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    Ok(reply(StatusCode::OK, "text/plain; charset=utf-8", counting.end()))
}
