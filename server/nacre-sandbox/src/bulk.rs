//! Short copies and fills, carried out by the component itself.
//!
//! WebAssembly has an instruction for each, and the engine implements it with a call into the process. This is fast for
//! a page, but expensive for the name of a field, of which parsers and interpreters copy thousands. Before a component
//! is compiled, its modules therefore get two functions that copy and fill up to [`SHORT_BYTES`] with loads and stores,
//! and use the instruction for longer ranges. Calls of these functions replace the instructions:
//!
//! ```text
//! local.get 0  local.get 1  local.get 2  memory.copy      becomes      local.get 0  local.get 1  local.get 2  call $copy
//! ```
//!
//! Invariants: for any input, the result is an equivalent component, or none. The engine validates the result like any
//! other component, so a bug here cannot open the sandbox. The functions are added at the end, so no index changes and
//! stack traces name the same functions as before. Traps remain traps, except that a part of the bytes may be written,
//! which is invisible because the instance is dropped.

use wasm_encoder::reencode::{self, Reencode, ReencodeComponent};
use wasm_encoder::{
    BlockType, CodeSection, Component, Function, FunctionSection, InstructionSink, MemArg, Module,
    TypeSection, ValType,
};
use wasmparser::{Operator, Parser, Payload, TypeRef};

/// Version of this transformation. It distinguishes artefacts of different versions.
pub const REVISION: u32 = 1;

/// Maximum number of bytes that are copied or filled without the instruction.
const SHORT_BYTES: i32 = 64;
/// Copies with a constant length up to this are compiled inline by the engine.
const CONSTANT_BYTES: i32 = 128;

/// Returns `component` with its short copies and fills replaced; `None` if there is nothing to replace, or if the
/// component cannot be processed.
pub fn shorten(component: &[u8]) -> Option<Vec<u8>> {
    let mut rewriter = Components { any: false };
    let mut out = Component::new();
    rewriter.parse_component(&mut out, Parser::new(0), component).ok()?;
    rewriter.any.then(|| out.finish())
}

struct Components {
    /// True once a module was changed.
    any: bool,
}

impl Reencode for Components {
    type Error = std::convert::Infallible;
}

impl ReencodeComponent for Components {
    fn parse_component_submodule(
        &mut self,
        component: &mut Component,
        parser: Parser,
        module: &[u8],
    ) -> Result<(), reencode::Error> {
        let Some(mut rewriter) = Functions::of(module) else {
            component.section(&wasm_encoder::RawSection {
                id: wasm_encoder::ComponentSectionId::CoreModule as u8,
                data: module,
            });
            return Ok(());
        };
        let mut out = Module::new();
        rewriter.parse_core_module(&mut out, parser, module)?;
        component.section(&wasm_encoder::ModuleSection(&out));
        self.any = true;
        Ok(())
    }
}

/// Indices of the two functions of a module.
struct Functions {
    /// Index of the type of both functions.
    type_index: u32,
    copy_index: u32,
    /// The constant that was pushed last.
    constant: Option<i32>,
}

impl Functions {
    /// Returns the functions for `module`, if it copies or fills.
    fn of(module: &[u8]) -> Option<Functions> {
        let (mut types, mut functions, mut memories, mut any) = (0, 0, Vec::new(), false);
        for payload in Parser::new(0).parse_all(module) {
            match payload.ok()? {
                Payload::TypeSection(section) => {
                    for group in section {
                        types += u32::try_from(group.ok()?.types().len()).ok()?;
                    }
                }
                Payload::ImportSection(section) => {
                    for import in section.into_imports() {
                        match import.ok()?.ty {
                            TypeRef::Func(_) | TypeRef::FuncExact(_) => functions += 1,
                            TypeRef::Memory(memory) => memories.push(memory),
                            _ => {}
                        }
                    }
                }
                Payload::FunctionSection(section) => functions += section.count(),
                Payload::MemorySection(section) => {
                    memories.extend(section.into_iter().collect::<Result<Vec<_>, _>>().ok()?);
                }
                Payload::CodeSectionEntry(body) => {
                    any = any || has_bulk(&body).ok()?;
                }
                _ => {}
            }
        }
        let is_usual = memories.first().is_some_and(|memory| !memory.memory64);
        (any && is_usual).then_some(Functions {
            type_index: types,
            copy_index: functions,
            constant: None,
        })
    }
}

fn has_bulk(body: &wasmparser::FunctionBody<'_>) -> wasmparser::Result<bool> {
    for operator in body.get_operators_reader()? {
        if is_bulk(&operator?) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns true if the operator copies or fills within the first memory.
fn is_bulk(operator: &Operator<'_>) -> bool {
    matches!(
        operator,
        Operator::MemoryCopy { dst_mem: 0, src_mem: 0 } | Operator::MemoryFill { mem: 0 }
    )
}

impl Reencode for Functions {
    type Error = std::convert::Infallible;

    fn parse_type_section(
        &mut self,
        types: &mut TypeSection,
        section: wasmparser::TypeSectionReader<'_>,
    ) -> Result<(), reencode::Error> {
        reencode::utils::parse_type_section(self, types, section)?;
        types.ty().function([ValType::I32; 3], []);
        Ok(())
    }

    fn parse_function_section(
        &mut self,
        functions: &mut FunctionSection,
        section: wasmparser::FunctionSectionReader<'_>,
    ) -> Result<(), reencode::Error> {
        reencode::utils::parse_function_section(self, functions, section)?;
        functions.function(self.type_index).function(self.type_index);
        Ok(())
    }

    fn parse_code_section(
        &mut self,
        code: &mut CodeSection,
        section: wasmparser::CodeSectionReader<'_>,
    ) -> Result<(), reencode::Error> {
        reencode::utils::parse_code_section(self, code, section)?;
        code.function(&copy()).function(&fill());
        Ok(())
    }

    fn instruction<'a>(
        &mut self,
        operator: Operator<'a>,
    ) -> Result<wasm_encoder::Instruction<'a>, reencode::Error> {
        let before = self.constant.take();
        match operator {
            Operator::I32Const { value } => self.constant = Some(value),
            Operator::MemoryCopy { dst_mem: 0, src_mem: 0 }
                if before.is_none_or(|bytes| !(0..=CONSTANT_BYTES).contains(&bytes)) =>
            {
                return Ok(wasm_encoder::Instruction::Call(self.copy_index));
            }
            Operator::MemoryFill { mem: 0 } => {
                return Ok(wasm_encoder::Instruction::Call(self.copy_index + 1));
            }
            _ => {}
        }
        reencode::utils::instruction(self, operator)
    }
}

/// Local indices of the parameters of both functions.
const TO: u32 = 0;
const FROM: u32 = 1;
const BYTE: u32 = 1;
const BYTES: u32 = 2;

/// Width of a load or store.
#[derive(Clone, Copy)]
enum Width {
    W1,
    W2,
    W4,
    W8,
    W16,
}

impl Width {
    const ALL: [Width; 5] = [Width::W16, Width::W8, Width::W4, Width::W2, Width::W1];

    fn bytes(self) -> i32 {
        match self {
            Width::W1 => 1,
            Width::W2 => 2,
            Width::W4 => 4,
            Width::W8 => 8,
            Width::W16 => 16,
        }
    }

    fn load(self, code: &mut InstructionSink<'_>, offset: u64) {
        let at = at(offset);
        match self {
            Width::W1 => code.i32_load8_u(at),
            Width::W2 => code.i32_load16_u(at),
            Width::W4 => code.i32_load(at),
            Width::W8 => code.i64_load(at),
            Width::W16 => code.v128_load(at),
        };
    }

    fn store(self, code: &mut InstructionSink<'_>, offset: u64) {
        let at = at(offset);
        match self {
            Width::W1 => code.i32_store8(at),
            Width::W2 => code.i32_store16(at),
            Width::W4 => code.i32_store(at),
            Width::W8 => code.i64_store(at),
            Width::W16 => code.v128_store(at),
        };
    }
}

fn at(offset: u64) -> MemArg {
    MemArg { offset, align: 0, memory_index: 0 }
}

/// Pushes the address `bytes` before the end of the range that starts at `start`.
fn before_end(code: &mut InstructionSink<'_>, start: u32, bytes: i32) {
    code.local_get(start).local_get(BYTES).i32_add().i32_const(bytes).i32_sub();
}

/// Opens the code for ranges of at least `least` bytes.
fn from(code: &mut InstructionSink<'_>, least: i32) {
    code.local_get(BYTES).i32_const(least).i32_ge_u().if_(BlockType::Empty);
}

/// Generates `copy(to, from, bytes)`. All loads precede the stores, because the ranges may overlap: the first and the
/// last bytes, which meet in the middle, and for more than twice the widest load also the bytes next to them.
fn copy() -> Function {
    let mut function = Function::new([]);
    let mut code = function.instructions();
    // For empty and long ranges: the instruction, which also traps correctly.
    code.local_get(BYTES).i32_const(1).i32_sub().i32_const(SHORT_BYTES).i32_ge_u();
    code.if_(BlockType::Empty);
    code.local_get(TO).local_get(FROM).local_get(BYTES).memory_copy(0, 0).return_().end();
    from(&mut code, 33);
    stores(&mut code, &[(0, 0), (16, 0), (0, 32), (0, 16)]);
    code.return_().end();
    for width in Width::ALL {
        let bytes = width.bytes();
        if bytes > 1 {
            from(&mut code, bytes);
        }
        code.local_get(TO);
        code.local_get(FROM);
        width.load(&mut code, 0);
        if bytes > 1 {
            before_end(&mut code, TO, bytes);
            before_end(&mut code, FROM, bytes);
            width.load(&mut code, 0);
            width.store(&mut code, 0);
        }
        width.store(&mut code, 0);
        if bytes > 1 {
            code.return_().end();
        }
    }
    code.end();
    function
}

/// Loads 16 bytes from each of `places` and then stores them. A place is an offset from the start, or a distance from
/// the end.
fn stores(code: &mut InstructionSink<'_>, places: &[(u64, i32)]) {
    let address = |code: &mut InstructionSink<'_>, start: u32, before: i32| match before {
        0 => drop(code.local_get(start)),
        before => before_end(code, start, before),
    };
    for (offset, before) in places {
        address(code, TO, *before);
        address(code, FROM, *before);
        Width::W16.load(code, *offset);
    }
    for (offset, _) in places.iter().rev() {
        Width::W16.store(code, *offset);
    }
}

/// Generates `fill(to, byte, bytes)` in the same way.
fn fill() -> Function {
    let mut function = Function::new([]);
    let mut code = function.instructions();
    code.local_get(BYTES).i32_const(1).i32_sub().i32_const(SHORT_BYTES).i32_ge_u();
    code.if_(BlockType::Empty);
    code.local_get(TO).local_get(BYTE).local_get(BYTES).memory_fill(0).return_().end();
    from(&mut code, 33);
    for (offset, before) in [(0, 0), (16, 0), (0, 32), (0, 16)] {
        if before == 0 {
            code.local_get(TO);
        } else {
            before_end(&mut code, TO, before);
        }
        code.local_get(BYTE).i8x16_splat();
        Width::W16.store(&mut code, offset);
    }
    code.return_().end();
    for width in Width::ALL {
        let bytes = width.bytes();
        if bytes > 1 {
            from(&mut code, bytes);
        }
        code.local_get(TO);
        value(&mut code, width);
        width.store(&mut code, 0);
        if bytes > 1 {
            before_end(&mut code, TO, bytes);
            value(&mut code, width);
            width.store(&mut code, 0);
            code.return_().end();
        }
    }
    code.end();
    function
}

/// Pushes the fill byte, repeated to the width.
fn value(code: &mut InstructionSink<'_>, width: Width) {
    code.local_get(BYTE);
    match width {
        Width::W1 => {}
        Width::W16 => drop(code.i8x16_splat()),
        Width::W8 => drop(code.i8x16_splat().i64x2_extract_lane(0)),
        Width::W4 | Width::W2 => drop(code.i8x16_splat().i32x4_extract_lane(0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wasmtime::component::{Component, Linker};
    use wasmtime::{Engine, Store};

    /// Copies or fills in a page whose first bytes are known, and returns a checksum of them.
    const BOTH: &str = r#"
        (component
          (core module $module
            (memory (export "memory") 1)
            (func (export "run") (param $fills i32) (param $to i32) (param $from i32) (param $bytes i32) (result i64)
              (local $at i32) (local $sum i64)
              (loop $next
                (i32.store8 (local.get $at) (i32.mul (local.get $at) (i32.const 2654435761)))
                (i32.store8 (local.get $at) (i32.shr_u (i32.mul (local.get $at) (i32.const 2654435761)) (i32.const 24)))
                (local.set $at (i32.add (local.get $at) (i32.const 1)))
                (br_if $next (i32.lt_u (local.get $at) (i32.const 512))))
              (if (local.get $fills)
                (then (memory.fill (local.get $to) (local.get $from) (local.get $bytes)))
                (else (memory.copy (local.get $to) (local.get $from) (local.get $bytes))))
              (local.set $at (i32.const 0))
              (loop $next
                (local.set $sum
                  (i64.add (i64.mul (local.get $sum) (i64.const 1099511628211)) (i64.load8_u (local.get $at))))
                (local.set $at (i32.add (local.get $at) (i32.const 1)))
                (br_if $next (i32.lt_u (local.get $at) (i32.const 512))))
              (local.get $sum)))
          (core instance $instance (instantiate $module))
          (func (export "run") (param "fills" u32) (param "to" u32) (param "from" u32) (param "bytes" u32) (result u64)
            (canon lift (core func $instance "run"))))"#;

    type Arguments = (u32, u32, u32, u32);

    /// Returns the results of calls; `None` for a trap.
    fn outcomes(component: &[u8], calls: &[Arguments]) -> Vec<Option<u64>> {
        let engine = Engine::default();
        let component = Component::new(&engine, component).unwrap();
        let linker: Linker<()> = Linker::new(&engine);
        let run = |arguments: &Arguments| {
            let mut store = Store::new(&engine, ());
            let instance = linker.instantiate(&mut store, &component).unwrap();
            let run = instance.get_typed_func::<Arguments, (u64,)>(&mut store, "run").unwrap();
            run.call(&mut store, *arguments).ok().map(|(sum,)| sum)
        };
        calls.iter().map(run).collect()
    }

    #[test]
    fn short_copies_and_fills_do_what_the_instructions_do() {
        let mut calls = Vec::new();
        for bytes in 0..=SHORT_BYTES as u32 + 3 {
            for (to, from) in
                [(100, 300), (100, 100), (100, 101), (101, 100), (100, 117), (117, 100)]
            {
                calls.push((0, to, from, bytes));
            }
            calls.extend([(1, 100, 0x1a7, bytes), (1, 101, 0, bytes)]);
            // To the end of the page, and one byte beyond it.
            let end = 65_536 - bytes;
            calls.extend([(0, end, 1, bytes), (0, end + 1, 1, bytes), (0, 1, end + 1, bytes)]);
            calls.extend([(1, end, 9, bytes), (1, end + 1, 9, bytes)]);
        }
        let before = wat::parse_str(BOTH).unwrap();
        let after = shorten(&before).expect("there is something to do");
        let (before, after) = (outcomes(&before, &calls), outcomes(&after, &calls));
        for (call, (before, after)) in calls.iter().zip(before.iter().zip(&after)) {
            assert_eq!(before, after, "(fills, to, from, bytes) = {call:?}");
        }
        assert!(before.contains(&None) && before.iter().any(Option::is_some));
    }

    #[test]
    fn components_without_copies_are_left_alone() {
        let plain = wat::parse_str("(component (core module (func (export \"a\"))))").unwrap();
        assert_eq!(shorten(&plain), None);
        assert_eq!(shorten(b"no component"), None);
        let wide = "(component (core module (memory i64 1)
            (func (memory.copy (i64.const 0) (i64.const 1) (i64.const 2)))))";
        assert_eq!(shorten(&wat::parse_str(wide).unwrap()), None, "its addresses are wider");
    }

    #[test]
    fn copies_of_a_constant_length_are_left_to_the_engine() {
        let component = |bytes: &str| {
            let text = format!(
                "(component (core module (memory 1) (func (param i32)
                   (memory.copy (local.get 0) (i32.const 0) ({bytes})))))"
            );
            shorten(&wat::parse_str(text).unwrap()).unwrap()
        };
        let copies = |component: &[u8]| {
            let payloads = Parser::new(0).parse_all(component);
            let bodies = payloads.filter_map(|payload| match payload.unwrap() {
                Payload::CodeSectionEntry(body) => Some(has_bulk(&body).unwrap()),
                _ => None,
            });
            bodies.collect::<Vec<_>>()
        };
        assert_eq!(copies(&component("i32.const 24")), [true, true, true]);
        assert_eq!(copies(&component("i32.const 4096")), [false, true, true]);
        assert_eq!(copies(&component("local.get 0")), [false, true, true]);
    }
}
