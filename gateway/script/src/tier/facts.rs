//! Which registers hold numbers: known from what was executed before, wherever control came from.

use super::code::{Constant, Function, Op, Operand};
use super::flow::{Flow, Step};

/// A set of registers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Registers([u64; 4]);

impl Registers {
    /// All that there can be.
    pub const ALL: Registers = Registers([u64::MAX; 4]);

    /// Whether it is among them.
    pub fn has(self, register: usize) -> bool {
        self.0[register / 64 % 4] >> (register % 64) & 1 != 0
    }

    /// Adds one.
    pub fn add(&mut self, register: usize) {
        self.0[register / 64 % 4] |= 1 << (register % 64);
    }

    fn drop(&mut self, register: usize) {
        self.0[register / 64 % 4] &= !(1 << (register % 64));
    }

    fn drop_from(&mut self, register: usize) {
        (register..256).for_each(|register| self.drop(register));
    }

    fn common(self, other: Registers) -> Registers {
        Registers(std::array::from_fn(|word| self.0[word] & other.0[word]))
    }

    fn with(self, other: Registers) -> Registers {
        Registers(std::array::from_fn(|word| self.0[word] | other.0[word]))
    }

    fn without(self, other: Registers) -> Registers {
        Registers(std::array::from_fn(|word| self.0[word] & !other.0[word]))
    }

    /// Each of them.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        (0..256).filter(move |&register| self.has(register))
    }
}

/// What is known of a function's registers.
#[derive(Debug)]
pub struct Facts {
    /// Those that hold a number, before each step.
    numbers: Vec<Registers>,
    /// Those that closures share, before each step: any call may change them.
    shared: Vec<Registers>,
}

impl Facts {
    /// What is known if nothing is known at the start. A compiled function knows only what it does itself: not the steps that
    /// are `run` by the guest.
    pub fn new(function: &Function, flow: &Flow, run: &[bool]) -> Facts {
        let shared = shared(function, flow);
        let mut numbers = vec![Registers::ALL; flow.steps.len()];
        if let Some(first) = numbers.first_mut() {
            *first = Registers::default();
        }
        let mut changed = true;
        while changed {
            changed = false;
            for (pc, step) in flow.steps() {
                for (target, jumps) in [(step.next, false), (step.jump, true)] {
                    let Some(target) = target else { continue };
                    let after = after(function, step, jumps, run[pc], numbers[pc]).without(shared[target]);
                    let common = numbers[target].common(after);
                    if common != numbers[target] {
                        numbers[target] = common;
                        changed = true;
                    }
                }
            }
        }
        Facts { numbers, shared }
    }

    /// The registers that hold a number before the step at `pc`.
    pub fn numbers(&self, pc: usize) -> Registers {
        self.numbers[pc]
    }

    /// Whether only this function can change the register in the step at `pc`.
    pub fn is_own(&self, pc: usize, register: usize) -> bool {
        !self.shared[pc].has(register)
    }
}

/// The registers that closures share before each step: from where a closure is made until the block of the variable ends.
fn shared(function: &Function, flow: &Flow) -> Vec<Registers> {
    let mut shared = vec![Registers::default(); flow.steps.len()];
    let mut changed = true;
    while changed {
        changed = false;
        for (pc, step) in flow.steps() {
            let mut after = shared[pc];
            match (step.op, step.next) {
                (Op::Close, _) => after.drop_from(function.code[pc].a()),
                (Op::Closure, Some(next)) => {
                    let upvalues = function.code[pc + 1..next].iter();
                    upvalues.filter(|code| code.op() == Some(Op::Move)).for_each(|code| after.add(code.b()));
                }
                _ => {}
            }
            for target in [step.next, step.jump].into_iter().flatten() {
                let all = shared[target].with(after);
                changed |= all != shared[target];
                shared[target] = all;
            }
        }
    }
    shared
}

/// The registers that hold a number after a step that jumps, or that does not.
fn after(function: &Function, step: &Step, jumps: bool, run: bool, mut numbers: Registers) -> Registers {
    let instruction = function.code[step.at];
    let (a, b, c) = (instruction.a(), instruction.b(), instruction.c());
    match step.op {
        Op::Move | Op::LoadK | Op::Add | Op::Sub | Op::Mul | Op::Div | Op::Mod | Op::Unm if run => {
            numbers.drop(a)
        }
        Op::Move if numbers.has(b) => numbers.add(a),
        Op::LoadK if matches!(function.constants.get(instruction.bx()), Some(Constant::Number(_))) => {
            numbers.add(a);
        }
        // What is no number is left to the interpreter.
        Op::Add | Op::Sub | Op::Mul | Op::Div | Op::Mod => {
            for operand in [b, c] {
                if let Some(Operand::Register(register)) = function.operand(operand) {
                    numbers.add(register);
                }
            }
            numbers.add(a);
        }
        Op::Unm => {
            numbers.add(b);
            numbers.add(a);
        }
        Op::Lt | Op::Le => {
            if number_compared(function, numbers, b, c) {
                for operand in [b, c] {
                    if let Some(Operand::Register(register)) = function.operand(operand) {
                        numbers.add(register);
                    }
                }
            }
        }
        // The loop goes on: with a jump at its end, without one at its start.
        Op::ForPrep | Op::ForLoop if jumps == (step.op == Op::ForLoop) => {
            (a..a + 4).for_each(|register| numbers.add(register));
        }
        Op::ForPrep | Op::ForLoop => numbers.drop_from(a),
        Op::LoadNil => (a..=b).for_each(|register| numbers.drop(register)),
        Op::Method => {
            numbers.drop(a);
            numbers.drop(a + 1);
        }
        Op::Concat => {
            (b..=c).for_each(|register| numbers.drop(register));
            numbers.drop(a);
        }
        Op::Call | Op::VarArg => numbers.drop_from(a),
        Op::TForLoop => numbers.drop_from(a + 2),
        Op::SetGlobal
        | Op::SetUpval
        | Op::SetTable
        | Op::Jmp
        | Op::Eq
        | Op::Test
        | Op::Return
        | Op::TailCall => {}
        Op::SetList | Op::Close => {}
        Op::Move | Op::LoadK | Op::LoadBool | Op::GetUpval | Op::GetGlobal | Op::GetTable | Op::NewTable => {
            numbers.drop(a);
        }
        Op::Not | Op::TestSet | Op::Closure | Op::Pow | Op::Len => numbers.drop(a),
    }
    numbers
}

/// Whether one of what is compared is known to be a number: with anything else Lua does not compare it.
pub fn number_compared(function: &Function, numbers: Registers, b: usize, c: usize) -> bool {
    [b, c].into_iter().any(|operand| is_number(function, numbers, operand))
}

/// Whether an operand is known to be a number.
pub fn is_number(function: &Function, numbers: Registers, operand: usize) -> bool {
    match function.operand(operand) {
        Some(Operand::Register(register)) => numbers.has(register),
        Some(Operand::Constant(constant)) => matches!(constant, Constant::Number(_)),
        None => false,
    }
}
