//! Types as Python typed dictionaries.

use super::shape::{Document, Field, Kind, Shape, in_comment, is_identifier, type_name};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt::Write;

/// Keywords, which cannot be names of class members.
const KEYWORDS: [&str; 36] = [
    "False",
    "None",
    "True",
    "and",
    "as",
    "assert",
    "async",
    "await",
    "break",
    "class",
    "continue",
    "def",
    "del",
    "elif",
    "else",
    "except",
    "finally",
    "for",
    "from",
    "global",
    "if",
    "import",
    "in",
    "is",
    "lambda",
    "nonlocal",
    "not",
    "or",
    "pass",
    "raise",
    "return",
    "try",
    "while",
    "with",
    "yield",
    "__debug__",
];

/// Types whose names have another meaning in a class that has members with these names.
const TYPES: [&str; 5] = ["bool", "dict", "float", "list", "str"];

/// Classes, in the order of their dependencies.
struct Module {
    text: String,
    taken: BTreeSet<String>,
}

/// Writes the types of documents as a module.
pub(super) fn write(bucket: &str, sample: u32, documents: &[Document]) -> String {
    let names = documents
        .iter()
        .flat_map(|document| document.flavors.iter().map(|(name, _)| name).chain([&document.name]));
    let taken = names.cloned().chain(["Any", "NotRequired", "TypedDict"].map(str::to_owned));
    let mut module = Module { text: String::new(), taken: taken.collect() };
    for document in documents {
        for (name, flavor) in &document.flavors {
            module.class(name, flavor.fields(), &flavor.about(&document.collection));
        }
        if document.flavors.len() != 1 || !document.others.kinds.is_empty() {
            let mut kinds: Vec<String> =
                document.flavors.iter().map(|(name, _)| name.clone()).collect();
            let others = &document.others.kinds;
            kinds.extend(others.iter().map(|kind| module.of_kind(kind, &document.name)));
            let union = if kinds.is_empty() { "Any".into() } else { kinds.join(" | ") };
            let place = in_comment(&document.collection);
            module.add(&format!("# Documents of {place}\n{} = {union}\n", document.name));
        }
    }
    format!(
        "# Types of documents in the bucket {}, which `nacre sdk types` has inferred from up to {sample} of each collection.\n\
         from typing import Any, NotRequired, TypedDict\n{}",
        in_comment(bucket),
        module.text
    )
}

impl Module {
    fn add(&mut self, text: &str) {
        self.text.push_str("\n\n");
        self.text.push_str(text);
    }

    /// Adds the class of an object, after the classes of the objects that it contains.
    fn class(&mut self, name: &str, fields: &[Field], about: &str) {
        let members: Vec<(&str, String)> = fields
            .iter()
            .map(|Field { name: member, shape, is_optional }| {
                let kind = self.of_shape(shape, &type_name(&[name, member]));
                let kind = if *is_optional { format!("NotRequired[{kind}]") } else { kind };
                (member.as_str(), kind)
            })
            .collect();
        let is_plain = |member: &str| {
            // In a class, names that begin with two underscores have a special meaning.
            is_identifier(member)
                && !member.starts_with("__")
                && !KEYWORDS.contains(&member)
                && !TYPES.contains(&member)
                && !self.taken.contains(member)
        };
        let mut text = format!("# {about}\n");
        if members.iter().all(|(member, _)| is_plain(member)) {
            writeln!(text, "class {name}(TypedDict):").expect("text takes all");
            for (member, kind) in &members {
                writeln!(text, "    {member}: {kind}").expect("text takes all");
            }
            if members.is_empty() {
                text.push_str("    pass\n");
            }
        } else {
            writeln!(text, "{name} = TypedDict(\n    \"{name}\",\n    {{").expect("text takes all");
            for (member, kind) in &members {
                // JSON strings are also Python string literals.
                let quoted = Value::from(*member).to_string();
                writeln!(text, "        {quoted}: {kind},").expect("text takes all");
            }
            text.push_str("    },\n)\n");
        }
        self.add(&text);
    }

    fn of_shape(&mut self, shape: &Shape, name: &str) -> String {
        match shape.kinds.as_slice() {
            [] => "Any".into(),
            kinds => {
                let kinds: Vec<_> = kinds.iter().map(|kind| self.of_kind(kind, name)).collect();
                kinds.join(" | ")
            }
        }
    }

    fn of_kind(&mut self, kind: &Kind, name: &str) -> String {
        match kind {
            Kind::Null => "None".into(),
            Kind::Boolean => "bool".into(),
            Kind::Number => "float".into(),
            Kind::Text => "str".into(),
            Kind::List(items) => format!("list[{}]", self.of_shape(items, name)),
            Kind::Object(fields) if fields.is_empty() => "dict[str, Any]".into(),
            Kind::Object(fields) => {
                let counted = (2..).map(|number| format!("{name}{number}"));
                let mut names = std::iter::once(name.to_owned()).chain(counted);
                let free = names.find(|name| self.taken.insert(name.clone()));
                let free = free.expect("there is no last number");
                self.class(&free, fields, "Part of a document");
                free
            }
        }
    }
}
