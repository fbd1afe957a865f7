//! Requests of several operations, written as text.
//!
//! ```text
//! body {"a":1}             the document's body; `body-raw` for one that is not JSON, `deleted` for a tombstone
//! xattr key {"b":2}        an attribute
//! ? get a ; x:get $document.CAS ; doc            a lookup; `x:` works on attributes
//! ! x:dict-add+ k.v 1 ; set-doc {}               a mutation; `+` creates missing parents, `m:` works on
//! attributes and expands macros
//! ```

use nacre_value::Error;
use nacre_value::multi::{
    Body, Failure, Flags, LookupOperation, LookupSpec, Macros, MutationOperation, MutationSpec,
    RESULT_BYTES_MAX, Source, Spec, lookup, mutate,
};
use nacre_value::subdoc::{Lookup, Mutation};
use nacre_value::xattr::Xattrs;

fn virtuals(name: &str) -> Option<Vec<u8>> {
    (name == "$document").then(|| br#"{"CAS":"0x01","exptime":0}"#.to_vec())
}

const MACROS: Macros = Macros { cas: 0x0102_0304_0506_0708, seqno: 9 };

fn play(script: &str) -> String {
    let mut xattrs = Xattrs::default();
    let mut body = String::new();
    let (mut body_is_json, mut deleted) = (true, false);
    let mut out = String::new();
    for line in script.trim().lines().map(str::trim) {
        out.push_str(&format!("{line}\n"));
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let section = xattrs.encode();
        let source = Source { xattrs: &section, body: body.as_bytes(), body_is_json, deleted };
        match word {
            "" | "#" => {}
            "body" | "body-raw" => {
                body_is_json = word == "body";
                body = rest.to_owned();
            }
            "deleted" => deleted = true,
            "xattr" => {
                let (key, value) = rest.split_once(' ').unwrap();
                xattrs.set(key, value.as_bytes()).unwrap();
            }
            "?" => out.push_str(&show_lookup(&source, rest)),
            "!" => out.push_str(&show_mutation(&source, rest)),
            other => panic!("no command {other}"),
        }
    }
    out
}

fn spec<'a, O>(text: &'a str, operation: impl Fn(&str) -> O) -> Spec<'a, O> {
    let binary = text.starts_with("b:") || text.starts_with("bad-b:");
    let (text, xattr, expand_macros) = match text.split_once(':') {
        Some(("x", rest)) => (rest, true, false),
        Some(("m", rest)) => (rest, true, true),
        Some(("bad-m", rest)) => (rest, false, true),
        Some(("b", rest)) => (rest, true, false),
        Some(("bad-b", rest)) => (rest, false, false),
        _ => (text, false, false),
    };
    let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
    let whole = word.ends_with("-doc");
    let (path, value) = if whole { ("", rest) } else { rest.split_once(' ').unwrap_or((rest, "")) };
    let flags = Flags { create_path: word.ends_with('+'), xattr, expand_macros, binary };
    Spec {
        operation: operation(word.trim_end_matches('+')),
        flags,
        path: path.as_bytes(),
        value: value.as_bytes(),
    }
}

fn lookup_spec(text: &str) -> LookupSpec<'_> {
    spec(text, |word| match word {
        "get" => LookupOperation::Path(Lookup::Get),
        "exists" => LookupOperation::Path(Lookup::Exists),
        "get-count" => LookupOperation::Path(Lookup::GetCount),
        "get-doc" => LookupOperation::Document,
        other => panic!("no lookup {other}"),
    })
}

fn mutation_spec(text: &str) -> MutationSpec<'_> {
    spec(text, |word| match word {
        "dict-add" => MutationOperation::Path(Mutation::DictAdd),
        "dict-upsert" => MutationOperation::Path(Mutation::DictUpsert),
        "delete" => MutationOperation::Path(Mutation::Delete),
        "push-last" => MutationOperation::Path(Mutation::ArrayPushLast),
        "counter" => MutationOperation::Path(Mutation::Counter),
        "set-doc" => MutationOperation::SetDocument,
        "remove-doc" => MutationOperation::RemoveDocument,
        "body-from" => MutationOperation::ReplaceBodyWithXattr,
        other => panic!("no mutation {other}"),
    })
}

fn show_lookup(source: &Source<'_>, text: &str) -> String {
    let specs: Vec<_> = text.split(" ; ").map(lookup_spec).collect();
    match lookup(source, &specs, &virtuals) {
        Err(error) => format!("  request: {error:?}\n"),
        Ok(answers) => answers
            .iter()
            .map(|answer| match answer {
                Ok(text) => format!("  {}\n", String::from_utf8_lossy(text)),
                Err(error) => format!("  {error:?}\n"),
            })
            .collect(),
    }
}

fn show_mutation(source: &Source<'_>, text: &str) -> String {
    let specs: Vec<_> = text.split(" ; ").map(mutation_spec).collect();
    let mutated = match mutate(source, &specs, &virtuals, MACROS) {
        Err(Failure::Request(error)) => return format!("  request: {error:?}\n"),
        Err(Failure::Spec { index, error }) => return format!("  {index}: {error:?}\n"),
        Ok(mutated) => mutated,
    };
    let mut out = String::new();
    for (key, value) in Xattrs::parse(&mutated.xattrs).unwrap().iter() {
        out.push_str(&format!("  xattr {key} {}\n", String::from_utf8_lossy(value)));
    }
    out.push_str(&match mutated.body {
        Body::Unchanged => "  body unchanged\n".to_owned(),
        Body::Removed => "  body removed\n".to_owned(),
        Body::Set(text) | Body::Edited(text) => {
            format!("  body {}\n", String::from_utf8_lossy(&text))
        }
    });
    for (index, result) in mutated.results {
        out.push_str(&format!("  {index} gives {}\n", String::from_utf8_lossy(&result)));
    }
    out
}

#[test]
fn lookups_answer_each_operation_for_itself() {
    insta::assert_snapshot!(play(
        r#"
        body {"a":[1,2]}
        xattr meta {"v":{"w":1}}
        ? x:get meta.v ; x:exists meta ; x:get-count meta ; x:get other ; x:get $document.CAS ; x:get $nope ; get a ; get-count a ; get b ; get-doc
        ? get a ; x:get meta
        ? x:get sixteen_bytes_xx
        ? x:get
        ? bad-m:get a
        ? get a..b
        body-raw binary
        ? x:get meta.v.w ; get a ; get-doc
        deleted
        ? x:get meta ; get a ; get-doc
    "#
    ));
}

#[test]
fn mutations_happen_as_a_whole() {
    insta::assert_snapshot!(play(
        r#"
        body {"a":1}
        xattr keep {"n":1}
        ! x:counter keep.n 4 ; x:dict-add+ _sys.x.y "z" ; counter a 1 ; dict-add b [] ; push-last b 2 ; counter b[0] 5
        ! x:dict-upsert keep 7 ; dict-add a 2 ; delete nope
        ! x:dict-upsert keep 7 ; dict-add c 2 ; delete nope
        ! x:delete keep
        ! x:delete nope
        ! dict-add c 1 ; x:delete keep
        ! x:dict-upsert $document.CAS 1
        ! x:dict-upsert keep nonsense
        ! x:delete nope ; delete nope
        ! set-doc {"new":1}
        ! x:dict-add _sys 1 ; remove-doc
        ! set-doc {} ; dict-add a 1
        ! x:dict-upsert+ txn.staged {"s":1} ; x:body-from txn.staged ; x:delete txn
        ! x:body-from keep.none
        ! body-from keep
        body-raw binary
        ! x:dict-upsert keep 2
        ! dict-upsert a 2
        deleted
        ! x:dict-upsert keep 2
        ! set-doc 1
        ! remove-doc
    "#
    ));
}

#[test]
fn macros_are_expanded_in_attributes() {
    insta::assert_snapshot!(play(
        r#"
        body {"a":1}
        ! m:dict-upsert x "${Mutation.CAS}" ; m:dict-upsert+ y.z "${Mutation.seqno}" ; m:dict-upsert d "${$document.CAS}"
        ! m:dict-upsert crc "${Mutation.value_crc32c}"
        ! m:dict-upsert crc "${Mutation.value_crc32c}" ; set-doc 123456789
        ! x:dict-upsert x "${Mutation.CAS}"
        ! m:dict-upsert x "${Mutation.nope}"
        ! m:dict-upsert x "plain"
        ! m:dict-upsert x "${$document.nope}"
        ! m:dict-upsert x "${$nope.CAS}"
        ! bad-m:dict-upsert x "${Mutation.CAS}"
    "#
    ));
}

#[test]
fn attributes_hold_bytes_of_any_kind() {
    insta::assert_snapshot!(play(
        r#"
        body {}
        ! b:dict-upsert+ _bin.a not "json" at all
        xattr _bin {"a":"cb-content-base64-encoded:bm90ICJqc29uIiBhdCBhbGw=","b":"plain"}
        ? x:get _bin.a ; b:get _bin.a ; b:exists _bin.a
        ? b:get _bin.b ; b:get _bin.c
        ! b:body-from _bin.a
        ! b:body-from _bin.b
        ! bad-b:dict-upsert a 1
    "#
    ));
}

#[test]
fn a_request_has_one_to_sixteen_operations() {
    let source = Source::missing(&[]);
    let spec = lookup_spec("get-count");
    let run = |count| lookup(&source, &vec![spec; count], &virtuals).map(|answers| answers.len());
    assert_eq!(run(0), Err(Error::InvalidCombination));
    assert_eq!(run(16), Ok(16));
    assert_eq!(run(17), Err(Error::InvalidCombination));
}

#[test]
fn a_missing_document_is_created_by_its_first_operation() {
    let body = |text: &'static str| {
        let specs: Vec<_> = text.split(" ; ").map(mutation_spec).collect();
        String::from_utf8(Source::missing(&specs).body.to_vec()).unwrap()
    };
    assert_eq!(body("push-last"), "[]");
    assert_eq!(body("x:dict-add a 1 ; push-last"), "[]");
    assert_eq!(body("push-last a"), "{}");
    assert_eq!(body("x:dict-add a 1"), "{}");
    assert_eq!(body("set-doc 1"), "{}");
}

#[test]
fn results_together_are_limited_to_the_size_of_a_document() {
    let body = format!("{{\"a\":\"{}\"}}", "x".repeat(RESULT_BYTES_MAX / 2 - 2));
    let source = Source { body: body.as_bytes(), body_is_json: true, ..Source::missing(&[]) };
    let spec = lookup_spec("get a");
    let run = |count| lookup(&source, &vec![spec; count], &virtuals).map(|answers| answers.len());
    assert_eq!(run(2), Ok(2));
    assert_eq!(run(3), Err(Error::ResultTooBig));
}
