//! Invalid results and layouts, and an invalid allocator.

use super::When::*;
use super::module::Module;
use super::{case, check};

fn m() -> Module {
    Module::new()
}

/// Stores words from address 2048 on, and returns this address as the result.
fn words(words: &[i64]) -> String {
    let store = |(index, word): (usize, &i64)| {
        format!("(i32.store (i32.const {}) (i32.const {word}))", 2048 + 4 * index)
    };
    words.iter().enumerate().map(store).collect::<String>() + "i32.const 2048"
}

/// Returns a plugin whose replies have a cursor: for `result<response, fault>` the word of `ok`, status, headers, body,
/// then the option of a list.
pub fn with_cursor() -> Module {
    m().body("handle", words(&[0, 200, 0, 0, 0, 0, 1, 0, 0]))
}

#[test]
#[expect(clippy::too_many_lines, reason = "a list of cases")]
fn invalid_results_are_refused() {
    let beyond = "i32.const -16";
    let odd = "i32.const 1025";
    let list = |length: i64| words(&[0, 0, length]);
    let body = |pointer: i64, length: i64| words(&[0, 200, 0, 0, pointer, length, 0, 0, 0]);
    check(vec![
        case(
            "batch beyond",
            Batch,
            "pointer out of bounds of memory",
            m().body("on-batch", beyond),
        ),
        case("batch misaligned", Batch, "not aligned", m().body("on-batch", odd)),
        case(
            "batch at the end",
            Batch,
            "pointer out of bounds of memory",
            m().body("on-batch", "i32.const 1114108"),
        ),
        case("batch variant", Batch, "discriminant", m().body("on-batch", words(&[7, 0, 0]))),
        case("batch fault", Batch, "discriminant", m().body("on-batch", words(&[1, 9, 0, 0]))),
        case(
            "batch list",
            Batch,
            "list pointer/length out of bounds of memory",
            m().body("on-batch", list(0xffff_ffff - (1 << 32))),
        ),
        case(
            "batch half list",
            Batch,
            "list pointer/length out of bounds of memory",
            m().body("on-batch", list(0x0800_0000)),
        ),
        case(
            "batch messages",
            Batch,
            "string pointer/length out of bounds of memory",
            m().body("on-batch", words(&[0, 2064, 1, 0, 7, 0, -1])),
        ),
        case("init beyond", Open, "pointer out of bounds of memory", m().body("init", beyond)),
        case("init variant", Open, "discriminant", m().body("init", words(&[3]))),
        case(
            "init message",
            Open,
            "string pointer/length out of bounds of memory",
            m().body("init", words(&[1, 1, 0, -1])),
        ),
        case(
            "timer beyond",
            Timer,
            "pointer out of bounds of memory",
            m().body("on-timer", beyond),
        ),
        case(
            "rollback beyond",
            Rollback,
            "pointer out of bounds of memory",
            m().body("rollback", beyond),
        ),
        case(
            "rollback misaligned",
            Rollback,
            "not aligned",
            m().body("rollback", "i32.const 1028"),
        ),
        case(
            "rollback ahead",
            Rollback,
            "not to 1",
            m().body("rollback", words(&[0, 0, 1, 0, 9, 0])),
        ),
        case("rollback nowhere", Rollback, "no progress", m()),
        case(
            "handle beyond",
            Handle,
            "pointer out of bounds of memory",
            m().body("handle", beyond),
        ),
        case(
            "handle body",
            Handle,
            "list pointer/length out of bounds of memory",
            m().body("handle", body(0, -1)),
        ),
        case(
            "handle large",
            Handle,
            "1114112 bytes, more than",
            m().body("handle", body(0, 1_114_112)),
        ),
        case(
            "handle headers",
            Handle,
            "list pointer/length out of bounds of memory",
            m().body("handle", words(&[0, 200, 0, 0x0fff_ffff, 0, 0, 0, 0, 0])),
        ),
        case(
            "handle cursor",
            Handle,
            "list pointer/length out of bounds of memory",
            m().body("handle", words(&[0, 200, 0, 0, 0, 0, 1, 0, -1])),
        ),
        case(
            "more beyond",
            More,
            "pointer out of bounds of memory",
            with_cursor().body("more", beyond),
        ),
        case(
            "more body",
            More,
            "list pointer/length out of bounds of memory",
            with_cursor().body("more", words(&[0, 0, -1, 0, 0, 0])),
        ),
        case("merge beyond", Merge, "pointer out of bounds of memory", m().body("merge", beyond)),
    ]);
}

#[test]
fn a_faulty_allocator_harms_only_its_own_plugin() {
    check(vec![
        case("traps", Open, "unreachable", m().realloc("unreachable")),
        case("beyond", Open, "realloc return: beyond end of memory", m().realloc("i32.const -8")),
        case(
            "at the end",
            Open,
            "realloc return: beyond end of memory",
            m().realloc("i32.const 1114111"),
        ),
        case(
            "divides",
            Open,
            "divide by zero",
            m().realloc("(i32.div_s (i32.const 1) (i32.const 0))"),
        ),
    ]);
}

/// The pieces of a reply never end: the caller decides when to stop.
#[test]
fn an_endless_answer_costs_no_other_caller() {
    let endless = with_cursor().body("more", words(&[0, 0, 0, 1, 0, 0]));
    let plugin = crate::fixture::load("endless", &endless.component()).unwrap();
    let storage = Box::<nacre_state::MemoryStorage>::default();
    let partition =
        nacre_sandbox::Partition::open(plugin, super::setup(super::PATIENCE), storage).unwrap();
    let mut answer = partition.reader().handle(&Default::default(), crate::fixture::NOW).unwrap();
    for _ in 0..1000 {
        assert_eq!(answer.next_piece().unwrap(), Some(Vec::new()));
    }
}
