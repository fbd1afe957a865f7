//! JavaScript from TypeScript: whatever only says types becomes blanks, so that every line and column stays what its author
//! wrote, and errors need no map.
//!
//! ```
//! let script = nacre_typescript::strip("let n: number = <any>f<string>(x!);").unwrap();
//! assert_eq!(script,                   "let n         =      f        (x );");
//! ```
//!
//! What would need other code is refused: enums, namespaces, parameter properties, decorators, `import x = …`. An import of
//! nothing but types has to say so, `import type`, since nobody looks into the other file.

mod blanks;
mod eraser;

use eraser::Eraser;
use nacre_plugin::{Fault, Functions};
use oxc_allocator::Allocator;
use oxc_ast_visit::Visit;
use oxc_parser::Parser;
use oxc_span::SourceType;
use std::fmt;

/// Why a text is no TypeScript that can be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What is wrong.
    pub message: String,
    /// From 1.
    pub line: u32,
    /// From 1, in characters.
    pub column: u32,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Refusal { message, line, column } = self;
        write!(f, "SyntaxError: {message} (line {line}, column {column})")
    }
}

impl Refusal {
    fn new(message: impl Into<String>, source: &str, offset: usize) -> Refusal {
        let mut end = offset.min(source.len());
        while !source.is_char_boundary(end) {
            end -= 1;
        }
        let before = &source[..end];
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        Refusal { message: message.into(), line: line as u32, column: column as u32 }
    }
}

/// The text without its types, each line and column where it was.
///
/// # Errors
/// What is no TypeScript, or more than types.
pub fn strip(source: &str) -> Result<String, Refusal> {
    let allocator = Allocator::default();
    let parsed = Parser::new(&allocator, source, SourceType::ts()).parse();
    if let Some(error) = parsed.diagnostics.first() {
        let offset = error.labels.first().map_or(0, |label| label.offset());
        return Err(Refusal::new(error.message.to_string(), source, offset as usize));
    }
    let mut eraser = Eraser::new(source);
    eraser.visit_program(&parsed.program);
    eraser.finish()
}

/// The plugin: `strip` takes a text and gives it without its types.
pub struct TypeScript;

impl Functions for TypeScript {
    fn describe() -> String {
        serde_json::json!({
            "name": "typescript",
            "version": env!("CARGO_PKG_VERSION"),
            "state_version": "1",
            "limits": {},
        })
        .to_string()
    }

    fn init(_: &str) -> Result<TypeScript, Fault> {
        Ok(TypeScript)
    }

    fn call(&mut self, name: &str, arguments: &str) -> Result<String, Fault> {
        let arguments: Vec<String> = serde_json::from_str(arguments)
            .map_err(|error| Fault::Reject(format!("the arguments: {error}")))?;
        match (name, &arguments[..]) {
            ("strip", [source]) => match strip(source) {
                Ok(script) => Ok(serde_json::Value::from(script).to_string()),
                Err(refusal) => Err(Fault::Reject(refusal.to_string())),
            },
            _ => Err(Fault::Reject(format!("there is no function {name} of that many arguments"))),
        }
    }
}

nacre_plugin::export_functions!(TypeScript);
