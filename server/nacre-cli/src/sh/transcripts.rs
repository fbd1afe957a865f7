//! Tests from a script to a transcript: the output of a shell, with prepared answers.

use super::ask::{Answer, Ask, Request};
use super::session::{Session, Stop};
use super::settings::Settings;
use serde_json::{Value, json};
use std::cell::RefCell;
use std::io::{self, Write};
use std::rc::Rc;
use std::time::Duration;

/// A fake node that chooses its answer by the beginning of a statement, and records the requests.
struct Fake {
    answers: Vec<(&'static str, Value)>,
    paper: Paper,
}

impl Ask for Fake {
    fn ask(&mut self, request: &Request) -> Result<Answer, String> {
        writeln!(self.paper, "→ {}", Value::Object(request.clone())).unwrap();
        let statement = request["statement"].as_str().unwrap();
        let answer = self.answers.iter().find(|(beginning, _)| statement.starts_with(beginning));
        let (_, answer) = answer.ok_or("nobody is there")?;
        Answer::read(answer.to_string().as_bytes(), Duration::from_micros(1234))
    }
}

/// Collects all output, in order.
#[derive(Clone, Default)]
struct Paper(Rc<RefCell<Vec<u8>>>);

impl Write for Paper {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn answers() -> Vec<(&'static str, Value)> {
    let rows = |rows: Value| json!({"results": rows, "status": "success"});
    let place = json!({"line": 2, "column": 3});
    let syntax = json!({"code": 3000, "msg": "syntax error", "reason": place});
    vec![
        ("SELECT 1", rows(json!([{"a": 1, "b": "x"}, {"a": 2}]))),
        ("SELECT RAW", rows(json!([1]))),
        ("SELECT +", json!({"results": [], "errors": [syntax], "status": "fatal"})),
        (
            "SELECT half",
            json!({"results": [{"a": 1}], "errors": [{"code": 5010, "msg": "broke"}], "status": "errors"}),
        ),
        ("BEGIN", rows(json!([{"txid": "t-1"}]))),
        ("START", rows(json!([{"txid": "t-2"}]))),
        (
            "COMMIT LATE",
            json!({"results": [], "errors": [{"code": 17007, "msg": "commit failed"}], "status": "errors"}),
        ),
        (
            "COMMIT +",
            json!({"results": [], "errors": [{"code": 3000, "msg": "syntax error"}], "status": "fatal"}),
        ),
        ("COMMIT", rows(json!([]))),
        ("ROLLBACK", rows(json!([]))),
        (
            "UPDATE late",
            json!({"results": [], "errors": [{"code": 17010, "msg": "Transaction timeout"}], "status": "fatal"}),
        ),
        ("INSERT", json!({"results": [], "status": "success", "metrics": {"mutationCount": 2}})),
        ("EXPLAIN", rows(json!([{"plan": {"#operator": "DummyScan"}, "text": "x"}]))),
        ("SELECT IFMISSING", rows(json!([{"bucket": "b", "collection": "c", "scope": "s"}]))),
        (
            "SELECT i.name",
            rows(json!([{"keyspace": "b.s.c", "keys": ["`a`"], "name": "i", "state": "online"}])),
        ),
        (
            "SELECT META(d).id",
            rows(json!([{"document": {"name": "Le Procope"}, "id": "r1", "score": 1.25}])),
        ),
        (
            "INFER",
            rows(json!([[
                {"#docs": 1, "properties": {"n": {"#docs": 1, "type": "number"},
                    "x": {"#docs": [0, 1], "type": ["null", "string"]}}},
                {"#docs": 2, "properties": {"n": {"#docs": 2, "type": "number"}}}
            ]])),
        ),
    ]
}

/// Returns the requests and output of a session, and its end.
fn transcript(script: &str, keep_going: bool) -> String {
    let paper = Paper::default();
    let mut node = Fake { answers: answers(), paper: paper.clone() };
    let (mut out, mut errors) = (paper.clone(), paper.clone());
    let settings = Settings::default();
    let mut session = Session::new(&mut node, &mut out, &mut errors, || None, settings);
    session.keep_going = keep_going;
    let ended = match session.run_script("script", &mut script.as_bytes()) {
        Ok(()) => "ended",
        Err(Stop::Quit) => "quit",
        Err(Stop::Failed) => "failed",
        Err(Stop::Closed(_)) => "closed",
    };
    let said = String::from_utf8(paper.0.take()).unwrap();
    format!("{said}{ended}\n")
}

#[test]
fn rows_are_shown_in_the_configured_format() {
    insta::assert_snapshot!(transcript(
        "SELECT 1;\n\\set output json\nSELECT 1;\n\\set pretty off\nSELECT 1;\n\\set output jsonl\nSELECT 1;\n\
         \\set output csv\nSELECT 1;\n\\unset output\n\\set timing off\nSELECT RAW;INSERT",
        false
    ));
}

#[test]
fn settings_and_arguments_go_with_the_request() {
    insta::assert_snapshot!(transcript(
        "\\use travel-sample.inventory\n\\set consistency request_plus\n\\set timeout 10s\n\\set $city \"Łódź\";\n\
         \\set $n {\"a\": [1]}\n\\set\nSELECT RAW 1;\n\\unset $n\n\\unset context\n\\unset timeout\n\
         \\unset consistency\nSELECT RAW 2;",
        false
    ));
}

#[test]
fn a_script_ends_at_the_first_failure() {
    insta::assert_snapshot!(transcript("\\echo one\nSELECT +\n  FROM;\n\\echo two", false));
}

#[test]
fn a_script_that_keeps_going_reports_all_failures() {
    insta::assert_snapshot!(transcript(
        "SELECT +\n  FROM;\nSELECT half;\nNOBODY;\n\\nothing\n\\set output xml\n\\unset $x\n\\source\n\
         \\source /nowhere/file\n\\describe\n\\echo all; of it\n\\quit\n\\echo not this",
        true
    ));
}

#[test]
fn a_plan_is_a_tree_or_json() {
    insta::assert_snapshot!(transcript(
        "EXPLAIN SELECT 1;\n\\plan off\nexplain_not;\nEXPLAIN SELECT 1;\n\\plan on\n\\set output jsonl\nEXPLAIN SELECT 1;",
        true
    ));
}

#[test]
fn statements_belong_to_the_transaction_that_was_begun() {
    insta::assert_snapshot!(transcript(
        "\\set timing off\n\\set txtimeout 30s\nBEGIN WORK;INSERT;ROLLBACK TO SAVEPOINT s;COMMIT +;INSERT;COMMIT;INSERT;\n\
         START TRANSACTION;INSERT;ROLLBACK;INSERT;",
        true
    ));
}

#[test]
fn a_transaction_ends_when_it_cannot_be_committed_or_takes_too_long() {
    insta::assert_snapshot!(transcript(
        "\\set timing off\nBEGIN WORK;COMMIT LATE;INSERT;BEGIN WORK;UPDATE late;INSERT;BEGIN WORK;unknown;INSERT;",
        true
    ));
}

#[test]
fn an_unfinished_transaction_is_rolled_back() {
    let paper = Paper::default();
    let mut node = Fake { answers: answers(), paper: paper.clone() };
    let (mut out, mut errors) = (paper.clone(), paper.clone());
    let mut session = Session::new(&mut node, &mut out, &mut errors, || None, Settings::default());
    session.run_script("script", &mut &b"BEGIN WORK;"[..]).unwrap();
    assert!(session.is_in_transaction());
    assert!(matches!(session.end_transaction(), Err(Stop::Failed)));
    assert!(!session.is_in_transaction() && session.end_transaction().is_ok());
    let said = String::from_utf8(paper.0.take()).unwrap();
    assert!(said.contains(r#"{"statement":"ROLLBACK WORK","txid":"t-1"}"#), "{said}");
    assert!(said.ends_with("the transaction was not committed: it was rolled back\n"), "{said}");
}

#[test]
fn some_words_need_neither_a_backslash_nor_a_semicolon() {
    let said = transcript("SELECT 1;\n  help\nSELECT 1,\nhelp;\nQuit;\nSELECT 2;", false);
    assert!(said.contains("\\describe KEYSPACE") && said.contains("SELECT 1,\\nhelp"), "{said}");
    assert!(said.ends_with("quit\n") && !said.contains("SELECT 2"), "{said}");
}

#[test]
fn existing_keyspaces_can_be_listed() {
    insta::assert_snapshot!(transcript(
        "\\list\n\\indexes\n\\describe travel-sample.inventory.airport\n\\set output csv\n\\describe `a`.b.c",
        false
    ));
}

#[test]
fn a_text_is_searched_in_a_keyspace() {
    insta::assert_snapshot!(transcript(
        "\\set timing off\n\\search travel-sample.inventory.hotel quiet \"sea view\" -hostel\n\\search hotels",
        false
    ));
}

#[test]
fn the_commands_are_listed() {
    insta::assert_snapshot!(transcript("\\help", false));
}

#[test]
fn a_file_that_names_itself_ends() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap();
    std::fs::write(path, format!("\\echo once more\n\\source {path}\n")).unwrap();
    let said = transcript(&format!("\\source {path}\n"), false);
    assert_eq!(said.matches("once more").count(), 16, "{said}");
    assert!(said.contains("without end") && said.ends_with("failed\n"), "{said}");
}

#[test]
fn invalid_text_is_refused() {
    let paper = Paper::default();
    let mut node = Fake { answers: answers(), paper: paper.clone() };
    let (mut out, mut errors) = (paper.clone(), paper.clone());
    let mut session = Session::new(&mut node, &mut out, &mut errors, || None, Settings::default());
    let ended = session.run_script("script", &mut &b"SELECT 1;\nSELECT '\xff';\n"[..]);
    assert!(matches!(ended, Err(Stop::Failed)));
    let said = String::from_utf8(paper.0.take()).unwrap();
    assert!(said.contains("2 rows") && said.contains("cannot read script: "), "{said}");
}
