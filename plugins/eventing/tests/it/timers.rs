//! Timers, and `OnDeploy`, which is one.

use crate::fixture::*;
use std::time::Duration;

#[test]
fn timers_fire_once_with_their_context() {
    let mut function = function(
        "function Late(context, reference) { dst[reference] = context }
         function OnUpdate(doc, meta) { createTimer(Late, new Date(Date.now() + doc.in), meta.id, doc) }
         function OnDelete(meta) { cancelTimer(Late, meta.id) }",
    );
    function
        .put("a", r#"{"in":1000}"#)
        .put("b", r#"{"in":5000}"#)
        .put("c", r#"{"in":-1e9}"#)
        .feed()
        .unwrap();
    function.delete("b").feed().unwrap();
    function.advance(Duration::from_secs(10)).unwrap();
    assert_eq!(body(&function, "shop.copies", "a"), r#"{"in":1000}"#);
    assert_eq!(body(&function, "shop.copies", "b"), "none");
    assert_eq!(body(&function, "shop.copies", "c"), r#"{"in":-1000000000}"#, "what is past is due");
    assert_eq!(count(&function, "timer_callback_success"), 2.0);
    assert_eq!(count(&function, "timer_create_counter"), 3.0);
    assert_eq!(function.timers(), []);
}

#[test]
fn cancelling_reports_whether_a_timer_existed() {
    let mut function = function(
        "function Top() {}
         function OnUpdate(doc, meta) {
            log(cancelTimer(Top, 'a'));
            createTimer(Top, new Date(Date.now() + 1000), 'a');
            if (doc.cancel) log(cancelTimer(Top, 'a'), cancelTimer(Top, 'a'));
         }",
    );
    function.put("a", "{}").feed().unwrap();
    function.put("a", r#"{"cancel":true}"#).feed().unwrap();
    assert_eq!(log(&function), "[INFO] false\n[INFO] true\n[INFO] true false");
    assert_eq!((function.timers().len(), count(&function, "timer_cancel_counter")), (0, 2.0));
}

#[test]
fn a_failed_callback_does_not_delay_others() {
    let mut function = function(
        "const at = new Date(0);
         export function Bad() { throw new Error('bad timer') }
         export function Good(context) { log(context) }
         export function OnUpdate(doc, meta) { createTimer(Bad, at, 'x'); createTimer(Good, at, null, 1); createTimer(Good, at, null, 2); createTimer(Good, at, 'same', 3); createTimer(Good, at, 'same', 4) }",
    );
    assert_eq!(function.put("a", "{}").feed().unwrap(), []);
    function.advance(Duration::ZERO).unwrap();
    insta::assert_snapshot!(log(&function), @r#"
    [ERROR] timer "Bad:x": Error: bad timer (line 2, column 44)
    [INFO] 1
    [INFO] 2
    [INFO] 4
    "#);
    assert_eq!(count(&function, "timer_callback_failure"), 1.0);
}

#[test]
fn invalid_timers_throw_exceptions() {
    let mut function = function(
        "function Top() {}
         function OnUpdate(doc, meta) {
            const attempt = (f) => { try { log(f()) } catch (e) { log(e.name + ': ' + e.message) } };
            const inner = () => {};
            attempt(() => createTimer(inner, new Date(), 'a'));
            attempt(() => createTimer('Top', new Date(), 'a'));
            attempt(() => createTimer(Top, 'tomorrow', 'a'));
            attempt(() => createTimer(Top, new Date(NaN), 'a'));
            attempt(() => createTimer(Top, new Date(), 'a', 'x'.repeat(1023)));
            attempt(() => createTimer(Top, new Date(Date.now() + 3.2e12), 'century', 'x'.repeat(1022)));
            attempt(() => createTimer(Top, new Date(), 'x'.repeat(1021)));
        }",
    );
    assert_eq!(function.put("a", "{}").feed().unwrap(), []);
    insta::assert_snapshot!(log(&function), @r#"
    [INFO] "EventingError: createTimer needs a function that is declared at the top level"
    [INFO] "EventingError: createTimer needs a function that is declared at the top level"
    [INFO] "EventingError: createTimer needs a Date"
    [INFO] "EventingError: createTimer needs a Date"
    [INFO] "EventingError: the context of a timer has 1025 bytes, more than 1024"
    [INFO] "century"
    [INFO] "EventingError: a timer is named by at most 1024 bytes of callback and reference"
    "#);
    assert_eq!(function.timers().len(), 1);
}

#[test]
fn timers_of_a_failed_handler_do_not_fire() {
    let mut function = function(
        "function Top() { log('fired') }
         function OnUpdate(doc, meta) { createTimer(Top, new Date(0), 'a'); throw new Error('late') }",
    );
    function.put("a", "{}").feed().unwrap();
    function.advance(Duration::from_secs(1)).unwrap();
    assert_eq!(function.timers(), []);
    assert!(!log(&function).contains("fired"));
}

#[test]
fn a_timer_belongs_to_the_vbucket_that_it_was_set_for() {
    let mut function = function(
        "function Top(again) { if (again) createTimer(Top, new Date(Date.now() + 60000), 'again') }
         function OnUpdate(doc, meta) { createTimer(Top, new Date(0), meta.id, true) }",
    );
    function.put("a", "{}").put("b", "{}").put("c", "{}").feed().unwrap();
    let vbs = |timers: Vec<nacre_plugin::Timer>| timers.iter().map(|t| t.vb).collect::<Vec<_>>();
    assert_eq!(vbs(function.timers()), [Some(0); 3]);
    function.advance(Duration::from_secs(1)).unwrap();
    assert_eq!(vbs(function.timers()), [Some(0)], "so does one that it sets");
}

#[test]
fn timers_of_a_handler_that_fails_are_not_counted() {
    let mut function = function(
        "function Late() {}
         function OnUpdate(doc, meta) {
            createTimer(Late, new Date(Date.now() + 1000), meta.id);
            cancelTimer(Late, 'other');
            if (doc.bad) throw new Error('bad');
         }",
    );
    function.put("a", r#"{"bad":true}"#).put("b", "{}").feed().unwrap();
    assert_eq!((function.timers().len(), count(&function, "timer_create_counter")), (1, 1.0));
    assert_eq!(count(&function, "timer_cancel_counter"), 0.0);
}
