//! The side module: what it imports from the guest, its functions in the order of their numbers, and the entry to them.

use guest_lua::abi;
use wasm_encoder::{
    BlockType, CodeSection, EntityType, ExportKind, ExportSection, Function as Body, FunctionSection,
    ImportSection, MemoryType, Module, TypeSection, ValType,
};

/// What the guest does for compiled functions. Each takes Lua's state and the address behind an instruction; see `tier.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Helper {
    /// Takes the address of the first instruction, and of the one behind the last.
    Run,
    Compare,
    ForPrep,
    Iterate,
    Interpret,
    Return,
    Get,
    Set,
}

impl Helper {
    /// How many there are; the functions of the module come behind them.
    pub const COUNT: u32 = HELPERS.len() as u32;
}

/// The guest's names of the helpers and the types that they have here, in their order.
const HELPERS: [(&str, u32); 8] = [
    ("tier_run", 2),
    ("tier_compare", 0),
    ("tier_forprep", 0),
    ("tier_iterate", 0),
    ("tier_interpret", 0),
    ("tier_return", 0),
    ("tier_get", 0),
    ("tier_set", 0),
];

/// The name that the entry is exported by: goes on in the function of a number at a place. Only what is exported is callable from
/// outside, which takes a piece of machine code more for each.
pub const ENTRY: &str = "enter";

/// Puts the bodies into a module.
pub fn module(bodies: &[Body]) -> Vec<u8> {
    let mut types = TypeSection::new();
    types.ty().function([ValType::I32; 2], [ValType::I32]);
    types.ty().function([ValType::I32; 4], [ValType::I32]);
    types.ty().function([ValType::I32; 3], [ValType::I32]);
    let mut imports = ImportSection::new();
    for (helper, kind) in HELPERS {
        imports.import("guest", helper, EntityType::Function(kind));
    }
    let memory =
        MemoryType { minimum: 1, maximum: None, memory64: false, shared: false, page_size_log2: None };
    imports.import("guest", "memory", memory);
    let (mut functions, mut exports, mut code) =
        (FunctionSection::new(), ExportSection::new(), CodeSection::new());
    for body in bodies {
        functions.function(1);
        code.function(body);
    }
    let count = bodies.len() as u32;
    functions.function(2);
    code.function(&entry(count));
    exports.export(ENTRY, ExportKind::Func, Helper::COUNT + count);
    let mut module = Module::new();
    module.section(&types).section(&imports).section(&functions).section(&exports).section(&code);
    module.finish()
}

/// Takes Lua's state, the place to go on at, and the number of the function, counted from one.
fn entry(count: u32) -> Body {
    let mut entry = Body::new([]);
    let mut sink = entry.instructions();
    for _ in 0..=count {
        sink.block(BlockType::Empty);
    }
    sink.local_get(2).i32_const(1).i32_sub().br_table(0..count, count).end();
    for number in 0..count {
        sink.local_get(0)
            .local_get(1)
            .i32_const(-1)
            .i32_const(0)
            .call(Helper::COUNT + number)
            .return_()
            .end();
    }
    sink.i32_const(abi::TIER_NOT_HERE.cast_signed()).end();
    entry
}
