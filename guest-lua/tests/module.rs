//! The module's borders: what it imports, exports, and may change besides memory. Read with a small parser: no engine needed.

use guest_lua::{LUA_WASM, abi};

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn byte(&mut self) -> u8 {
        let (first, rest) = self.0.split_first().expect("more bytes");
        self.0 = rest;
        *first
    }

    /// LEB128. Signed numbers come out unextended, which is enough here.
    fn number(&mut self) -> u64 {
        let mut value = 0;
        for shift in (0..).step_by(7) {
            let byte = self.byte();
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                break;
            }
        }
        value
    }

    fn take(&mut self, len: u64) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(usize::try_from(len).unwrap());
        self.0 = rest;
        taken
    }

    fn name(&mut self) -> &'a str {
        let len = self.number();
        std::str::from_utf8(self.take(len)).unwrap()
    }
}

/// The content of a section; empty if the module has none.
fn section(wanted: u8) -> Reader<'static> {
    let mut module = Reader(LUA_WASM.strip_prefix(b"\0asm\x01\0\0\0").expect("a module"));
    while !module.0.is_empty() {
        let id = module.byte();
        let len = module.number();
        let content = module.take(len);
        if id == wanted {
            return Reader(content);
        }
    }
    Reader(&[0])
}

#[test]
fn imports_are_exactly_four_functions() {
    let mut imports = section(2);
    let mut found = Vec::new();
    for _ in 0..imports.number() {
        let (module, name, kind) = (imports.name(), imports.name(), imports.byte());
        imports.number();
        assert_eq!((module, kind), (abi::IMPORT_MODULE, 0), "{name}");
        found.push(name);
    }
    found.sort_unstable();
    assert_eq!(found, ["call", "fetch", "frames", "log"]);
}

#[test]
fn exports() {
    let mut exports = section(7);
    let mut found: Vec<_> =
        (0..exports.number()).map(|_| (exports.name(), exports.byte(), exports.number()).0).collect();
    found.sort_unstable();
    assert_eq!(
        found,
        [
            "__indirect_function_table",
            "__stack_pointer",
            "_initialize",
            "compile",
            "init",
            "input",
            "load",
            "memory",
            "run",
            "state",
            "tier_compare",
            "tier_entry",
            "tier_forprep",
            "tier_get",
            "tier_interpret",
            "tier_iterate",
            "tier_return",
            "tier_run",
            "tier_set",
        ]
    );
}

#[test]
fn only_the_stack_pointer_is_mutable() {
    let mut globals = section(6);
    assert_eq!(globals.number(), 1);
    // i32, mutable, i32.const
    assert_eq!([globals.byte(), globals.byte(), globals.byte()], [0x7f, 1, 0x41]);
    assert_eq!(globals.number(), u64::from(abi::STACK_SIZE), "the stack must begin at the bottom of memory");
}

#[test]
fn no_start_function_and_a_fixed_table() {
    assert_eq!(section(8).0, [0]);
    let mut tables = section(4);
    assert_eq!((tables.number(), tables.byte(), tables.byte()), (1, 0x70, 1));
    assert_eq!(tables.number(), tables.number());
}

#[test]
fn memory_starts_small() {
    let mut memories = section(5);
    assert_eq!((memories.number(), memories.byte()), (1, 0));
    assert!(memories.number() <= 3);
}
