//! `GET /_nacre/stream`: a stream of server-sent events with each second's measurements of the nodes, and with changes of the
//! agreed state.
//!
//! ```text
//! event: snapshot  data: {"t":1764340000000,"keys":["cpu","reads:dev"],"nodes":{"127.0.0.1:8091":[3.5,12]},"missing":[]}
//! event: delta     data: {"t":…,"nodes":{"127.0.0.1:8091":[3.1,14]},"missing":[]}      values in the order of the last keys
//! event: revision  data: {"rev":41}
//! ```
//!
//! A browser has one stream, whatever it shows. A client that reads slowly receives the newest frame and skips the ones in
//! between.

use super::super::Call;
use super::super::body::Reply;
use super::super::pieces::{Sender, pieces};
use super::super::streams::{Kind, STALLED_MAX};
use super::sessions;
use http_body_util::BodyExt;
use hyper::Response;
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use nacre_auth::{BrowserSession, Keyspace, Login, Privilege};
use nacre_console::{Console, Frame};
use nacre_node::Node;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

pub(super) const PATH: &str = "/_nacre/stream";

/// Longest silence of a stream. It is also the longest time until a stream ends after its node has stopped measuring.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// Time after which a client reconnects, in milliseconds.
const RETRY_MS: u32 = 2_000;

pub(super) async fn answer(call: Call) -> Result<Reply, Reply> {
    let place = call.desk().enter(Kind::Watch)?;
    let (sender, body) = pieces();
    let watcher = Watcher {
        node: Arc::clone(&call.node),
        login: call.identity.clone(),
        session: call.session.clone(),
        sender,
        keys: Vec::new(),
        rev: None,
    };
    tokio::spawn(async move {
        let _place = place;
        watcher.run().await;
    });
    let mut reply = Response::new(body.boxed());
    let headers = reply.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(reply)
}

/// A client of the stream.
struct Watcher {
    node: Arc<Node>,
    login: Option<Login>,
    session: Option<BrowserSession>,
    sender: Sender,
    /// Names of the values, as last sent to the client.
    keys: Vec<String>,
    /// Revision of the agreed state that was last sent to the client.
    rev: Option<u64>,
}

impl Watcher {
    async fn run(mut self) {
        let node = Arc::clone(&self.node);
        let Some(console) = node.service::<Console>() else { return self.sender.finish() };
        let mut frames = console.frames();
        if !self.send(format!("retry: {RETRY_MS}\n\n")).await {
            return;
        }
        loop {
            console.watch(&node);
            if !self.may_watch() {
                return self.sender.finish();
            }
            let frame = Arc::clone(&frames.borrow_and_update());
            let mut text = self.revision();
            if frame.unix_ms > 0 {
                text.push_str(&self.event(&frame));
            }
            if text.is_empty() {
                text.push_str(":\n\n");
            }
            if !self.send(text).await {
                return;
            }
            tokio::select! {
                changed = frames.changed() => if changed.is_err() { return self.sender.finish() },
                () = self.sender.closed() => return,
                () = tokio::time::sleep(HEARTBEAT) => {}
            }
        }
    }

    async fn send(&self, text: String) -> bool {
        tokio::time::timeout(STALLED_MAX, self.sender.send(text)).await.unwrap_or(false)
    }

    /// Returns true as long as the login, the session and the privilege are valid. Requests that a page makes by itself do not
    /// renew a session. A stream therefore ends with the session with which it began, and the page starts a new stream with the
    /// renewed session.
    fn may_watch(&self) -> bool {
        let users = self.node.users();
        let user = self.login.as_ref().and_then(|login| users.holder(login));
        let may = user.is_some_and(|user| user.may(Privilege::ReadStats, Keyspace::default()));
        drop(users);
        may && self.session.as_ref().is_none_or(|session| sessions::counts(&self.node, session))
    }

    /// Returns an event with the revision of the agreed state if it has changed, else an empty text.
    fn revision(&mut self) -> String {
        let rev = self.node.cluster().rev;
        match self.rev.replace(rev) == Some(rev) {
            true => String::new(),
            false => format!("event: revision\ndata: {}\n\n", json!({"rev": rev})),
        }
    }

    fn event(&mut self, frame: &Frame) -> String {
        let names = frame.nodes.values().flatten().map(|(name, _)| name.as_str());
        let names: BTreeSet<&str> = names.collect();
        let is_same = self.keys.iter().map(String::as_str).eq(names.iter().copied());
        if !is_same {
            self.keys = names.into_iter().map(str::to_owned).collect();
        }
        let nodes: Map<String, Value> =
            frame.nodes.iter().map(|(node, values)| (node.clone(), self.row(values))).collect();
        let mut data = json!({"t": frame.unix_ms, "nodes": nodes, "missing": frame.missing});
        if !is_same {
            data["keys"] = json!(self.keys);
        }
        format!("event: {}\ndata: {data}\n\n", if is_same { "delta" } else { "snapshot" })
    }

    /// Returns the values in the order of the keys; null for a value that a node has not measured.
    fn row(&self, values: &[(String, f64)]) -> Value {
        let of = |key: &String| {
            let value = values.iter().find(|(name, _)| name == key).map(|(_, value)| *value);
            // Three decimals are more than a chart shows.
            json!(value.map(|value| if value.abs() < 1e6 {
                (value * 1e3).round() / 1e3
            } else {
                value.round()
            }))
        };
        self.keys.iter().map(of).collect()
    }
}
