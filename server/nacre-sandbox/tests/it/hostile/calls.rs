//! Calls that do not end, exhaust resources, or flood the host with calls.

use super::When::*;
use super::module::Module;
use super::{DEADLINE, PATIENCE, TIME, case, check};

const STACK: &str = "call stack exhausted";
const LOOP: &str = "(loop $l (br $l)) unreachable";

/// Five thousand changes of one key that share one value of 900,000 bytes.
const CHANGES: &str = "
    (local $at i32)
    (local.set $at (i32.const 100000))
    (loop $l
        (local.set $at (i32.sub (local.get $at) (i32.const 20)))
        (i32.store offset=200004 (local.get $at) (i32.const 1))
        (i32.store offset=200008 (local.get $at) (i32.const 1))
        (i32.store offset=200016 (local.get $at) (i32.const 900000))
        (br_if $l (local.get $at)))
    (call $apply (i32.const 200000) (i32.const 5000))";

fn m() -> Module {
    Module::new()
}

fn calling(body: &str) -> Module {
    m().imports().body("on-batch", format!("{body} i32.const 1024"))
}

/// Repeats some calls endlessly.
fn storm(call: &str) -> Module {
    calling(&format!("(loop $l {call} (br $l))"))
}

#[test]
fn items_begin_once_each_in_their_order() {
    let turn = "an item began out of order";
    let begin = |index: &str| format!("(call $begin (i32.const {index}))");
    let twice = calling(&[begin("0"), begin("0")].concat());
    let init = m().imports().body("init", format!("{} i32.const 1024", begin("0")));
    check(vec![
        case("twice", Batch, turn, twice),
        case("no item", Batch, turn, calling(&begin("9"))),
        case("no number", Batch, turn, calling(&begin("-1"))),
        case("outside of a call", Open, turn, init),
    ]);
}

#[test]
fn endless_loops_are_stopped_wherever_they_are() {
    let mut cases = vec![
        case("start", Open, TIME, m().field("(func $s (loop $l (br $l))) (start $s)")),
        case("init", Open, TIME, m().body("init", LOOP)),
        case("on-batch", Batch, TIME, m().body("on-batch", LOOP)),
        case("on-timer", Timer, TIME, m().body("on-timer", LOOP)),
        case("rollback", Rollback, TIME, m().body("rollback", LOOP)),
        case("handle", Handle, TIME, m().body("handle", LOOP)),
        case("merge", Merge, TIME, m().body("merge", LOOP)),
        case("realloc", Open, TIME, m().realloc(LOOP)),
        case("more", More, TIME, super::results::with_cursor().body("more", LOOP)),
    ];
    let after = "(func (export \"cabi_post_nacre:plugin/feed@0.1.0#on-batch\") (param i32) (loop $l (br $l)))";
    cases.push(case("post-return", Batch, TIME, m().field(after)));
    let table = "(loop $l (br_table $l $l $l (i32.const 1))) unreachable";
    cases.push(case("br_table", Batch, TIME, m().body("on-batch", table)));
    let fill = "(loop $l (memory.fill (i32.const 65536) (i32.const 1) (i32.const 983040)) (br $l)) unreachable";
    cases.push(case("memory.fill", Batch, TIME, m().body("on-batch", fill)));
    let copy = "(loop $l (memory.copy (i32.const 65536) (i32.const 65537) (i32.const 983039)) (br $l)) unreachable";
    cases.push(case("memory.copy", Batch, TIME, m().body("on-batch", copy)));
    let grow = "(loop $l (drop (memory.grow (i32.const 1000000))) (br $l)) unreachable";
    cases.push(case("refused growth", Batch, TIME, m().body("on-batch", grow)));
    let calls = m().field("(func $f)").body("on-batch", "(loop $l (call $f) (br $l)) unreachable");
    cases.push(case("calls", Batch, TIME, calls));
    let tail = m().field("(func $f (return_call $f))").body("on-batch", "(call $f) i32.const 1024");
    cases.push(case("tail calls", Batch, TIME, tail));
    check(cases);
}

#[test]
fn describe_is_bounded_like_any_call() {
    for (body, says, deadline) in [
        (LOOP, TIME, DEADLINE),
        ("unreachable", "unreachable", PATIENCE),
        ("i32.const -4", "pointer out of bounds of memory", PATIENCE),
    ] {
        let plugin = crate::fixture::load("d", &m().body("describe", body).component()).unwrap();
        let error = plugin.describe(super::setup(deadline).limits).unwrap_err();
        assert!(error.to_string().contains(says), "{body}: {error}");
    }
}

#[test]
fn recursion_ends_at_the_stack() {
    let deep = "(func $f (call $f))";
    let wide = format!(
        "(func $w (param i64) {} (call $w (i64.add (local.get 0) (i64.const 1))) {})",
        "(local v128)".repeat(100),
        "(drop (v128.any_true (local.get 1)))".repeat(2)
    );
    let indirect =
        "(table 1 funcref) (elem (i32.const 0) $i) (func $i (call_indirect (i32.const 0)))";
    let mutual = "(func $a (call $b)) (func $b (call $a))";
    check(vec![
        case("start", Open, STACK, m().field(format!("{deep} (start $f)"))),
        case("init", Open, STACK, m().field(deep).body("init", "(call $f) unreachable")),
        case("batch", Batch, STACK, m().field(deep).body("on-batch", "(call $f) unreachable")),
        case("timer", Timer, STACK, m().field(deep).body("on-timer", "(call $f) unreachable")),
        case("handle", Handle, STACK, m().field(deep).body("handle", "(call $f) unreachable")),
        case("realloc", Open, STACK, m().field(deep).realloc("(call $f) unreachable")),
        case(
            "wide frames",
            Batch,
            STACK,
            m().field(wide).body("on-batch", "(call $w (i64.const 0)) unreachable"),
        ),
        case(
            "indirect",
            Batch,
            STACK,
            m().field(indirect).body("on-batch", "(call $i) unreachable"),
        ),
        case("mutual", Batch, STACK, m().field(mutual).body("on-batch", "(call $a) unreachable")),
    ]);
}

#[test]
fn memory_and_tables_end_at_their_limits() {
    let memory = "bytes of memory";
    let until =
        "(loop $l (br_if $l (i32.ne (memory.grow (i32.const 16)) (i32.const -1)))) unreachable";
    let table = "(table $t 10 funcref)";
    let grow = "(loop $l (br_if $l (i32.ne (table.grow $t (ref.null func) (i32.const 1000)) (i32.const -1)))) unreachable";
    let started = format!("(func $s {until}) (start $s)");
    let segment = "(data (i32.const 70000000) \"x\")";
    let element = "(table 1 funcref) (func $e) (elem (i32.const 5) $e)";
    check(vec![
        case("grow", Batch, memory, m().body("on-batch", until)),
        case("grow in init", Open, memory, m().body("init", until)),
        case("grow in start", Open, memory, m().field(started)),
        case("grow in handle", Handle, memory, m().body("handle", until)),
        case("minimum", Open, "memory", m().memory("2000")),
        case("4 GiB", Open, "memory", m().memory("65536")),
        case("table", Batch, "unreachable", m().field(table).body("on-batch", grow)),
        case("data beyond", Open, "out of bounds", m().field(segment)),
        case("elements beyond", Open, "out of bounds", m().field(element)),
        case(
            "load beyond",
            Batch,
            "out of bounds",
            m().body("on-batch", "(i32.load (i32.const -8))"),
        ),
        case(
            "store beyond",
            Batch,
            "out of bounds",
            m().body("on-batch", "(i32.store (i32.const -8) (i32.const 1)) unreachable"),
        ),
        case(
            "division",
            Batch,
            "divide by zero",
            m().body("on-batch", "(i32.div_u (i32.const 1) (i32.const 0))"),
        ),
    ]);
}

#[test]
fn storms_of_host_calls_end_at_the_deadline() {
    // Bytes at 2048 are zeros, for keys and texts of any length.
    check(vec![
        case(
            "get",
            Batch,
            TIME,
            storm("(call $get (i32.const 2048) (i32.const 8) (i32.const 4096))"),
        ),
        case(
            "put",
            Batch,
            TIME,
            storm("(call $put (i32.const 2048) (i32.const 8) (i32.const 4096) (i32.const 8))"),
        ),
        case("delete", Batch, TIME, storm("(call $delete (i32.const 2048) (i32.const 8))")),
        case(
            "scan",
            Batch,
            TIME,
            storm(
                "(call $scan (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const -1) (i32.const 0) (i32.const 4096))",
            ),
        ),
        case("log", Batch, TIME, storm("(call $log (i32.const 1) (i32.const 2048) (i32.const 8))")),
        case(
            "kv",
            Batch,
            TIME,
            storm(
                "(call $kv-get (i32.const 0) (i32.const 0) (i32.const 2048) (i32.const 8) (i32.const 4096))",
            ),
        ),
        case(
            "timer",
            Batch,
            TIME,
            storm(
                "(call $timer (i32.const 2048) (i32.const 8) (i64.const 1) (i32.const 0) (i32.const 0))",
            ),
        ),
        case(
            "http",
            Batch,
            TIME,
            storm(
                "(call $send (i32.const 2048) (i32.const 3) (i32.const 2048) (i32.const 3) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 4096))",
            ),
        ),
        case(
            "failures",
            Batch,
            TIME,
            storm("(call $failed (i32.const 0) (i32.const 2048) (i32.const 100000))"),
        ),
        case(
            "metrics",
            Batch,
            TIME,
            storm("(call $add (i32.const 2048) (i32.const 3) (f64.const 1))"),
        ),
        case(
            "growing state",
            Batch,
            "the state needs more than 1048576 bytes",
            storm(
                "(i32.store (i32.const 2048) (i32.add (i32.load (i32.const 2048)) (i32.const 1))) (call $put (i32.const 2048) (i32.const 1000) (i32.const 4096) (i32.const 1000))",
            ),
        ),
    ]);
}

#[test]
#[expect(clippy::too_many_lines, reason = "a list of cases")]
fn invalid_arguments_are_refused_before_they_are_copied() {
    let all = "(i32.const 0) (i32.const -1)";
    check(vec![
        case(
            "key of 4 GiB",
            Batch,
            "out of bounds",
            calling(&format!("(call $get {all} (i32.const 4096))")),
        ),
        case(
            "value of 4 GiB",
            Batch,
            "out of bounds",
            calling(&format!("(call $put (i32.const 2048) (i32.const 1) {all})")),
        ),
        case(
            "large value",
            Batch,
            "the state needs more than",
            calling("(call $put (i32.const 2048) (i32.const 1) (i32.const 0) (i32.const 1114112))"),
        ),
        case(
            "no key",
            Batch,
            "1 to 65536 bytes",
            calling("(call $put (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0))"),
        ),
        case(
            "long key",
            Batch,
            "1 to 65536 bytes",
            calling("(call $put (i32.const 0) (i32.const 65537) (i32.const 0) (i32.const 0))"),
        ),
        case(
            "long name",
            Batch,
            "1 to 1024 bytes",
            calling(
                "(call $timer (i32.const 2048) (i32.const 1025) (i64.const 0) (i32.const 0) (i32.const 0))",
            ),
        ),
        case(
            "many keys",
            Batch,
            "list pointer/length out of bounds of memory",
            calling(
                "(call $get-many (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 536870911) (i32.const 4096))",
            ),
        ),
        case(
            "many changes",
            Batch,
            "list pointer/length out of bounds of memory",
            calling("(call $apply (i32.const 2048) (i32.const 214748364))"),
        ),
        case(
            "4 GB of changes",
            Batch,
            "too much data is being copied between the host and the guest",
            calling(CHANGES),
        ),
        case(
            "a change of no key",
            Batch,
            "1 to 65536 bytes",
            calling(
                "(i32.store (i32.const 2056) (i32.const 1)) (call $apply (i32.const 2048) (i32.const 1))",
            ),
        ),
        case(
            "a change that neither is nor is not",
            Batch,
            "invalid option discriminant",
            calling(
                "(i32.store (i32.const 2056) (i32.const 77)) (call $apply (i32.const 2048) (i32.const 1))",
            ),
        ),
        case(
            "keys that overlap",
            Batch,
            "too many keys",
            calling(
                "(call $get-many (i32.const 0) (i32.const 0) (i32.const 2048) (i32.const 2000) (i32.const 4096))",
            ),
        ),
        case(
            "no text",
            Batch,
            "utf-8",
            calling(
                "(i32.store (i32.const 2048) (i32.const -1)) (call $log (i32.const 1) (i32.const 2048) (i32.const 4))",
            ),
        ),
        case(
            "no level",
            Batch,
            "unexpected discriminant: 77",
            calling("(call $log (i32.const 77) (i32.const 2048) (i32.const 4))"),
        ),
        case(
            "misaligned list",
            Batch,
            "not aligned",
            calling(
                "(call $get-many (i32.const 0) (i32.const 0) (i32.const 2049) (i32.const 1) (i32.const 4096))",
            ),
        ),
        case(
            "result beyond",
            Batch,
            "pointer out of bounds",
            calling("(call $get (i32.const 2048) (i32.const 1) (i32.const -4))"),
        ),
        case(
            "misaligned result",
            Batch,
            "not aligned",
            calling("(call $get (i32.const 2048) (i32.const 1) (i32.const 4097))"),
        ),
        case(
            "headers of 4 GiB",
            Batch,
            "list pointer/length out of bounds of memory",
            calling(
                "(call $send (i32.const 2048) (i32.const 3) (i32.const 2048) (i32.const 3) (i32.const 0) (i32.const 268435455) (i32.const 0) (i32.const 0) (i32.const 4096))",
            ),
        ),
    ]);
}

#[test]
fn a_running_call_can_be_profiled() {
    let functions = "(func $busy (loop $l (br $l))) (func $caller (call $busy))";
    let module = m().field(functions).body("handle", "(call $caller) i32.const 1024");
    let plugin = super::load("busy", &module.component()).unwrap();
    let storage = Box::new(super::MemoryStorage::default());
    let partition = super::Partition::open(plugin, super::setup(DEADLINE), storage).unwrap();
    let reader = partition.reader();
    let ended = || {
        let error = reader.handle(&super::Request::default(), super::NOW).err().unwrap();
        assert!(error.to_string().contains(TIME), "{error}");
    };
    ended();
    assert!(reader.begin_profile());
    assert!(!reader.begin_profile(), "it is under way");
    ended();
    let told = reader.end_profile();
    let read = |line: &str| {
        let (stack, count) = line.rsplit_once(' ').unwrap();
        (count.parse::<u32>().unwrap(), stack.to_owned())
    };
    let mut stacks: Vec<_> = told.lines().map(read).collect();
    stacks.sort_unstable();
    let (count, stack) = stacks.pop().unwrap();
    // A tick may occur while the request is copied in.
    assert!(stack.ends_with(";caller;busy") && stacks.len() <= 1, "{told}");
    assert!((2..=41).contains(&count), "once a tick: {told}");
    ended();
    assert_eq!(reader.end_profile(), "", "nothing was counted since");
}
