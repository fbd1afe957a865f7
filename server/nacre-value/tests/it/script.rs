//! Scripts of operations on one document. The transcript contains each line of a script with its result.
//!
//! ```text
//! doc {"a":1}              sets the document
//! get a                    a lookup: get, exists, get-count
//! dict-add+ b.c 2          a mutation, with + creating missing parents; the next line continues with the
//! result
//! push-last - 1,2          - is the root
//! ```

use nacre_value::path::Path;
use nacre_value::subdoc::{Lookup, Mutation, lookup, mutate};

#[test]
fn scripts_give_their_transcripts() {
    insta::glob!("scripts/*.txt", |file| {
        #[expect(clippy::disallowed_methods, reason = "a test reads its script")]
        let script = std::fs::read_to_string(file).unwrap();
        insta::assert_snapshot!(play(&script));
    });
}

fn play(script: &str) -> String {
    let mut document = String::new();
    let mut out = String::new();
    for line in script.lines() {
        out.push_str(line);
        out.push('\n');
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        if word.is_empty() || word == "#" {
            continue;
        }
        if word == "doc" {
            document = rest.to_owned();
            continue;
        }
        let outcome = step(&document, word, rest);
        match outcome {
            Ok((edited, text)) => {
                out.push_str(&format!("  {text}\n"));
                document = edited;
            }
            Err(error) => out.push_str(&format!("  {error:?}\n")),
        }
    }
    out
}

fn step(document: &str, word: &str, rest: &str) -> Result<(String, String), nacre_value::Error> {
    let (path, value) = rest.split_once(' ').unwrap_or((rest, ""));
    let path = Path::parse(if path == "-" { b"" } else { path.as_bytes() })?;
    let read = match word {
        "get" => Some(Lookup::Get),
        "exists" => Some(Lookup::Exists),
        "get-count" => Some(Lookup::GetCount),
        _ => None,
    };
    if let Some(operation) = read {
        let found = lookup(document.as_bytes(), operation, &path)?;
        return Ok((document.to_owned(), String::from_utf8(found.into_owned()).unwrap()));
    }
    let operation = match word.trim_end_matches('+') {
        "dict-add" => Mutation::DictAdd,
        "dict-upsert" => Mutation::DictUpsert,
        "delete" => Mutation::Delete,
        "replace" => Mutation::Replace,
        "push-last" => Mutation::ArrayPushLast,
        "push-first" => Mutation::ArrayPushFirst,
        "insert" => Mutation::ArrayInsert,
        "add-unique" => Mutation::ArrayAddUnique,
        "counter" => Mutation::Counter,
        other => panic!("no operation {other}"),
    };
    let create = word.ends_with('+');
    let edited = mutate(document.as_bytes(), operation, &path, value.as_bytes(), create)?;
    let edited_text = String::from_utf8(edited.document).unwrap();
    let result = edited.result.map(|text| String::from_utf8(text).unwrap());
    let shown = match result {
        Some(result) => format!("{edited_text} gives {result}"),
        None => edited_text.clone(),
    };
    Ok((edited_text, shown))
}
