//! Functions of Lua as a memory image holds them: `Proto` structures, read without trust.

use std::collections::BTreeSet;

use guest_lua::abi;

/// Most instructions, constants and nested functions of a function that is read: to compile takes time that grows faster.
const MOST: u32 = 1 << 12;
/// Most registers of a function that is read. Each that holds a number may take a place of the machine's stack, which the
/// functions that are active share.
const MOST_REGISTERS: usize = 100;
/// Most functions of a script that are read, and most instructions of all together.
const MOST_FUNCTIONS: usize = 256;
const MOST_INSTRUCTIONS: usize = 1 << 14;
/// Most objects of a script that are looked at.
const MOST_OBJECTS: usize = 1 << 17;
/// `LUA_TPROTO`
const TYPE_PROTO: u8 = 9;

/// Types of values, as `TValue.tt` has them.
pub const NIL: i32 = 0;
/// A boolean.
pub const BOOLEAN: i32 = 1;
/// A number.
pub const NUMBER: i32 = 3;
/// A string.
pub const STRING: i32 = 4;
/// A table.
pub const TABLE: i32 = 5;
/// A function.
pub const FUNCTION: i32 = 6;

/// The memory of a guest.
pub trait Memory {
    /// The byte at this address, if the memory reaches so far.
    fn byte(&self, at: u32) -> Option<u8>;

    /// Four bytes as a little-endian number.
    fn word(&self, at: u32) -> Option<u32> {
        let mut bytes = [0; 4];
        for (offset, byte) in (0..).zip(&mut bytes) {
            *byte = self.byte(at.checked_add(offset)?)?;
        }
        Some(u32::from_le_bytes(bytes))
    }
}

/// A constant of a function.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Constant {
    /// `nil`
    Nil,
    /// `true` or `false`
    Boolean(bool),
    /// A number.
    Number(f64),
    /// The address of a string. The same text has the same address.
    String(u32),
}

/// Lua 5.1's operations, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
#[rustfmt::skip]
pub enum Op {
    Move, LoadK, LoadBool, LoadNil, GetUpval, GetGlobal, GetTable, SetGlobal, SetUpval, SetTable, NewTable, Method,
    Add, Sub, Mul, Div, Mod, Pow, Unm, Not, Len, Concat, Jmp, Eq, Lt, Le, Test, TestSet, Call, TailCall, Return,
    ForLoop, ForPrep, TForLoop, SetList, Close, Closure, VarArg,
}

#[rustfmt::skip]
const OPS: [Op; 38] = [
    Op::Move, Op::LoadK, Op::LoadBool, Op::LoadNil, Op::GetUpval, Op::GetGlobal, Op::GetTable, Op::SetGlobal,
    Op::SetUpval, Op::SetTable, Op::NewTable, Op::Method, Op::Add, Op::Sub, Op::Mul, Op::Div, Op::Mod, Op::Pow,
    Op::Unm, Op::Not, Op::Len, Op::Concat, Op::Jmp, Op::Eq, Op::Lt, Op::Le, Op::Test, Op::TestSet, Op::Call,
    Op::TailCall, Op::Return, Op::ForLoop, Op::ForPrep, Op::TForLoop, Op::SetList, Op::Close, Op::Closure, Op::VarArg,
];

/// An instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction(u32);

impl Instruction {
    /// What it does.
    pub fn op(self) -> Option<Op> {
        OPS.get((self.0 & 0x3f) as usize).copied()
    }

    /// Operand A.
    pub fn a(self) -> usize {
        (self.0 >> 6 & 0xff) as usize
    }

    /// Operand B.
    pub fn b(self) -> usize {
        (self.0 >> 23) as usize
    }

    /// Operand C.
    pub fn c(self) -> usize {
        (self.0 >> 14 & 0x1ff) as usize
    }

    /// Operand Bx, which takes the place of B and C.
    pub fn bx(self) -> usize {
        (self.0 >> 14) as usize
    }

    /// Where it jumps to from `pc`, if that is a place at all.
    pub fn target(self, pc: usize) -> Option<usize> {
        (pc + 1 + self.bx()).checked_sub(0x1ffff)
    }
}

/// An operand B or C: a register or a constant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Operand {
    /// A register.
    Register(usize),
    /// A constant.
    Constant(Constant),
}

/// A function.
#[derive(Debug)]
pub struct Function {
    /// Its address.
    pub at: u32,
    /// The address of its first instruction.
    pub code_at: u32,
    /// Its instructions.
    pub code: Vec<Instruction>,
    /// Its constants.
    pub constants: Vec<Constant>,
    /// The functions nested in it: their addresses and how many upvalues they have.
    pub nested: Vec<(u32, usize)>,
    /// The address of the function that each of its upvalues most likely holds.
    pub upvalues: Vec<Option<u32>>,
    /// The parameters it has.
    pub parameters: usize,
    /// It takes any number of arguments.
    pub is_vararg: bool,
    /// The registers it has.
    pub registers: usize,
    /// It is the main function of a chunk.
    pub is_main: bool,
}

impl Function {
    fn read(memory: &impl Memory, at: u32) -> Option<Function> {
        let word = |offset: u32| memory.word(at.checked_add(offset)?);
        let list = |place: u32, count: u32, size: u32| {
            let (start, count) = (word(place)?, word(count)?);
            if count > MOST {
                return None;
            }
            start.checked_add(count * size)?;
            Some((0..count).map(move |index| start + index * size))
        };
        let registers = memory.byte(at.checked_add(abi::PROTO_STACK_SIZE)?)?.into();
        if registers > MOST_REGISTERS {
            return None;
        }
        let code = list(abi::PROTO_CODE, abi::PROTO_CODE_COUNT, 4)?;
        let constants = list(abi::PROTO_CONSTANTS, abi::PROTO_CONSTANT_COUNT, abi::VALUE_SIZE)?;
        let nested = list(abi::PROTO_NESTED, abi::PROTO_NESTED_COUNT, 4)?;
        Some(Function {
            at,
            code_at: word(abi::PROTO_CODE)?,
            code: code.map(|at| memory.word(at).map(Instruction)).collect::<Option<_>>()?,
            constants: constants.map(|at| constant(memory, at)).collect::<Option<_>>()?,
            nested: nested
                .map(|at| {
                    let at = memory.word(at)?;
                    Some((at, memory.byte(at.checked_add(abi::PROTO_UPVALUES)?)?.into()))
                })
                .collect::<Option<_>>()?,
            upvalues: Vec::new(),
            parameters: memory.byte(at.checked_add(abi::PROTO_PARAMETERS)?)?.into(),
            is_vararg: memory.byte(at.checked_add(abi::PROTO_VARARG)?)? != 0,
            registers,
            is_main: word(abi::PROTO_LINE)? == 0,
        })
    }

    /// What a B or C that may name a constant names.
    pub fn operand(&self, field: usize) -> Option<Operand> {
        match field.checked_sub(0x100) {
            Some(index) => self.constants.get(index).copied().map(Operand::Constant),
            None => Some(Operand::Register(field)),
        }
    }

    /// The address of an instruction.
    pub fn address(&self, pc: usize) -> i32 {
        self.code_at.wrapping_add(pc as u32 * 4).cast_signed()
    }

    /// The address behind an instruction, which is what Lua keeps as the saved one.
    pub fn behind(&self, pc: usize) -> i32 {
        self.address(pc + 1)
    }
}

fn constant(memory: &impl Memory, at: u32) -> Option<Constant> {
    let value = memory.word(at)?;
    Some(match memory.word(at.checked_add(abi::VALUE_TYPE)?)? as i32 {
        NIL => Constant::Nil,
        BOOLEAN => Constant::Boolean(value != 0),
        NUMBER => Constant::Number(f64::from_bits(u64::from(memory.word(at + 4)?) << 32 | u64::from(value))),
        STRING => Constant::String(value),
        _ => return None,
    })
}

/// The functions that the Lua state at this address has. Those that make no sense, and those beyond the limits, are left out.
pub fn functions(memory: &impl Memory, state: u32) -> Vec<Function> {
    let first = || {
        let global = memory.word(state.checked_add(abi::STATE_GLOBAL)?)?;
        memory.word(global.checked_add(abi::GLOBAL_ROOTGC)?)
    };
    let mut at = first().unwrap_or(0);
    let mut found = BTreeSet::new();
    for _ in 0..MOST_OBJECTS {
        let kind = at.checked_add(abi::OBJECT_TYPE).and_then(|at| memory.byte(at));
        let (Some(kind), Some(next)) = (kind, memory.word(at)) else { break };
        if at == 0 {
            break;
        }
        if kind == TYPE_PROTO {
            found.insert(at);
        }
        at = next;
    }
    let mut room = MOST_INSTRUCTIONS;
    let fits = |function: &Function| {
        let left = room.checked_sub(function.code.len());
        room = left.unwrap_or(room);
        left.is_some()
    };
    let found = found.into_iter().take(MOST_FUNCTIONS).filter_map(|at| Function::read(memory, at));
    let mut functions: Vec<Function> = found.filter(fits).collect();
    let guesses: Vec<(u32, Vec<Option<u32>>)> = functions.iter().flat_map(upvalues).collect();
    for function in &mut functions {
        if let Some((_, guessed)) = guesses.iter().find(|(at, _)| *at == function.at) {
            function.upvalues.clone_from(guessed);
        }
    }
    functions
}

/// The function that the register holds, if something else is never put there but by calls.
pub fn held(function: &Function, register: usize) -> Option<u32> {
    let mut closures =
        function.code.iter().filter(|code| code.op() == Some(Op::Closure) && code.a() == register);
    let first = closures.next()?;
    if closures.next().is_some() {
        return None;
    }
    function.nested.get(first.bx()).map(|(at, _)| *at)
}

/// What the upvalues of the functions nested in this one hold, by their address.
fn upvalues(outer: &Function) -> Vec<(u32, Vec<Option<u32>>)> {
    let closures = outer.code.iter().enumerate().filter(|(_, code)| code.op() == Some(Op::Closure));
    let mut found = Vec::new();
    for (pc, code) in closures {
        let Some((at, count)) = outer.nested.get(code.bx()) else { continue };
        let held = |code: &Instruction| match code.op() {
            Some(Op::Move) => held(outer, code.b()),
            _ => None,
        };
        found.push((*at, outer.code[pc + 1..].iter().take(*count).map(held).collect()));
    }
    found
}
