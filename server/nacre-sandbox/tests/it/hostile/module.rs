//! Plugins written instruction by instruction, unlike any compiler output: a template of the world `service`, in which
//! a case replaces some parts.

use std::fmt::Write as _;

const WIT: &str = "../../plugins/wit";
/// The address of results: zeros there mean "ok", an empty list or text, and none.
const RESULT: &str = "i32.const 1024";

/// The exports of the world: interface and function, with their type in core WebAssembly.
const EXPORTS: [(&str, &str); 8] = [
    ("lifecycle@0.1.0#describe", "(result i32)"),
    ("lifecycle@0.1.0#init", "(param i32 i32) (result i32)"),
    ("feed@0.1.0#on-batch", "(param i32 i32) (result i32)"),
    ("feed@0.1.0#rollback", "(param i32 i64) (result i32)"),
    ("reader@0.1.0#handle", "(param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i64) (result i32)"),
    ("reader@0.1.0#more", "(param i32 i32) (result i32)"),
    (
        "reader@0.1.0#merge",
        "(param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i64 i32 i32) (result i32)",
    ),
    ("timer-handler@0.1.0#on-timer", "(param i64 i32 i32) (result i32)"),
];

/// An allocator that never frees.
const REALLOC: &str = "
    (local $at i32)
    (local.set $at (i32.and
        (i32.add (global.get $heap) (i32.sub (local.get 2) (i32.const 1)))
        (i32.sub (i32.const 0) (local.get 2))))
    (global.set $heap (i32.add (local.get $at) (local.get 3)))
    (block $fits
        (br_if $fits (i32.le_u (global.get $heap) (i32.mul (memory.size) (i32.const 65536))))
        (drop (memory.grow (i32.add (i32.shr_u (local.get 3) (i32.const 16)) (i32.const 1)))))
    (local.get $at)";

/// The imports that a case may use, each with a name.
pub const IMPORTS: &str = r#"
    (import "nacre:plugin/state@0.1.0" "get" (func $get (param i32 i32 i32)))
    (import "nacre:plugin/state@0.1.0" "put" (func $put (param i32 i32 i32 i32)))
    (import "nacre:plugin/state@0.1.0" "delete" (func $delete (param i32 i32)))
    (import "nacre:plugin/state@0.1.0" "apply" (func $apply (param i32 i32)))
    (import "nacre:plugin/state@0.1.0" "scan" (func $scan (param i32 i32 i32 i32 i32 i32 i32)))
    (import "nacre:plugin/log@0.1.0" "write" (func $log (param i32 i32 i32)))
    (import "nacre:plugin/kv@0.1.0" "get" (func $kv-get (param i32 i32 i32 i32 i32)))
    (import "nacre:plugin/kv@0.1.0" "get-many" (func $get-many (param i32 i32 i32 i32 i32)))
    (import "nacre:plugin/timer@0.1.0" "set" (func $timer (param i32 i32 i64 i32 i32)))
    (import "nacre:plugin/turn@0.1.0" "begin" (func $begin (param i32)))
    (import "nacre:plugin/turn@0.1.0" "failed" (func $failed (param i32 i32 i32)))
    (import "nacre:plugin/http-out@0.1.0" "send"
        (func $send (param i32 i32 i32 i32 i32 i32 i32 i32 i32)))
    (import "nacre:plugin/metrics@0.1.0" "add" (func $add (param i32 i32 f64)))"#;

/// A plugin in parts.
#[derive(Clone, Default)]
pub struct Module {
    imports: String,
    /// Other fields of the module, including `start`.
    fields: String,
    memory: Option<String>,
    realloc: Option<String>,
    bodies: Vec<(String, String)>,
}

impl Module {
    pub fn new() -> Module {
        Module::default()
    }

    /// Declares all functions of the host.
    pub fn imports(mut self) -> Module {
        self.imports.push_str(IMPORTS);
        self
    }

    pub fn field(mut self, field: impl AsRef<str>) -> Module {
        self.fields.push_str(field.as_ref());
        self
    }

    /// Sets the limits of the memory, such as `1 10`.
    pub fn memory(mut self, limits: &str) -> Module {
        self.memory = Some(limits.into());
        self
    }

    pub fn realloc(mut self, body: &str) -> Module {
        self.realloc = Some(body.into());
        self
    }

    /// Sets the body of the export whose name ends with `export`. A body that does not end needs no result.
    pub fn body(mut self, export: &str, body: impl Into<String>) -> Module {
        self.bodies.push((format!("#{export}"), body.into()));
        self
    }

    /// Returns the text of the core module.
    pub fn text(&self) -> String {
        let mut text = format!(
            r#"(module {} (memory (export "memory") {}) (global $heap (mut i32) (i32.const 65536)) {}
            (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) {})"#,
            self.imports,
            self.memory.as_deref().unwrap_or("17"),
            self.fields,
            self.realloc.as_deref().unwrap_or(REALLOC),
        );
        for (name, ty) in EXPORTS {
            let own = self.bodies.iter().find(|(export, _)| name.ends_with(export));
            let body = own.map_or(RESULT, |(_, body)| body);
            write!(text, r#"(func (export "nacre:plugin/{name}") {ty} {body})"#).unwrap();
        }
        text.push(')');
        text
    }

    /// Returns the component.
    pub fn component(&self) -> Vec<u8> {
        let text = self.text();
        let module = wat::parse_str(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        component_of("service", module)
    }
}

/// Wraps a core module as a component of `world`.
pub fn component_of(world: &str, mut module: Vec<u8>) -> Vec<u8> {
    let mut resolve = wit_parser::Resolve::default();
    let (package, _) = resolve.push_path(WIT).unwrap();
    let world = resolve.select_world(&[package], Some(world)).unwrap();
    let encoding = wit_component::StringEncoding::UTF8;
    wit_component::embed_component_metadata(&mut module, &resolve, world, encoding).unwrap();
    let encoder = wit_component::ComponentEncoder::default();
    let encoded = encoder.validate(true).module(&module).and_then(|mut encoder| encoder.encode());
    encoded.unwrap_or_else(|error| panic!("{error:#}"))
}
