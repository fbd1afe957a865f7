//! Hostile plugins. Each ends with an error that names its fault, about at its deadline, and other plugins continue.

mod bombs;
mod calls;
pub mod module;
mod results;

use crate::fixture::*;
use module::Module;
use nacre_sandbox::{Error, Limits, MemoryDocuments, Partition, Request, Setup};
use nacre_state::{MemoryStorage, StateStorage};
use std::sync::Arc;
use std::time::{Duration, Instant};

const DEADLINE: Duration = Duration::from_millis(40);
/// The deadline of a case that must end at another limit, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// Reason in the error of a call that was ended at [`DEADLINE`].
const TIME: &str = "took longer than 40 ms";
/// Delay of a deadline on a busy machine; `cargo xtask bench plugins` measures the delay on a quiet one.
const SLACK: Duration = Duration::from_secs(2);

/// The call in which a case misbehaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    Open,
    Batch,
    Timer,
    Rollback,
    Handle,
    More,
    Merge,
}

/// A plugin, the call in which it fails, and a part of the expected message.
struct Case {
    name: &'static str,
    module: Module,
    when: When,
    says: &'static str,
}

fn case(name: &'static str, when: When, says: &'static str, module: Module) -> Case {
    Case { name, module, when, says }
}

fn setup(deadline: Duration) -> Setup {
    Setup {
        limits: Limits {
            deadline,
            memory_bytes: 64 << 20,
            state_bytes: 1 << 20,
            result_bytes: 1 << 20,
            ..Limits::default()
        },
        documents: Arc::new(MemoryDocuments::default()),
        ..granted("config")
    }
}

/// Runs a component up to `when`. Returns the error, and the duration of the call that caused it.
fn run(component: &[u8], when: When, deadline: Duration) -> (Error, Duration) {
    let name = format!("{when:?}");
    let plugin = load(&name, component).unwrap();
    let storage = MemoryStorage::default();
    if when == When::Timer {
        let timer = nacre_state::Timer { due_us: 1, payload: Vec::new() };
        let timers = vec![((None, "t".to_owned()), Some(timer))];
        let changes = nacre_state::Changes { timers, ..Default::default() };
        storage.clone().commit(&changes).unwrap();
    }
    let open = || Partition::open(plugin.clone(), setup(deadline), Box::new(storage.clone()));
    if when == When::Open {
        return timed(|| open().map(drop).unwrap_err());
    }
    let mut partition = open().unwrap();
    let reader = partition.reader();
    let request = Request::default();
    let batch = Stream::default().batch([("a", Some("{}"))]);
    match when {
        When::Batch => timed(|| match partition.on_batch(&batch, NOW) {
            Ok(report) => killed(report.dead_letters.into_iter().map(|dead| dead.reason)),
            Err(error) => error,
        }),
        When::Timer => timed(|| match partition.on_timers(NOW) {
            Ok(report) => killed(report.dead_timers.into_iter().map(|dead| dead.reason)),
            Err(error) => error,
        }),
        When::Rollback => timed(|| partition.rollback(nacre_types::Vbid(1), point(1)).unwrap_err()),
        When::Handle => timed(|| reader.handle(&request, NOW).err().unwrap()),
        When::Merge => timed(|| reader.merge(&request, &[], NOW, None).err().unwrap()),
        _ => {
            let mut answer = reader.handle(&request, NOW).unwrap();
            answer.next_piece().unwrap();
            timed(|| answer.next_piece().unwrap_err())
        }
    }
}

/// Returns the reason for which the only item was parked, as an error.
fn killed(reasons: impl Iterator<Item = String>) -> Error {
    let reasons: Vec<_> = reasons.collect();
    assert_eq!(reasons.len(), 1);
    Error::Trap { deployment: "p".into(), reason: reasons[0].clone() }
}

fn timed(call: impl FnOnce() -> Error) -> (Error, Duration) {
    #[expect(clippy::disallowed_methods, reason = "the deadline is about real time")]
    let begun = Instant::now();
    let error = call();
    (error, begun.elapsed())
}

/// Runs cases while another plugin works.
fn check(cases: Vec<Case>) {
    let mut beside = open_probe(granted(""));
    for Case { name, module, when, says } in cases {
        let deadline = if says == TIME { DEADLINE } else { PATIENCE };
        let (error, took) = run(&module.component(), when, deadline);
        assert!(error.to_string().contains(says), "{name}: {error}");
        assert!(took < deadline + SLACK, "{name}: {took:?}");
        tell(&mut beside, &[&format!(r#"[["put","last","{name}"]]"#)]).unwrap();
        assert_eq!(request(&beside.reader(), "/state", "last"), name, "the host is alive");
    }
}
