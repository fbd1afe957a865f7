//! The world `service`.

use nacre_plugin::{
    Chunk, DocumentError, EventKind, Events, Fault, Request, Response, Service, State, StateMut,
    Timer, blob, http, kv, metrics, timer,
};
use serde_json::Value;
use std::borrow::Cow;

/// Does what it is told.
pub struct Probe {
    /// Pieces of an answer that were not asked for yet.
    pieces: u64,
    /// Whether documents are hotels, of which it keeps sums, and not scripts.
    sums: bool,
}

/// As much of a hotel as a sum needs.
#[derive(serde::Deserialize)]
struct Hotel<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    address: Address<'a>,
    price: u64,
}

#[derive(serde::Deserialize)]
struct Address<'a> {
    #[serde(borrow)]
    city: Cow<'a, str>,
}

impl Service for Probe {
    fn describe() -> String {
        r#"{"name":"probe","version":"0.1.0","state_version":"1","limits":{}}"#.into()
    }

    fn init(config: &str) -> Result<Probe, Fault> {
        match config {
            "reject" => return Err(Fault::Reject("the configuration says so".into())),
            "use state" => {
                nacre_plugin::log(&kv::counter("", b"c", 1, None, 0).is_ok().to_string())
            }
            _ => {}
        }
        Ok(Probe { pieces: 0, sums: config == "sums" })
    }

    fn on_batch(
        &mut self,
        events: &Events<'_>,
        state: &mut dyn StateMut,
    ) -> Result<Vec<DocumentError>, Fault> {
        for event in events.iter().filter(|event| event.kind == EventKind::Upsert) {
            match self.sums {
                true => add(event.body, state)?,
                false => run(event.body, events.now_us(), state)?,
            }
        }
        Ok(Vec::new())
    }

    fn rollback(&mut self, _: u16, seqno: u64, _: &mut dyn StateMut) -> Result<Option<u64>, Fault> {
        Ok(Some(seqno))
    }

    fn handle(&mut self, request: &Request, state: &dyn State) -> Result<Response, Fault> {
        match &request.path[..] {
            "/state" => {
                let value = state.get(request.query.as_bytes());
                Ok(Response::json(
                    if value.is_some() { 200 } else { 404 },
                    value.unwrap_or_default(),
                ))
            }
            "/pieces" => {
                self.pieces = request.query.parse().unwrap_or_default();
                let cursor = Some(b"next".to_vec());
                Ok(Response { cursor, ..Response::json(200, "begin") })
            }
            "/headers" => Ok(Response::json(200, format!("{:?}", request.headers))),
            "/large" => Ok(Response::json(200, vec![b'x'; request.query.parse().unwrap_or(0)])),
            _ => {
                run(&request.body, request.now_us, &mut Reading(state))?;
                Ok(Response::json(200, "done"))
            }
        }
    }

    fn more(&mut self, _: &[u8], state: &dyn State) -> Result<Chunk, Fault> {
        match self.pieces {
            0 => Ok(Chunk { body: b" end".to_vec(), cursor: None }),
            13 => panic!("unlucky"),
            left => {
                self.pieces -= 1;
                let seen = state.get(b"told").map_or(0, |told| told.len());
                Ok(Chunk { body: format!(" {left}:{seen}").into(), cursor: Some(b"next".to_vec()) })
            }
        }
    }

    fn merge(&mut self, _: &Request, partials: Vec<Response>) -> Result<Response, Fault> {
        let bodies: Vec<_> = partials.into_iter().map(|partial| partial.body).collect();
        Ok(Response::json(200, bodies.join(&b"+"[..])))
    }

    fn on_timer(
        &mut self,
        now_us: u64,
        timers: &[Timer],
        state: &mut dyn StateMut,
    ) -> Result<(), Fault> {
        for timer in timers {
            tell(state, &format!("{} fired", timer.name));
            timer::belong(timer.vb);
            run(&timer.payload, now_us, state)?;
        }
        Ok(())
    }
}

/// Writing for a reader: the host's to refuse.
struct Reading<'a>(&'a dyn State);

impl State for Reading<'_> {
    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.0.get(key)
    }

    fn scan(
        &self,
        start: &[u8],
        end: &[u8],
        limit: u32,
        reverse: bool,
    ) -> Vec<nacre_plugin::Entry> {
        self.0.scan(start, end, limit, reverse)
    }
}

impl StateMut for Reading<'_> {
    fn put(&mut self, _: &[u8], value: &[u8]) {
        nacre_plugin::log(&String::from_utf8_lossy(value));
    }

    fn delete(&mut self, _: &[u8]) {}

    fn reading(&self) -> &dyn State {
        self
    }
}

fn tell(state: &mut dyn StateMut, line: &str) {
    let mut told = state.get(b"told").unwrap_or_default();
    told.extend(line.bytes());
    told.push(b'\n');
    state.put(b"told", &told);
}

/// Adds the price of a hotel to the sum of its type and city.
fn add(body: &[u8], state: &mut dyn StateMut) -> Result<(), Fault> {
    let hotel: Hotel<'_> =
        serde_json::from_slice(body).map_err(|error| Fault::Reject(error.to_string()))?;
    let key = format!("{}/{}", hotel.kind, hotel.address.city);
    let sum =
        state.get(key.as_bytes()).and_then(|sum| Some(u64::from_le_bytes(sum.try_into().ok()?)));
    state.put(key.as_bytes(), &(sum.unwrap_or(0) + hotel.price).to_le_bytes());
    Ok(())
}

fn run(script: &[u8], now_us: u64, state: &mut dyn StateMut) -> Result<(), Fault> {
    if script.is_empty() {
        return Ok(());
    }
    let steps: Vec<Vec<Value>> =
        serde_json::from_slice(script).map_err(|error| Fault::Reject(error.to_string()))?;
    steps.iter().try_for_each(|step| step_of(step, now_us, state))
}

/// A table: an arm for each step that a script knows.
#[expect(clippy::too_many_lines, reason = "a table")]
fn step_of(step: &[Value], now_us: u64, state: &mut dyn StateMut) -> Result<(), Fault> {
    let text = |at: usize| step.get(at).and_then(Value::as_str).unwrap_or_default();
    let number = |at: usize| step.get(at).and_then(Value::as_i64).unwrap_or_default();
    let content = |at: usize| kv::Content::from(text(at));
    let cas = |at: usize| step.get(at).and_then(Value::as_u64);
    match text(0) {
        "put" => state.put(text(1).as_bytes(), text(2).as_bytes()),
        "delete" => state.delete(text(1).as_bytes()),
        "scan" => {
            let entries =
                state.scan(text(1).as_bytes(), text(2).as_bytes(), number(3) as u32, false);
            tell(state, &format!("{} entries", entries.len()));
        }
        "blob-create" => blob::create(text(1)),
        "blob-append" => {
            blob::append(text(1), text(2).repeat(number(3).max(1) as usize).as_bytes())
        }
        "blob-seal" => blob::seal(text(1)),
        "blob-delete" => tell(state, &format!("deleted: {}", blob::delete(text(1)))),
        "blob-read" => {
            let bytes = blob::read(text(1), number(2) as u64, number(3) as u32);
            tell(
                state,
                &format!("{:?}", bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned())),
            );
        }
        "blob-list" => {
            let one = |info: blob::Info| format!("{} {} {}", info.name, info.length, info.sealed);
            let all = blob::list(text(1), text(2), 100).into_iter().map(one);
            tell(state, &all.collect::<Vec<_>>().join(", "));
        }
        "blob-stat" => tell(state, &format!("{:?}", blob::stat(text(1)).map(|info| info.length))),
        "timer" => timer::set(text(1), now_us + number(2) as u64, step[3].to_string().as_bytes()),
        "belong" => timer::belong(step[1].as_u64().map(|vb| vb as u16)),
        "is-set" => tell(state, &format!("set: {}", timer::is_set(text(1)))),
        "cancel" => {
            let was_set = timer::cancel(text(1));
            tell(state, &format!("cancelled: {was_set}"));
        }
        "get" => {
            let found = kv::get(text(1), text(2).as_bytes());
            let found = found.map(|found| String::from_utf8_lossy(&found.body).into_owned());
            tell(state, &format!("{found:?}"));
        }
        "get-many" => {
            let keys: Vec<_> = (0..number(2)).map(|key| key.to_string().into_bytes()).collect();
            let found = kv::get_many(text(1), &keys).iter().filter(|found| found.is_ok()).count();
            tell(state, &format!("{found} of {}", keys.len()));
        }
        "insert" => {
            let stored = kv::insert(text(1), text(2).as_bytes(), &content(3));
            tell(state, &format!("{stored:?}"));
        }
        "upsert" => {
            let stored = kv::upsert(text(1), text(2).as_bytes(), &content(3));
            tell(state, &format!("{stored:?}"));
        }
        "replace" => {
            let stored = kv::replace(text(1), text(2).as_bytes(), &content(3), cas(4));
            tell(state, &format!("{stored:?}"));
        }
        "remove" => {
            let removed = kv::remove(text(1), text(2).as_bytes(), cas(3));
            tell(state, &format!("{removed:?}"));
        }
        "counter" => {
            let counted = kv::counter(text(1), text(2).as_bytes(), number(3), cas(4), 0);
            tell(state, &format!("{:?}", counted.map(|counted| counted.value)));
        }
        "touch" => {
            let touched = kv::touch(text(1), text(2).as_bytes(), number(3) as u32);
            tell(state, &format!("{touched:?}"));
        }
        "lookup-in" => {
            let (operation, path) = (kv::LookupOperation::Get, text(3).into());
            let spec = kv::LookupSpec { operation, path, xattr: false };
            let looked = kv::lookup_in(text(1), text(2).as_bytes(), &[spec]);
            let text = |found: Result<Vec<u8>, String>| {
                found.map(|found| String::from_utf8_lossy(&found).into_owned())
            };
            let looked =
                looked.map(|looked| looked.results.into_iter().map(text).collect::<Vec<_>>());
            tell(state, &format!("{looked:?}"));
        }
        "mutate-in" => {
            let spec = kv::MutateSpec {
                operation: kv::MutateOperation::Upsert,
                path: text(3).into(),
                value: text(4).into(),
                xattr: false,
                create_path: true,
                expand_macros: false,
            };
            let mode = kv::Mode::Upsert;
            let options = kv::MutateOptions { mode, expiry: None, flags: None };
            let mutated = kv::mutate_in(text(1), text(2).as_bytes(), &[spec], options);
            tell(state, &format!("{:?}", mutated.map(|mutated| mutated.cas)));
        }
        "http" => {
            let request = http::Request {
                method: "GET".into(),
                url: text(1).into(),
                ..http::Request::default()
            };
            let answer = http::send(request).map(|answer| {
                format!("{} {}", answer.status, String::from_utf8_lossy(&answer.body))
            });
            tell(state, &format!("{answer:?}"));
        }
        "add" => metrics::add(text(1), number(2) as f64),
        "set" => metrics::set(text(1), number(2) as f64),
        "log" => nacre_plugin::log(text(1)),
        "panic" => panic!("{}", text(1)),
        "loop" => loop {
            std::hint::black_box(());
        },
        "grow" => {
            let mut held = Vec::new();
            loop {
                held.push(vec![1u8; 1 << 20]);
                std::hint::black_box(&held);
            }
        }
        "retry" => return Err(Fault::Retry(text(1).into())),
        "reject" => return Err(Fault::Reject(text(1).into())),
        "fatal" => return Err(Fault::Fatal(text(1).into())),
        other => return Err(Fault::Reject(format!("no such step: {other:?}"))),
    }
    Ok(())
}

nacre_plugin::export!(Probe);
