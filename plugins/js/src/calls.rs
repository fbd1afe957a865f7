//! Converts the calls of the plugin into calls of the user's handlers.

use crate::{Program, attributes};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use nacre_js::{Argument, Error, FunctionId, quote};
use nacre_js_bridge::{Answered, Bridge, StateLoan, forward_log};
use nacre_plugin::{
    Chunk, DATATYPE_JSON, DocumentError, Event, EventKind, Events, Fault, MemoryState, Previous,
    Request, Response, State, StateMut, Timer, turn,
};
use serde_json::{Value, json};
use std::cell::RefCell;
use std::rc::Rc;

/// Error codes of documents after which a retry may succeed.
const PASSING: [&str; 2] = ["temporary", "locked"];
/// The content of cursors; the engine has the position of the response.
const MORE: &[u8] = b"more";

impl Program {
    /// Calls `onUpdate` or `onDelete` for each document.
    pub fn each_document(
        &mut self,
        events: &Events<'_>,
        state: &mut dyn StateMut,
    ) -> Result<Vec<DocumentError>, Fault> {
        let bridge = Rc::clone(&self.bridge);
        let loan = StateLoan::writing(&bridge, state);
        for event in events.iter() {
            loan.begin_if_acted(event.index);
            match self.one_document(&event) {
                Ok(()) => loan.keep(),
                Err(Fault::Reject(message)) => {
                    loan.undo();
                    turn::failed(event.index, &message);
                }
                Err(fault) => {
                    self.end_call()?;
                    return Err(fault);
                }
            }
            self.end_call()?;
        }
        // Failures are reported as they happen.
        Ok(Vec::new())
    }

    fn one_document(&mut self, event: &Event<'_>) -> Result<(), Fault> {
        let (id, cas) = (String::from_utf8_lossy(event.key), event.cas.to_string());
        let xattrs = attributes::members(event.xattrs).map(|members| format!("{{{members}}}"));
        let xattrs = xattrs.as_deref().map_or(Argument::Undefined, Argument::Json);
        let meta = [
            Argument::Text(&id),
            Argument::Text(&cas),
            Argument::Number(event.seqno as f64),
            Argument::Number(f64::from(event.vb)),
            Argument::Number(event.rev as f64),
            Argument::Number(f64::from(event.expiry)),
            Argument::Number(f64::from(event.flags)),
            Argument::Number(f64::from(event.collection)),
            Argument::Text(kind(event)),
            xattrs,
            old(event),
        ];
        let meta = Argument::Made(self.api.make_meta, &meta);
        if event.kind != EventKind::Upsert {
            return match self.handlers.on_delete {
                Some(on_delete) => self.run(on_delete, &[meta]),
                None => Ok(()),
            };
        }
        let Some(on_update) = self.handlers.on_update else { return Ok(()) };
        let document = match std::str::from_utf8(event.body) {
            Ok(text) if event.datatype & DATATYPE_JSON != 0 => {
                let set = self.engine.set_document(text);
                set.map_err(|error| self.fault(&error))?;
                Argument::Document
            }
            _ => Argument::Bytes(event.body),
        };
        self.run(on_update, &[document, meta])
    }

    /// Passes on the log of a call. If a failed call left pending work, the engine is replaced, because that work must
    /// not run in the next call.
    fn end_call(&mut self) -> Result<(), Fault> {
        forward_log(&mut self.engine);
        if !self.engine.is_settled() {
            let bridge = Rc::clone(&self.bridge);
            *self = Bridge::aside(&self.bridge, || Program::start(&self.text, bridge))?;
        }
        Ok(())
    }

    fn run(&mut self, function: FunctionId, arguments: &[Argument<'_>]) -> Result<(), Fault> {
        let outcome = self.engine.call(function, arguments);
        outcome.map(drop).map_err(|error| self.fault(&error))
    }

    /// Returns the fault for an error of user code; temporary errors have the call repeated.
    fn fault(&self, error: &Error) -> Fault {
        let message = format!("{}: {error}", self.file);
        match error {
            Error::Thrown { code: Some(code), .. } if PASSING.contains(&&code[..]) => {
                Fault::Retry(message)
            }
            _ => Fault::Reject(message),
        }
    }

    /// Calls `onBatch` for all documents at once.
    pub fn whole_batch(
        &mut self,
        on_batch: FunctionId,
        events: &Events<'_>,
        state: &mut dyn StateMut,
    ) -> Result<Vec<DocumentError>, Fault> {
        let mut text = String::from("[");
        for event in events.iter() {
            if text.len() > 1 {
                text.push(',');
            }
            push_event(&event, &mut text);
        }
        text.push(']');
        let bridge = Rc::clone(&self.bridge);
        let loan = StateLoan::writing(&bridge, state);
        self.called(on_batch, &[Argument::Json(&text)], &loan).map(|()| Vec::new())
    }

    /// Calls `onTimer` for each timer.
    pub fn fire(&mut self, timers: &[Timer], state: &mut dyn StateMut) -> Result<(), Fault> {
        let Some(on_timer) = self.handlers.on_timer else { return Ok(()) };
        let bridge = Rc::clone(&self.bridge);
        let loan = StateLoan::writing(&bridge, state);
        for (index, timer) in (0..).zip(timers) {
            loan.begin_if_acted(index);
            let mut text = String::from("{\"name\":");
            quote(&timer.name, &mut text);
            text.push_str(&format!(",\"due\":{},\"payload\":", timer.due_us / 1000));
            match std::str::from_utf8(&timer.payload) {
                Ok(payload) if !payload.starts_with('\0') => text.push_str(payload),
                _ => quote(&BASE64_STANDARD.encode(&timer.payload[1..]), &mut text),
            }
            text.push('}');
            self.called(on_timer, &[Argument::Json(&text)], &loan)?;
        }
        Ok(())
    }

    /// Calls a handler whose failure fails the whole call.
    fn called(
        &mut self,
        function: FunctionId,
        arguments: &[Argument<'_>],
        loan: &StateLoan<'_>,
    ) -> Result<(), Fault> {
        let outcome = self.run(function, arguments);
        self.end_call()?;
        outcome?;
        loan.keep();
        Ok(())
    }

    /// Calls `onRollback`; without it, the state is rebuilt.
    pub fn cut_back(
        &mut self,
        vb: u16,
        seqno: u64,
        state: &mut dyn StateMut,
    ) -> Result<Option<u64>, Fault> {
        let Some(on_rollback) = self.handlers.on_rollback else {
            let message = format!("vBucket {vb} was cut back, and {} has no onRollback", self.file);
            return Err(Fault::Fatal(message));
        };
        let bridge = Rc::clone(&self.bridge);
        let loan = StateLoan::writing(&bridge, state);
        let arguments = [Argument::Number(f64::from(vb)), Argument::Number(seqno as f64)];
        let reached = self.engine.call(on_rollback, &arguments);
        self.end_call()?;
        let reached = reached.map_err(|error| Fault::Fatal(format!("{}: {error}", self.file)))?;
        loan.keep();
        let reached = reached.and_then(|reached| reached.parse().ok()).unwrap_or(0);
        Ok(Some(seqno.min(reached)))
    }

    /// Calls `handle`.
    pub fn answer(&mut self, request: &Request, state: &dyn State) -> Result<Response, Fault> {
        let Some(handle) = self.handlers.handle else { return Ok(not_found()) };
        let asked = asked(request);
        let arguments =
            [Argument::Function(handle), Argument::Json(&asked), Argument::Bytes(&request.body)];
        self.respond(self.api.run_handle, &arguments, state)
    }

    /// Calls `merge`.
    pub fn merged(&mut self, request: &Request, parts: &[Response]) -> Result<Response, Fault> {
        let Some(merge) = self.handlers.merge else {
            let message = format!("{} has no merge for the answers of several nodes", self.file);
            return Err(Fault::Reject(message));
        };
        let about = |part: &Response| json!({"status": part.status, "headers": part.headers, "length": part.body.len()});
        let about = Value::Array(parts.iter().map(about).collect()).to_string();
        let bodies: Vec<&[u8]> = parts.iter().map(|part| &part.body[..]).collect();
        let asked = asked(request);
        let arguments = [
            Argument::Function(merge),
            Argument::Json(&asked),
            Argument::Bytes(&request.body),
            Argument::Json(&about),
            Argument::Bytes(&bodies.concat()),
        ];
        // `merge` has no state; it sees only the parts.
        self.respond(self.api.run_merge, &arguments, &MemoryState::default())
    }

    /// Calls a handler that returns a response.
    fn respond(
        &mut self,
        run: FunctionId,
        arguments: &[Argument<'_>],
        state: &dyn State,
    ) -> Result<Response, Fault> {
        let bridge = Rc::clone(&self.bridge);
        let loan = StateLoan::reading(&bridge, state);
        let outcome = self.run(run, arguments);
        self.end_call()?;
        match (outcome, loan.take_answer()) {
            (Ok(()), Some(Answered { status, headers, body, has_more })) => {
                Ok(Response { status, headers, body, cursor: has_more.then(|| MORE.to_vec()) })
            }
            (Ok(()), None) => Err(Fault::Fatal("there is no answer".into())),
            // The program failed, not the sandbox, so the instance can be kept.
            (Err(fault), _) => {
                let body = json!({"error": "exception", "reason": fault.to_string()});
                Ok(Response::json(500, body.to_string()))
            }
        }
    }

    /// Returns the next piece of a response whose body is an iterator.
    pub fn next_piece(&mut self, state: &dyn State) -> Result<Chunk, Fault> {
        let bridge: Rc<RefCell<_>> = Rc::clone(&self.bridge);
        let loan = StateLoan::reading(&bridge, state);
        let outcome = self.run(self.api.run_more, &[]);
        self.end_call()?;
        outcome?;
        let Answered { body, has_more, .. } = loan.take_answer().unwrap_or_default();
        Ok(Chunk { body, cursor: has_more.then(|| MORE.to_vec()) })
    }
}

/// Returns a request as `api.js` expects it; the body is passed separately.
fn asked(request: &Request) -> String {
    json!({
        "method": request.method,
        "path": request.path,
        "query": request.query,
        "headers": request.headers,
    })
    .to_string()
}

fn not_found() -> Response {
    Response::json(404, r#"{"error":"not_found","reason":"missing"}"#)
}

fn kind(event: &Event<'_>) -> &'static str {
    match event.kind {
        EventKind::Upsert => "update",
        EventKind::Delete => "delete",
        EventKind::Expire => "expire",
    }
}

fn push_event(event: &Event<'_>, text: &mut String) {
    let meta = json!({
        "id": String::from_utf8_lossy(event.key),
        "cas": event.cas.to_string(),
        "seqno": event.seqno,
        "vbucket": event.vb,
        "rev": event.rev,
        "expiry": event.expiry,
        "flags": event.flags,
        "collection": event.collection,
        "kind": kind(event),
    });
    text.push_str("{\"meta\":");
    text.push_str(meta.to_string().trim_end_matches('}'));
    if let Some(members) = attributes::members(event.xattrs) {
        text.push_str(&format!(",\"xattrs\":{{{members}}}"));
    }
    if let Some(before) = before(event) {
        text.push_str(",\"old\":");
        push_body(before.datatype, before.body, text);
    }
    text.push_str("},\"doc\":");
    match event.kind {
        EventKind::Upsert => push_body(event.datatype, event.body, text),
        _ => text.push_str("null"),
    }
    text.push('}');
}

fn push_body(datatype: u8, body: &[u8], text: &mut String) {
    match std::str::from_utf8(body) {
        Ok(body) if datatype & DATATYPE_JSON != 0 => text.push_str(body),
        // JSON cannot contain bytes.
        _ => quote(&BASE64_STANDARD.encode(body), text),
    }
}

/// Returns the previous version, if it is known and was a document.
fn before<'a>(event: &Event<'a>) -> Option<Previous<'a>> {
    event.previous.filter(|previous| previous.kind == EventKind::Upsert)
}

/// Returns the previous version of the document as an argument.
fn old<'a>(event: &Event<'a>) -> Argument<'a> {
    let Some(Previous { body, datatype, .. }) = before(event) else { return Argument::Undefined };
    match std::str::from_utf8(body) {
        Ok(text) if datatype & DATATYPE_JSON != 0 => Argument::Json(text),
        _ => Argument::Bytes(body),
    }
}
