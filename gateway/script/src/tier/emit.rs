//! Wasm for one function: blocks and loops, entries and exits. What the instructions do is in the modules below.

use guest_lua::abi;
use wasm_encoder::{BlockType, Function as Body, InstructionSink, MemArg, ValType};

use super::code::{self, Constant, Function, Op, Operand};
use super::facts::{Facts, Registers};
use super::flow::{Flow, Scope, Step};
use super::module::Helper;
use super::plan::Plan;

mod access;
mod arith;
mod calls;
mod control;

/// The parameters: Lua's state; a function on the stack that is called, or a place to go on at, given by the number of
/// arguments; how many results are wanted.
pub(super) const STATE: u32 = 0;
const WHERE: u32 = 1;
const ARGUMENTS: u32 = 2;
const RESULTS: u32 = 3;
/// Locals: where the registers begin; the closure; scratch.
pub(super) const BASE: u32 = 4;
pub(super) const CLOSURE: u32 = 5;
pub(super) const TABLE: u32 = 6;
pub(super) const ITEM: u32 = 7;
pub(super) const INDEX: u32 = 8;
const INTEGERS: u32 = 5;
/// Scratch for a number, then the numbers in registers.
pub(super) const NUMBER: u32 = 9;

/// What lies open around the place where code is added.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Open {
    /// What is left with the address of an instruction, from which the interpreter goes on.
    Exit,
    Scope(Scope),
    /// Something that an instruction opened.
    Inner,
}

/// The functions of a script, and those that are compiled, in their order.
#[derive(Clone, Copy)]
pub(super) struct Module<'a> {
    pub functions: &'a [Function],
    pub chosen: &'a [usize],
}

/// Writes one function.
pub(super) struct Emitter<'a> {
    module: Module<'a>,
    pub function: &'a Function,
    pub flow: &'a Flow,
    pub facts: &'a Facts,
    pub plan: &'a Plan,
    /// Functions of the module call it directly.
    is_called: bool,
    /// The local that has the number of each register that has one somewhere.
    locals: Vec<Option<u32>>,
    bytes: Vec<u8>,
    open: Vec<Open>,
    /// The places that something jumps forward to, as far as is written.
    reached: Vec<bool>,
    /// The step that is written, and the numbers known before it.
    pub pc: usize,
    pub numbers: Registers,
    /// Control can come to where code is added.
    live: bool,
}

/// The body of a function.
pub(super) fn body(
    module: Module<'_>,
    function: &Function,
    flow: &Flow,
    plan: &Plan,
    is_called: bool,
) -> Option<Body> {
    let facts = &plan.facts;
    let mut count = 0;
    let mut locals = vec![None; 256];
    for (pc, _) in flow.steps() {
        for register in facts.numbers(pc).iter() {
            locals[register].get_or_insert_with(|| {
                count += 1;
                NUMBER + count
            });
        }
    }
    let mut emitter = Emitter {
        module,
        function,
        flow,
        facts,
        plan,
        is_called,
        locals,
        bytes: Vec::new(),
        open: Vec::new(),
        reached: vec![false; flow.steps.len() + 1],
        pc: 0,
        numbers: Registers::default(),
        live: true,
    };
    emitter.all()?;
    let mut body = Body::new([(INTEGERS, ValType::I32), (count + 1, ValType::F64)]);
    body.raw(emitter.bytes);
    Some(body)
}

impl Emitter<'_> {
    /// Takes instructions.
    pub fn sink(&mut self) -> InstructionSink<'_> {
        InstructionSink::new(&mut self.bytes)
    }

    fn all(&mut self) -> Option<()> {
        self.sink().block(BlockType::Result(ValType::I32));
        self.open.push(Open::Exit);
        let mut scopes = self.flow.scopes.iter().peekable();
        let mut entered = false;
        for pc in 0..=self.flow.steps.len() {
            while let Some(Open::Scope(scope)) = self.open.last().copied().filter(|open| ends_at(*open, pc)) {
                self.sink().end();
                self.open.pop();
                self.live |= !scope.is_loop && self.reached[pc];
            }
            while let Some(scope) = scopes.next_if(|scope| scope.start == pc) {
                if !entered && scope.is_loop {
                    self.entries()?;
                    entered = true;
                }
                match scope.is_loop {
                    true => self.sink().loop_(BlockType::Empty),
                    false => self.sink().block(BlockType::Empty),
                };
                self.open.push(Open::Scope(*scope));
            }
            if !entered {
                self.entries()?;
                entered = true;
            }
            if let Some(step) = self.flow.steps.get(pc).and_then(Option::as_ref) {
                (self.pc, self.numbers) = (pc, self.facts.numbers(pc));
                if self.live {
                    self.step(step)?;
                }
            }
        }
        self.sink().unreachable().end();
        self.open.pop();
        // The address of an instruction is on the stack.
        self.sink()
            .local_set(WHERE)
            .local_get(STATE)
            .local_get(WHERE)
            .i32_store(field(abi::STATE_SAVEDPC))
            .i32_const(abi::TIER_INTERPRET.cast_signed())
            .end();
        Some(())
    }

    /// Writes the step, and whatever comes between it and what it goes on with.
    fn step(&mut self, step: &Step) -> Option<()> {
        if self.function.is_main && self.flow.depth[self.pc] == 0 {
            // Executed once: not worth the time to compile it.
            self.leave(self.function.address(self.pc));
            self.live = false;
            return Some(());
        }
        if self.plan.run[self.pc] {
            if !self.plan.goes_on(self.flow, self.pc) {
                self.run(self.plan.first(self.flow, self.pc), step.next?);
            }
        } else {
            self.instruction(step)?;
        }
        match step.next {
            Some(next) if self.goes_on_at(next) => {}
            Some(next) => {
                let depth = self.depth_of(next, false)?;
                self.sink().br(depth);
                self.live = false;
            }
            None => self.live = false,
        }
        Some(())
    }

    fn goes_on_at(&self, next: usize) -> bool {
        let steps = &self.flow.steps;
        (self.pc + 1..steps.len()).find(|&pc| steps[pc].is_some()) == Some(next)
    }

    /// How many scopes out the label is that leads to the step at `pc`.
    pub fn depth_of(&mut self, pc: usize, backwards: bool) -> Option<u32> {
        let leads = |open: &Open| match open {
            Open::Scope(scope) if scope.is_loop => backwards && scope.start == pc,
            Open::Scope(scope) => !backwards && scope.end == pc,
            _ => false,
        };
        let depth = self.open.iter().rev().position(leads)?;
        self.reached[pc] |= !backwards;
        u32::try_from(depth).ok()
    }

    /// The label of where the step jumps to.
    pub fn jump_depth(&mut self, step: &Step) -> Option<u32> {
        let target = step.jump?;
        self.depth_of(target, target <= self.pc)
    }

    /// Goes on in the interpreter, from the instruction at this address.
    pub fn leave(&mut self, at: i32) {
        let depth = self.exit_depth();
        self.sink().i32_const(at).br(depth);
    }

    /// Goes on in the interpreter with this step if what is on the stack is true.
    pub fn leave_if(&mut self, condition: impl FnOnce(&mut Self)) {
        let (at, depth) = (self.function.address(self.pc), self.exit_depth());
        self.sink().i32_const(at);
        condition(self);
        self.sink().br_if(depth).drop();
    }

    fn exit_depth(&self) -> u32 {
        self.open.len() as u32 - 1
    }

    /// Opens a block that the instruction closes itself.
    pub fn open_block(&mut self) {
        self.sink().block(BlockType::Empty);
        self.open.push(Open::Inner);
    }

    /// Opens what is done if the number on the stack is not zero.
    pub fn open_if(&mut self) {
        self.sink().if_(BlockType::Empty);
        self.open.push(Open::Inner);
    }

    /// Closes what the instruction opened last.
    pub fn close(&mut self) {
        self.sink().end();
        self.open.pop();
    }

    /// The local of a register that holds a number somewhere.
    pub fn local(&self, register: usize) -> u32 {
        self.locals[register % 256].unwrap_or(NUMBER)
    }

    fn load_base(&mut self) {
        self.sink().local_get(STATE).i32_load(field(abi::STATE_BASE)).local_set(BASE);
    }

    /// Has the guest do the instruction of a step: see `tier.h`.
    pub fn ask(&mut self, helper: Helper, at: usize) {
        let behind = self.function.behind(at);
        self.sink().local_get(STATE).i32_const(behind).call(helper as u32);
    }

    /// The same, with a helper that answers with where the registers begin now.
    pub fn ask_for_all(&mut self, helper: Helper, at: usize) {
        self.ask(helper, at);
        self.sink().local_set(BASE);
    }

    /// Has the guest execute instructions that do not jump.
    pub fn run(&mut self, first: usize, end: usize) {
        let (first, end) = (self.function.address(first), self.function.address(end));
        self.sink().local_get(STATE).i32_const(first).i32_const(end).call(Helper::Run as u32).local_set(BASE);
    }

    /// The same, with a helper that answers with something else, which is left on the stack.
    pub fn ask_whether(&mut self, helper: Helper, at: usize) {
        self.ask(helper, at);
        self.load_base();
    }

    fn instruction(&mut self, step: &Step) -> Option<()> {
        let at = step.at;
        match step.op {
            Op::Move | Op::LoadK | Op::LoadBool | Op::LoadNil | Op::GetUpval => self.load(step)?,
            Op::GetTable => self.get_table(step)?,
            Op::SetTable => self.set_table(step)?,
            Op::Call => self.call(at, self.plan.callees[self.pc]?)?,
            Op::Add | Op::Sub | Op::Mul | Op::Div | Op::Mod | Op::Unm | Op::Not => self.arithmetic(step)?,
            Op::Eq | Op::Lt | Op::Le | Op::Test | Op::TestSet => self.test(step)?,
            Op::Jmp => {
                let depth = self.jump_depth(step)?;
                self.sink().br(depth);
            }
            Op::ForPrep | Op::ForLoop | Op::TForLoop => self.iteration(step)?,
            Op::Return => self.give_back(at),
            // Of what is left only this is never run by the guest.
            _ => self.leave(self.function.address(at)),
        }
        Some(())
    }

    /// Leaves the number of an operand on the stack; what is none is left to the interpreter.
    pub fn number(&mut self, field: usize) -> Option<()> {
        match self.function.operand(field)? {
            Operand::Constant(Constant::Number(number)) => {
                self.sink().f64_const(number.into());
            }
            Operand::Register(register) if self.numbers.has(register) => {
                let local = self.local(register);
                self.sink().local_get(local);
            }
            Operand::Register(register) => {
                self.leave_if(|emitter| {
                    emitter.sink().local_get(BASE).i32_load(tag(register)).i32_const(code::NUMBER).i32_ne();
                });
                self.sink().local_get(BASE).f64_load(value(register));
                if let Some(local) =
                    self.locals[register % 256].filter(|_| self.facts.is_own(self.pc, register))
                {
                    self.sink().local_tee(local);
                    self.numbers.add(register);
                }
            }
            Operand::Constant(_) => {
                let at = self.function.address(self.pc);
                self.leave(at);
            }
        }
        Some(())
    }

    /// Puts the number on the stack into a register.
    pub fn set_number(&mut self, register: usize) {
        let local = self.local(register);
        self.sink().local_set(local).local_get(BASE).local_get(local).f64_store(value(register));
        if !self.numbers.has(register) {
            self.set_tag(register, code::NUMBER);
        }
    }

    /// Notes the type of a register's value.
    pub fn set_tag(&mut self, register: usize, kind: i32) {
        self.sink().local_get(BASE).i32_const(kind).i32_store(tag(register));
    }
}

fn ends_at(open: Open, pc: usize) -> bool {
    matches!(open, Open::Scope(scope) if scope.end == pc)
}

/// A word of one of Lua's structures.
pub(super) fn field(offset: u32) -> MemArg {
    MemArg { offset: offset.into(), align: 2, memory_index: 0 }
}

/// The value of a register.
pub(super) fn value(register: usize) -> MemArg {
    MemArg { offset: register as u64 * u64::from(abi::VALUE_SIZE), align: 3, memory_index: 0 }
}

/// The value of a register, if it has 32 bits.
pub(super) fn word(register: usize) -> MemArg {
    MemArg { align: 2, ..value(register) }
}

/// The type of a register's value.
pub(super) fn tag(register: usize) -> MemArg {
    let offset = register as u64 * u64::from(abi::VALUE_SIZE) + u64::from(abi::VALUE_TYPE);
    MemArg { offset, align: 2, memory_index: 0 }
}
