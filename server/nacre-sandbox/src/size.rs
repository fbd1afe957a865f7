//! Checks that a component is small enough to be compiled, because the compiler has no deadline.
//!
//! Time and memory of a compilation grow with the code, and more than linearly within one function. The limits are
//! far above the output of real compilers, and are checked in one pass without recursion.

use crate::Error;
use wasmparser::{FunctionBody, Operator, Parser, Payload};

/// Maximum size of a component in bytes. One that contains Python has 18 MiB.
const COMPONENT_BYTES_MAX: u64 = 64 << 20;
/// Maximum number of functions in all modules. A component that contains Python has about ten thousand.
const FUNCTIONS_MAX: u64 = 100_000;
/// Maximum size of one function in bytes. The interpreter loop of QuickJS has about ten thousand.
const FUNCTION_BYTES_MAX: u64 = 512 << 10;
/// Maximum number of local variables of one function, and of all functions.
const FUNCTION_LOCALS_MAX: u64 = 10_000;
const LOCALS_MAX: u64 = 2_000_000;
/// Maximum nesting of blocks: a `match` with this many arms.
const NESTING_MAX: u64 = 4096;
/// Maximum number of targets of all branch tables of one function.
const TARGETS_MAX: u64 = 65_536;
/// Maximum number of modules and components on all levels.
const MODULES_MAX: u64 = 256;
/// Maximum initial number of table elements; instances have no more.
const TABLE_ELEMENTS_MAX: u64 = 100_000;
/// Maximum initial number of 64 KiB pages of a memory: 4 GiB.
const MEMORY_PAGES_MAX: u64 = 65_536;

/// Checks the size of `component`, whether or not it is valid.
pub fn check_bytes(component: &[u8]) -> Result<(), Error> {
    at_most("bytes of the component", component.len() as u64, COMPONENT_BYTES_MAX)
}

/// Checks the content of `component`.
pub fn check(component: &[u8]) -> Result<(), Error> {
    let (mut functions, mut modules, mut locals) = (0, 0, 0);
    for payload in Parser::new(0).parse_all(component) {
        match payload.map_err(malformed)? {
            Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => {
                modules += 1;
                at_most("modules", modules, MODULES_MAX)?;
            }
            Payload::FunctionSection(section) => {
                functions += u64::from(section.count());
                at_most("functions", functions, FUNCTIONS_MAX)?;
            }
            Payload::TableSection(section) => {
                for table in section {
                    let initial = table.map_err(malformed)?.ty.initial;
                    at_most("elements of a table", initial, TABLE_ELEMENTS_MAX)?;
                }
            }
            Payload::MemorySection(section) => {
                for memory in section {
                    let initial = memory.map_err(malformed)?.initial;
                    at_most("pages of a memory", initial, MEMORY_PAGES_MAX)?;
                }
            }
            Payload::CodeSectionEntry(body) => {
                locals += function(&body)?;
                at_most("local variables", locals, LOCALS_MAX)?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// Checks one function. Returns its number of local variables.
fn function(body: &FunctionBody<'_>) -> Result<u64, Error> {
    at_most("bytes of a function", body.range().len() as u64, FUNCTION_BYTES_MAX)?;
    let mut locals = 0;
    for group in body.get_locals_reader().map_err(malformed)? {
        let (count, _) = group.map_err(malformed)?;
        locals += u64::from(count);
        at_most("local variables of a function", locals, FUNCTION_LOCALS_MAX)?;
    }
    let (mut nesting, mut targets) = (0u64, 0);
    for operator in body.get_operators_reader().map_err(malformed)? {
        match operator.map_err(malformed)? {
            Operator::Block { .. } | Operator::Loop { .. } | Operator::If { .. } => {
                nesting += 1;
                at_most("blocks inside one another", nesting, NESTING_MAX)?;
            }
            Operator::End => nesting = nesting.saturating_sub(1),
            Operator::BrTable { targets: table } => {
                targets += u64::from(table.len()) + 1;
                at_most("branch targets of a function", targets, TARGETS_MAX)?;
            }
            _ => {}
        }
    }
    Ok(locals)
}

fn at_most(what: &'static str, found: u64, limit: u64) -> Result<(), Error> {
    if found > limit { Err(Error::Size { what, found, limit }) } else { Ok(()) }
}

fn malformed(error: wasmparser::BinaryReaderError) -> Error {
    Error::Component(error.to_string())
}
