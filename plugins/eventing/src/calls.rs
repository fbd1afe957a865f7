//! Converts the calls of the plugin into calls of the user's handlers.

use crate::host::LATE;
use crate::stamp::stamp;
use crate::{Program, mark};
use nacre_js::{Argument, Error, FunctionId};
use nacre_js_bridge::{Bridge, StateLoan};
use nacre_plugin::{
    DATATYPE_JSON, Event, EventKind, Events, Fault, Previous, StateMut, Timer, timer, turn,
};
use std::rc::Rc;

/// Error codes of documents that a retry may accept.
const PASSING: [&str; 2] = ["temporary", "locked"];
/// The timer that the node sets when it starts a function. No callback can have this name.
const LAUNCH: &str = ":launch";
/// The value of that timer on the nodes that do not call `OnDeploy`.
const SKIPPED: &[u8] = b"skipped";
/// Key in the state of the last launch.
const LAUNCHED: &[u8] = b"launched";

/// The end of a handler's call.
struct CallEnd<'a> {
    /// Description of the call, for the log.
    of: &'a str,
    /// Names of the counters for success and for failure.
    names: [&'static str; 2],
    /// The vBucket of the timers that the call sets.
    home: Option<u16>,
    now_us: u64,
}

impl Program {
    /// Calls `OnUpdate` or `OnDelete` for each document.
    pub fn documents(
        &mut self,
        events: &Events<'_>,
        state: &mut dyn StateMut,
    ) -> Result<(), Fault> {
        let outcome = self.handle(events, state);
        // Documents before the one that will be delivered again are not counted again.
        self.numbers.tell();
        outcome
    }

    fn handle(&mut self, events: &Events<'_>, state: &mut dyn StateMut) -> Result<(), Fault> {
        // An unknown collection is new, and the node is about to announce it. The check runs before any handler.
        let is_unknown =
            |event: &Event<'_>| !self.config.collections.contains_key(&event.collection);
        if let Some(event) = events.iter().find(is_unknown) {
            let message = format!("the collection {} is not known yet", event.collection);
            return Err(Fault::Retry(message));
        }
        let bridge = Rc::clone(&self.bridge);
        let loan = StateLoan::writing(&bridge, state);
        let now_us = events.now_us();
        for event in events.iter() {
            if mark::is_own(event.xattrs, event.cas, &self.config.id) {
                self.numbers.count("suppressed_count");
                continue;
            }
            if self.filter.as_ref().is_some_and(|filter| !filter.passes(&event)) {
                self.numbers.count("filtered_count");
                continue;
            }
            let is_update = event.kind == EventKind::Upsert;
            let handler = if is_update { self.handlers.on_update } else { self.handlers.on_delete };
            let Some(handler) = handler else { continue };
            loan.begin(event.index);
            self.outside.borrow_mut().begin(format!("{}-{}", event.vb, event.seqno));
            let outcome = match is_update {
                true => self.update(handler, &event),
                false => self.delete(handler, &event),
            };
            let names = match is_update {
                true => ["OnUpdate", "on_update_success", "on_update_failure"],
                false => ["OnDelete", "on_delete_success", "on_delete_failure"],
            };
            let of = format!("{} of {:?}", names[0], String::from_utf8_lossy(event.key));
            let call =
                CallEnd { of: &of, names: [names[1], names[2]], home: Some(event.vb), now_us };
            if let Err(message) = self.ended(outcome, &loan, &call)? {
                turn::failed(event.index, &message);
            }
        }
        Ok(())
    }

    fn update(&mut self, handler: FunctionId, event: &Event<'_>) -> Result<(), Error> {
        let (id, cas) = (String::from_utf8_lossy(event.key), event.cas.to_string());
        let kind = if event.rev == 1 { "insert" } else { "update" };
        let text = std::str::from_utf8(event.body).ok();
        let xattrs = user_attributes(event.xattrs);
        let xattrs = Argument::Json(&xattrs);
        match text.filter(|_| event.datatype & DATATYPE_JSON != 0) {
            Some(text) => {
                self.engine.set_document(text)?;
                let meta = meta(event, &id, &cas, kind, true);
                let meta = Argument::Made(self.api.make_meta, &meta);
                self.engine.call(handler, &[Argument::Document, meta, xattrs])?;
            }
            None => {
                let meta = meta(event, &id, &cas, kind, false);
                let meta = Argument::Made(self.api.make_meta, &meta);
                let arguments =
                    [Argument::Function(handler), Argument::Bytes(event.body), meta, xattrs];
                self.engine.call(self.api.run_binary, &arguments)?;
            }
        }
        Ok(())
    }

    fn delete(&mut self, handler: FunctionId, event: &Event<'_>) -> Result<(), Error> {
        let (id, cas) = (String::from_utf8_lossy(event.key), event.cas.to_string());
        let (kind, options) = match event.kind {
            EventKind::Expire => ("expire", r#"{"expired":true}"#),
            _ => ("delete", r#"{"expired":false}"#),
        };
        // The expiry of a tombstone is the time of the deletion.
        let event = Event { expiry: 0, ..*event };
        let meta = meta(&event, &id, &cas, kind, true);
        let meta = Argument::Made(self.api.make_meta, &meta);
        self.engine.call(handler, &[meta, Argument::Json(options)]).map(drop)
    }

    /// Calls the callbacks of due timers.
    pub fn fire(
        &mut self,
        now_us: u64,
        timers: &[Timer],
        state: &mut dyn StateMut,
    ) -> Result<(), Fault> {
        let outcome = self.call_back(now_us, timers, state);
        self.numbers.tell();
        outcome
    }

    fn call_back(
        &mut self,
        now_us: u64,
        timers: &[Timer],
        state: &mut dyn StateMut,
    ) -> Result<(), Fault> {
        let bridge = Rc::clone(&self.bridge);
        for (index, timer) in (0..).zip(timers) {
            turn::begin(index, state);
            if timer.name == LAUNCH {
                self.launch(timer.payload == SKIPPED, now_us, state)?;
                continue;
            }
            self.outside.borrow_mut().begin(format!("{}-{}", timer.name, timer.due_us));
            let loan = StateLoan::writing(&bridge, state);
            let payload = String::from_utf8_lossy(&timer.payload);
            let outcome = self.engine.call(self.api.run_timer, &[Argument::Json(&payload)]);
            let names = ["timer_callback_success", "timer_callback_failure"];
            let of = format!("timer {:?}", timer.name);
            // A failed callback is counted and logged, and the other timers still fire.
            let call = CallEnd { of: &of, names, home: timer.vb, now_us };
            let _ = self.ended(outcome.map(drop), &loan, &call)?;
        }
        Ok(())
    }

    /// Calls `OnDeploy` once for each deployment and resumption, unless another node calls it.
    fn launch(
        &mut self,
        skipped: bool,
        now_us: u64,
        state: &mut dyn StateMut,
    ) -> Result<(), Fault> {
        let number = self.config.launch.number.to_string();
        if state.get(LAUNCHED).is_some_and(|last| last == number.as_bytes()) {
            return Ok(());
        }
        if let Some(on_deploy) = self.handlers.on_deploy.filter(|_| !skipped) {
            self.outside.borrow_mut().begin(format!("launch-{number}"));
            let action = serde_json::json!({
                "reason": self.config.launch.reason,
                "delay": self.config.launch.delay_ms,
            });
            let bridge = Rc::clone(&self.bridge);
            let loan = StateLoan::writing(&bridge, state);
            self.time_ms.set(self.config.launch_timeout_ms.min(self.config.timeout_ms));
            let outcome = self.engine.call(on_deploy, &[Argument::Json(&action.to_string())]);
            self.time_ms.set(self.config.timeout_ms);
            let names = ["on_deploy_success", "on_deploy_failure"];
            // The node with the first vBucket calls `OnDeploy`.
            let call = CallEnd { of: "OnDeploy", names, home: Some(0), now_us };
            if self.ended(outcome.map(drop), &loan, &call)?.is_err() {
                // The node undeploys the function. If the node stops before, the next run calls `OnDeploy` again.
                return Ok(());
            }
        }
        state.put(LAUNCHED, number.as_bytes());
        Ok(())
    }

    /// Restarts the program with a new engine.
    fn renew(&mut self) -> Result<(), Fault> {
        let Program { config, engine, outside, api, handlers, time_ms, .. } = {
            let bridge = Rc::clone(&self.bridge);
            Bridge::aside(&self.bridge, || Program::start(&self.text, bridge))?
        };
        (self.config, self.engine, self.outside) = (config, engine, outside);
        (self.api, self.handlers, self.time_ms) = (api, handlers, time_ms);
        Ok(())
    }

    /// Keeps or reverts the effects of a handler, and reports how it ended. The inner error is the handler's.
    fn ended(
        &mut self,
        outcome: Result<(), Error>,
        loan: &StateLoan<'_>,
        &CallEnd { of, names: [success, failure], home, now_us }: &CallEnd<'_>,
    ) -> Result<Result<(), String>, Fault> {
        for line in self.engine.take_log() {
            nacre_plugin::log(&format!("{} [INFO] {line}", stamp(now_us)));
        }
        self.numbers.add("steps", self.engine.steps());
        let counted = std::mem::take(&mut self.outside.borrow_mut().counted);
        let error = match outcome {
            Ok(()) => {
                if loan.has_timers() {
                    timer::belong(home);
                }
                loan.keep();
                counted.into_iter().chain([success]).for_each(|name| self.numbers.count(name));
                return Ok(Ok(()));
            }
            Err(error) => error,
        };
        loan.undo();
        let message = self.config.describe(&error);
        if !self.engine.is_settled() {
            // The pending work of a handler must not run at the expense of the next one.
            self.renew()?;
        }
        match &error {
            Error::Thrown { code: Some(code), .. } if PASSING.contains(&&code[..]) => {
                return Err(Fault::Retry(message));
            }
            Error::Steps(_) | Error::Late => self.numbers.count("timeout_count"),
            Error::Thrown { code: Some(code), .. } if code == LATE => {
                self.numbers.count("timeout_count");
            }
            _ => {}
        }
        // Timers of a failed handler are reverted.
        let counted = counted.into_iter().filter(|name| !name.starts_with("timer_"));
        counted.for_each(|name| self.numbers.count(name));
        self.numbers.count(failure);
        nacre_plugin::log(&format!("{} [ERROR] {of}: {message}", stamp(now_us)));
        Ok(Err(message))
    }
}

/// Returns a document's extended attributes as a JSON object, without system attributes, whose names begin with `_`.
fn user_attributes(xattrs: &[u8]) -> String {
    let pairs = mark::pairs(xattrs).filter(|(name, _)| !name.starts_with(b"_"));
    let members = pairs.filter_map(|(name, value)| {
        let (name, value) = (std::str::from_utf8(name).ok()?, std::str::from_utf8(value).ok()?);
        Some(format!("{}:{value}", serde_json::Value::from(name)))
    });
    format!("{{{}}}", members.collect::<Vec<_>>().join(","))
}

fn meta<'a>(
    event: &Event<'a>,
    id: &'a str,
    cas: &'a str,
    kind: &'a str,
    is_json: bool,
) -> [Argument<'a>; 11] {
    let (old_kind, old) = old(event);
    [
        Argument::Text(id),
        Argument::Text(cas),
        Argument::Number(event.seqno as f64),
        Argument::Number(f64::from(event.vb)),
        Argument::Number(f64::from(event.expiry)),
        Argument::Number(f64::from(event.flags)),
        Argument::Number(f64::from(event.collection)),
        Argument::Text(kind),
        Argument::Bool(is_json),
        Argument::Text(old_kind),
        old,
    ]
}

/// Returns the previous version of the document, if it exists and is known, and its kind: `json`, `binary` or `none`.
fn old<'a>(event: &Event<'a>) -> (&'static str, Argument<'a>) {
    let before = event.previous.filter(|previous| previous.kind == EventKind::Upsert);
    let Some(Previous { body, datatype, .. }) = before else {
        return ("none", Argument::Bool(false));
    };
    match std::str::from_utf8(body) {
        Ok(text) if datatype & DATATYPE_JSON != 0 => ("json", Argument::Json(text)),
        _ => ("binary", Argument::Bytes(body)),
    }
}
