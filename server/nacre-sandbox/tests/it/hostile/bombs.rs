//! Components that would keep the compiler busy, import unavailable interfaces, or are not
//! components.

use super::When::*;
use super::module::Module;
use super::run;
use crate::fixture::{host, load};
use nacre_sandbox::Error;

fn m() -> Module {
    Module::new()
}

/// Returns the error for a component that is refused before it runs.
fn refusal(component: &[u8]) -> Error {
    load("bomb", component).err().unwrap()
}

/// Wraps a core module as a component, whatever the module exports.
fn wrapped(module: &str) -> Vec<u8> {
    wat::parse_str(format!("(component (core {})", &module[1..])).unwrap()
}

#[test]
fn components_that_are_too_large_to_compile_are_refused_by_what_is_too_large() {
    let functions = format!("(module {})", "(func)".repeat(100_001));
    let locals = format!("(module (func (local {})))", "i64 ".repeat(10_001));
    let all_locals =
        format!("(module {})", format!("(func (local {}))", "i64 ".repeat(9000)).repeat(230));
    let nested = format!("(module (func {}{}))", "block ".repeat(5000), "end ".repeat(5000));
    let table = format!("(module (func (block (br_table {} (i32.const 0)))))", "0 ".repeat(65_600));
    let tables = format!(
        "(module (func {}))",
        format!("(block (br_table {} (i32.const 0)))", "0 ".repeat(1000)).repeat(66)
    );
    let long = format!("(module (func {}))", "(drop (i64.const 1234567890123))".repeat(70_000));
    let elements = "(module (table 100001 funcref))".to_owned();
    let told: Vec<_> = [functions, locals, all_locals, nested, table, tables, long, elements]
        .iter()
        .map(|module| refusal(&wrapped(module)).to_string())
        .collect();
    insta::assert_snapshot!(told.join("\n"), @r#"
    functions 100001, more than 100000
    local variables of a function 10001, more than 10000
    local variables 2007000, more than 2000000
    blocks inside one another 4097, more than 4096
    branch targets of a function 65600, more than 65536
    branch targets of a function 66000, more than 65536
    bytes of a function 560002, more than 524288
    elements of a table 100001, more than 100000
    "#);
    let modules = format!("(component {})", "(core module)".repeat(257));
    let components = format!("(component {})", "(component)".repeat(257));
    for text in [modules, components] {
        assert_eq!(
            refusal(&wat::parse_str(text).unwrap()).to_string(),
            "modules 257, more than 256"
        );
    }
    let huge = vec![0; (64 << 20) + 1];
    assert_eq!(refusal(&huge).to_string(), "bytes of the component 67108865, more than 67108864");
}

#[test]
fn a_malformed_component_is_refused() {
    let good = m().component();
    let core = wat::parse_str("(module)").unwrap();
    let empty = wat::parse_str("(component)").unwrap();
    for bytes in [&b""[..], b"\0asm", b"#!/bin/sh", &core, &empty, &[0xff; 1000]] {
        assert!(matches!(refusal(bytes), Error::Component(_)));
    }
    for at in (0..good.len()).step_by(101) {
        assert!(matches!(refusal(&good[..at]), Error::Component(_)), "cut at {at}");
    }
}

/// The host either refuses a damaged component or runs it in the sandbox.
#[test]
fn damaged_components_do_no_harm() {
    let good = m().component();
    for at in (8..good.len()).step_by(61) {
        let mut bad = good.clone();
        bad[at] ^= 0x15;
        if let Ok(plugin) = load("damaged", &bad) {
            let _ = plugin.describe(super::setup(super::DEADLINE).limits);
        }
    }
}

#[test]
fn unsupported_features_are_refused() {
    for module in [
        "(module (memory 1 1 shared))",
        "(module (memory i64 1))",
        "(module (memory 65537))",
        "(module (func (param externref) (drop (ref.cast (ref any) (local.get 0)))))",
    ] {
        let component = std::panic::catch_unwind(|| wrapped(module));
        if let Ok(component) = component {
            assert!(
                matches!(refusal(&component), Error::Component(_) | Error::Size { .. }),
                "{module}"
            );
        }
    }
}

#[test]
fn an_ungranted_capability_cannot_be_imported() {
    let import = |name: &str, function: &str| {
        let text =
            format!("(component (import \"{name}\" (instance (export \"{function}\" (func)))))");
        refusal(&wat::parse_str(text).unwrap()).to_string()
    };
    let told = [
        import("wasi:cli/environment@0.2.0", "get-environment"),
        import("wasi:filesystem/preopens@0.2.0", "get-directories"),
        import("wasi:sockets/tcp@0.2.0", "connect"),
        import("nacre:plugin/index@0.1.0", "scan"),
        import("nacre:plugin/state@0.2.0", "get"),
        import("nacre:host/everything@0.1.0", "get"),
    ];
    insta::assert_snapshot!(told.join("\n"), @r#"
    plugin "bomb" imports "wasi:cli/environment@0.2.0", which is not granted
    plugin "bomb" imports "wasi:filesystem/preopens@0.2.0", which is not granted
    plugin "bomb" imports "wasi:sockets/tcp@0.2.0", which is not granted
    plugin "bomb" imports "nacre:plugin/index@0.1.0", which is not granted
    plugin "bomb" imports "nacre:plugin/state@0.2.0", which is not granted
    plugin "bomb" imports "nacre:host/everything@0.1.0", which is not granted
    "#);
}

#[test]
fn interfaces_of_other_types_are_refused_when_they_are_loaded() {
    // `state.get` with another type, in a component that has all exports.
    let other = r#"(component
        (import "nacre:plugin/state@0.1.0" (instance (export "get" (func (result u32)))))
        (core module $m (func (export "f")))
        (core instance $i (instantiate $m))
        (func $f (canon lift (core func $i "f")))
        (instance $feed (export "on-batch" (func $f)) (export "rollback" (func $f)))
        (export "nacre:plugin/feed@0.1.0" (instance $feed)))"#;
    let error = refusal(&wat::parse_str(other).unwrap());
    assert!(matches!(error, Error::Component(_)), "{error}");
    let exports = other.replace(
        r#"(import "nacre:plugin/state@0.1.0" (instance (export "get" (func (result u32)))))"#,
        "",
    );
    let error = refusal(&wat::parse_str(exports).unwrap());
    assert!(matches!(error, Error::Component(_)), "{error}");
    // A pure plugin that imports documents.
    let impure = r#"(component
        (import "nacre:plugin/kv@0.1.0" (instance))
        (instance $none)
        (export "nacre:plugin/resolution@0.1.0" (instance $none)))"#;
    let error = refusal(&wat::parse_str(impure).unwrap());
    assert!(matches!(error, Error::Import { .. }), "{error}");
}

/// The largest accepted functions compile in seconds, not minutes.
#[test]
fn accepted_components_compile() {
    let tables = format!("(block (br_table {} (i32.const 0)))", "0 ".repeat(1000)).repeat(60);
    let blocks = format!("{}{}", "block ".repeat(4000), "end ".repeat(4000));
    let sums = "(local.set 0 (i32.mul (local.get 0) (i32.load (local.get 0))))".repeat(40_000);
    for body in [tables, blocks, sums] {
        let module = m().field(format!("(func (local i32) {body})"));
        let (error, _) =
            run(&module.body("on-batch", "unreachable").component(), Batch, super::DEADLINE);
        assert!(error.to_string().contains("unreachable"), "{error}");
    }
}

#[test]
fn machine_code_that_was_damaged_is_not_run() {
    let artefact = host().compile(&m().component()).unwrap();
    let load = |bytes: &[u8]| {
        // SAFETY: later damage to code that this host compiled is detected before the code runs.
        unsafe { host().load("damaged", bytes) }
    };
    assert!(load(&artefact).is_ok());
    for at in (0..artefact.len()).step_by(artefact.len() / 50) {
        let mut bad = artefact.clone();
        bad[at] ^= 0x40;
        assert!(matches!(load(&bad), Err(Error::Artefact(_))), "byte {at}");
        assert!(matches!(load(&artefact[..at]), Err(Error::Artefact(_))), "cut at {at}");
    }
}
