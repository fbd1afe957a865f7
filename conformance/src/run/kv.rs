//! Cases for the binary protocol: converts a step to a frame, and checks the reply.

use super::build::Builder;
use super::reply::{SpecReply, fields, lookup_results, mutation_results};
use super::{Target, same_json, shorten};
use crate::case::{Expect, Key, KvCase, KvFile, SpecialKey, Step, Value};
use crate::kv::frame::invalid;
use crate::kv::{FEATURES, KvClient, Reply, Request};
use crate::names;
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

/// The pause before a step is repeated.
const PAUSE: Duration = Duration::from_millis(50);

/// Runs the cases of a file on `client`, which is connected on demand and dropped after an error of the socket.
pub(super) fn play(
    target: &Target,
    group: &str,
    file: &KvFile,
    client: &mut Option<KvClient>,
    done: super::Done<'_>,
) {
    for case in &file.cases {
        if !target.wants(group, &case.name) {
            continue;
        }
        let outcome = play_case(target, case, client);
        let problem = match outcome {
            Ok(problem) => problem,
            Err(error) => {
                *client = None;
                Some(error.to_string())
            }
        };
        done(group, &case.name, problem);
    }
}

fn play_case(
    target: &Target,
    case: &KvCase,
    slot: &mut Option<KvClient>,
) -> io::Result<Option<String>> {
    let client = match slot {
        Some(client) => client,
        None => slot.insert(connect(target)?),
    };
    let builder = Builder {
        prefix: prefix(target, &case.name),
        vbucket_count: client.vbucket_count(),
        collections: client.features().contains(&0x12),
        seen: BTreeMap::new(),
    };
    let mut play = Play { client, builder, cas: Vec::new() };
    let mut problem = None;
    for (index, step) in case.steps.iter().enumerate() {
        let failed = play.step(step).map_err(|error| {
            io::Error::new(error.kind(), format!("step {} {}: {error}", index + 1, step.op))
        })?;
        if let Some(text) = failed {
            problem = Some(format!("step {} {}: {text}", index + 1, step.op));
            break;
        }
    }
    for step in &case.steps {
        play.remove(step)?;
    }
    Ok(problem)
}

pub(super) fn connect(target: &Target) -> io::Result<KvClient> {
    let address = (target.host.as_str(), target.kv_port);
    if target.user.is_empty() {
        let mut client = KvClient::open(address)?;
        client.hello(FEATURES)?;
        client.select_bucket(&target.bucket)?;
        return Ok(client);
    }
    KvClient::connect(address, &target.user, &target.password, &target.bucket)
}

/// Returns the key prefix of a case.
pub(super) fn prefix(target: &Target, name: &str) -> String {
    format!("{name}~{}:", target.run)
}

/// A running case.
struct Play<'c> {
    client: &'c mut KvClient,
    builder: Builder,
    /// All CAS values received so far.
    cas: Vec<u64>,
}

impl Play<'_> {
    /// Runs a step; returns the difference from the expectation, if any.
    fn step(&mut self, step: &Step) -> io::Result<Option<String>> {
        let request = self.builder.request(step)?;
        let end = step.eventually_ms.map(|limit| Instant::now() + Duration::from_millis(limit));
        loop {
            let problem = self.attempt(step, &request)?;
            if problem.is_none() || end.is_none_or(|end| Instant::now() >= end) {
                return Ok(problem);
            }
            std::thread::sleep(PAUSE);
        }
    }

    fn attempt(&mut self, step: &Step, request: &Request) -> io::Result<Option<String>> {
        let opaque = self.client.send(request)?;
        if step.expect.no_reply {
            let fence = Request { opcode: 0x0a, ..Request::default() };
            let fence = self.client.send(&fence)?;
            let reply = self.client.receive()?;
            if reply.opaque == fence {
                return Ok(None);
            }
            self.client.receive()?;
            return Ok(Some(format!(
                "expected no reply, got {}",
                names::status_name(reply.status)
            )));
        }
        let reply = self.client.receive()?;
        if reply.opaque != opaque {
            return Err(invalid("reply to another request"));
        }
        let fields = fields(request.opcode, &reply);
        if let Some(name) = &step.name {
            self.builder.seen.insert(name.clone(), fields.clone());
        }
        let problem = self.judge(&step.expect, request, &reply, &fields)?;
        if reply.cas != 0 && !self.cas.contains(&reply.cas) {
            self.cas.push(reply.cas);
        }
        Ok(problem)
    }

    fn judge(
        &self,
        expect: &Expect,
        request: &Request,
        reply: &Reply,
        fields: &BTreeMap<String, Json>,
    ) -> io::Result<Option<String>> {
        let status = names::status_name(reply.status);
        let wanted: Vec<&str> = match &expect.status {
            Some(names) => names.names().collect(),
            None => vec!["SUCCESS"],
        };
        if !wanted.contains(&status.as_str()) {
            let text = shorten(&reply.text());
            return Ok(Some(format!("expected {}, got {status} {text}", wanted.join(" or "))));
        }
        if let Some(problem) = self.judge_cas(expect.cas.as_deref(), reply.cas)? {
            return Ok(Some(problem));
        }
        if let Some(value) = &expect.value
            && let Some(problem) = self.judge_value(value, &reply.value)?
        {
            return Ok(Some(problem));
        }
        if let Some(key) = &expect.key {
            let key = self.builder.wire_key(0, &self.builder.key(key));
            if key != reply.key {
                let (wanted, got) =
                    (String::from_utf8_lossy(&key), String::from_utf8_lossy(&reply.key));
                return Ok(Some(format!("expected key {wanted:?}, got {got:?}")));
            }
        }
        for (name, wanted) in &expect.fields {
            let got = fields
                .get(name)
                .ok_or_else(|| invalid(&format!("the reply has no {name}: {fields:?}")))?;
            if !self.field_holds(wanted, got)? {
                return Ok(Some(format!("expected {name} {wanted}, got {got}")));
            }
        }
        match &expect.results {
            None => Ok(None),
            Some(wanted) => {
                let got = match request.opcode {
                    0xd0 => lookup_results(&reply.value)?,
                    _ => mutation_results(&reply.value)?,
                };
                self.judge_results(wanted, &got)
            }
        }
    }

    fn judge_cas(&self, wanted: Option<&str>, got: u64) -> io::Result<Option<String>> {
        let holds = match wanted {
            None => true,
            Some("new") => got != 0 && got != u64::MAX && !self.cas.contains(&got),
            Some("zero") => got == 0,
            Some("locked") => got == u64::MAX,
            Some(reference) => self.builder.number(&Json::from(reference))? == got,
        };
        Ok((!holds).then(|| format!("expected CAS {}, got {got:#x}", wanted.unwrap_or("any"))))
    }

    fn judge_value(&self, wanted: &Value, got: &[u8]) -> io::Result<Option<String>> {
        let text = shorten(&String::from_utf8_lossy(got));
        if let Value::Json(wanted) = wanted {
            let wanted = self.builder.resolve(wanted);
            let holds = serde_json::from_slice(got).is_ok_and(|got| same_json(&wanted, &got));
            return Ok((!holds).then(|| format!("expected value {wanted}, got {text}")));
        }
        let wanted = self.builder.bytes(wanted)?;
        let holds = wanted == got;
        let wanted = shorten(&String::from_utf8_lossy(&wanted));
        Ok((!holds).then(|| format!("expected value {wanted}, got {text}")))
    }

    fn judge_results(
        &self,
        wanted: &[crate::case::SpecResult],
        got: &[SpecReply],
    ) -> io::Result<Option<String>> {
        if wanted.len() != got.len() {
            return Ok(Some(format!("expected {} results, got {got:?}", wanted.len())));
        }
        for (number, (wanted, got)) in wanted.iter().zip(got).enumerate() {
            let status = names::status_name(got.status);
            let wanted_status = wanted.status.as_deref().unwrap_or("SUCCESS");
            if status != wanted_status {
                return Ok(Some(format!(
                    "result {number}: expected {wanted_status}, got {status}"
                )));
            }
            if wanted.index.is_some() && wanted.index != got.index {
                let (wanted, got) = (wanted.index, got.index);
                return Ok(Some(format!(
                    "result {number}: expected index {wanted:?}, got {got:?}"
                )));
            }
            if let Some(value) = &wanted.value
                && let Some(problem) = self.judge_value(value, &got.value)?
            {
                return Ok(Some(format!("result {number}: {problem}")));
            }
        }
        Ok(None)
    }

    fn field_holds(&self, wanted: &Json, got: &Json) -> io::Result<bool> {
        let Some((relation, operand)) = wanted.as_object().and_then(|object| object.iter().next())
        else {
            return Ok(same_json(&self.builder.resolve(wanted), got));
        };
        let operand = self.builder.number(operand)?;
        let got = got.as_u64().ok_or_else(|| invalid("a relation needs a number"))?;
        match relation.as_str() {
            "at_least" => Ok(got >= operand),
            "more_than" => Ok(got > operand),
            "other_than" => Ok(got != operand),
            other => Err(invalid(&format!("unknown relation {other}"))),
        }
    }

    /// Removes the document that a step may have created. The lock of a locked document expires by itself.
    fn remove(&mut self, step: &Step) -> io::Result<()> {
        if let Some(key @ Key::Name(_) | key @ Key::Special(SpecialKey::Bytes(_))) = &step.key {
            let key = self.builder.key(key);
            self.client.delete(&key, 0)?;
        }
        Ok(())
    }
}
