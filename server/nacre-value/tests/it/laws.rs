//! Laws: editing the text equals editing the value, and no input makes the crate panic.

use nacre_value::multi::{Flags, LookupOperation, MutationOperation, Source, Spec};
use nacre_value::path::Path;
use nacre_value::subdoc::{Lookup, Mutation, lookup, mutate};
use nacre_value::{json, multi, xattr};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use serde_json::{Value, json};

const NAMES: [&str; 4] = ["a", "b", "c d", "é"];

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[a-c\"\\\\é\n]{0,9}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let name = prop::sample::select(&NAMES[..]).prop_map(str::to_owned);
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            btree_map(name, inner, 0..4).prop_map(|members| json!(members)),
        ]
    })
}

#[derive(Clone, Debug)]
enum Step {
    Name(&'static str),
    Index(usize),
    Last,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => prop::sample::select(&NAMES[..]).prop_map(Step::Name),
        2 => (0usize..4).prop_map(Step::Index),
        1 => Just(Step::Last),
    ];
    vec(step, 1..5)
}

fn path_text(steps: &[Step]) -> String {
    let mut text = String::new();
    for step in steps {
        match step {
            Step::Name(name) if text.is_empty() => text.push_str(name),
            Step::Name(name) => text.push_str(&format!(".{name}")),
            Step::Index(index) => text.push_str(&format!("[{index}]")),
            Step::Last => text.push_str("[-1]"),
        }
    }
    text
}

fn child<'v>(value: &'v mut Value, step: &Step) -> Option<&'v mut Value> {
    match (value, step) {
        (Value::Object(members), Step::Name(name)) => members.get_mut(*name),
        (Value::Array(elements), Step::Index(index)) => elements.get_mut(*index),
        (Value::Array(elements), Step::Last) => elements.last_mut(),
        _ => None,
    }
}

fn find<'v>(value: &'v mut Value, steps: &[Step]) -> Option<&'v mut Value> {
    steps.iter().try_fold(value, child)
}

/// Makes the same edit on the parsed value; `None` if it is not possible.
fn model(mut root: Value, operation: Mutation, steps: &[Step], new: &Value) -> Option<Value> {
    let (last, parent_steps) = steps.split_last()?;
    if let Mutation::ArrayPushLast | Mutation::ArrayPushFirst = operation {
        let array = find(&mut root, steps)?.as_array_mut()?;
        let at = if operation == Mutation::ArrayPushLast { array.len() } else { 0 };
        array.insert(at, new.clone());
        return Some(root);
    }
    let parent = find(&mut root, parent_steps)?;
    let exists = child(parent, last).is_some();
    match (operation, parent, last) {
        (Mutation::DictAdd, Value::Object(members), Step::Name(name)) if !exists => {
            members.insert((*name).to_owned(), new.clone());
        }
        (Mutation::DictUpsert, Value::Object(members), Step::Name(name)) => {
            members.insert((*name).to_owned(), new.clone());
        }
        (Mutation::Replace, parent, last) => *child(parent, last)? = new.clone(),
        (Mutation::Delete, Value::Object(members), Step::Name(name)) => {
            members.remove(*name)?;
        }
        (Mutation::Delete, Value::Array(elements), Step::Index(index)) if exists => {
            elements.remove(*index);
        }
        (Mutation::Delete, Value::Array(elements), Step::Last) => {
            elements.pop()?;
        }
        (Mutation::ArrayInsert, Value::Array(elements), Step::Index(index))
            if *index <= elements.len() =>
        {
            elements.insert(*index, new.clone());
        }
        _ => return None,
    }
    Some(root)
}

/// Renders a document, optionally with white space in unusual places.
fn render(value: &Value, spaced: bool) -> String {
    if spaced { format!(" {value:#}\n\t") } else { value.to_string() }
}

const LOOKUPS: [Lookup; 3] = [Lookup::Get, Lookup::Exists, Lookup::GetCount];

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn editing_the_text_is_editing_the_value(
        root in value(), new in value(), steps in steps(), spaced: bool,
        operation in prop::sample::select(&Mutation::ALL[..7]),
    ) {
        let text = render(&root, spaced);
        let path_text = path_text(&steps);
        let path = Path::parse(path_text.as_bytes()).unwrap();
        let value = render(&new, spaced);
        let edited = mutate(text.as_bytes(), operation, &path, value.as_bytes(), false);
        let edited = edited.ok().map(|edited| serde_json::from_slice::<Value>(&edited.document).unwrap());
        prop_assert_eq!(edited, model(root, operation, &steps, &new));
    }

    #[test]
    fn a_value_stored_at_a_path_is_found_there(root in value(), new in value(), steps in steps(), spaced: bool) {
        let text = render(&root, spaced);
        let path_text = path_text(&steps);
        let path = Path::parse(path_text.as_bytes()).unwrap();
        let put = mutate(text.as_bytes(), Mutation::DictUpsert, &path, new.to_string().as_bytes(), true);
        if let Ok(edited) = put {
            let found = lookup(&edited.document, Lookup::Get, &path).unwrap().into_owned();
            prop_assert_eq!(String::from_utf8(found).unwrap(), new.to_string());
            prop_assert!(json::is_json(&edited.document));
        }
    }

    #[test]
    fn an_edit_with_any_text_leaves_json_or_fails(
        root in value(), steps in steps(), text in "[ \\[\\]{}:,\"a\\\\0-9.eE+-]{0,12}", create: bool,
    ) {
        let (document, path_text) = (render(&root, false), path_text(&steps));
        let path = Path::parse(path_text.as_bytes()).unwrap();
        for operation in Mutation::ALL {
            if let Ok(edited) = mutate(document.as_bytes(), operation, &path, text.as_bytes(), create) {
                let document = String::from_utf8(edited.document).unwrap();
                prop_assert!(json::is_json(document.as_bytes()), "{:?} {}: {}", operation, text, document);
            }
        }
    }

    #[test]
    fn validation_agrees_with_serde_json(text in "[ \\[\\]{}:,\"a\\\\0-9.eE+-]{0,12}") {
        let parsed = serde_json::from_str::<serde::de::IgnoredAny>(&text);
        prop_assert_eq!(json::is_json(text.as_bytes()), parsed.is_ok(), "{}", text);
    }

    #[test]
    fn cut_and_spoilt_documents_never_panic(
        root in value(), steps in steps(), cut: prop::sample::Index, spoil: prop::sample::Index, byte: u8, create: bool,
    ) {
        let mut text = render(&root, true).into_bytes();
        let at = spoil.index(text.len());
        text[at] = byte;
        text.truncate(cut.index(text.len() + 1));
        let path_text = path_text(&steps);
        let path = Path::parse(path_text.as_bytes()).unwrap();
        every_operation(&text, &path, &text, create);
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in vec(any::<u8>(), 0..64), other in vec(any::<u8>(), 0..24), create: bool) {
        json::is_json(&bytes);
        if let Ok(path) = Path::parse(&other) {
            every_operation(&bytes, &path, &other, create);
        }
        let _ = xattr::split(&bytes);
        if let Ok(xattrs) = xattr::Xattrs::parse(&bytes) {
            let encoded = xattrs.encode();
            prop_assert_eq!(xattr::Xattrs::parse(&encoded).unwrap(), xattrs);
        }
        every_request(&bytes, &other);
    }
}

fn every_operation(document: &[u8], path: &Path<'_>, value: &[u8], create: bool) {
    for operation in LOOKUPS {
        let _ = lookup(document, operation, path);
    }
    for operation in Mutation::ALL {
        for value in [value, b"1"] {
            let _ = mutate(document, operation, path, value, create);
        }
    }
}

fn every_request(bytes: &[u8], path: &[u8]) {
    let source = Source { xattrs: bytes, body: bytes, body_is_json: true, deleted: false };
    for xattr in [false, true] {
        let flags = Flags { create_path: true, xattr, expand_macros: xattr, ..Flags::default() };
        for operation in
            LOOKUPS.map(LookupOperation::Path).into_iter().chain([LookupOperation::Document])
        {
            let _ =
                multi::lookup(&source, &[Spec { operation, flags, path, value: b"" }], &|_| None);
        }
        for operation in Mutation::ALL.map(MutationOperation::Path) {
            let spec = Spec { operation, flags, path, value: bytes };
            let _ = multi::mutate(
                &source,
                &[spec],
                &|_| Some(bytes.to_vec()),
                multi::Macros::default(),
            );
        }
    }
}
