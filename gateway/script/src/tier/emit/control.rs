//! Tests and loops.

use super::super::code::{BOOLEAN, Constant, NIL, NUMBER, Op, Operand, STRING};
use super::super::facts;
use super::super::flow::Step;
use super::super::module::Helper;
use super::{BASE, Emitter, ITEM, tag, value, word};

impl Emitter<'_> {
    /// Comparisons and tests, which jump or go on.
    pub(super) fn test(&mut self, step: &Step) -> Option<()> {
        let instruction = self.function.code[step.at];
        let (a, b, c) = (instruction.a(), instruction.b(), instruction.c());
        let mut wanted = a != 0;
        match step.op {
            Op::Eq => self.equal(step, b, c)?,
            Op::Lt | Op::Le => {
                if facts::number_compared(self.function, self.numbers, b, c) {
                    self.number(b)?;
                    self.number(c)?;
                    match step.op {
                        Op::Lt => self.sink().f64_lt(),
                        _ => self.sink().f64_le(),
                    };
                } else {
                    self.ask_whether(Helper::Compare, step.at);
                }
            }
            Op::Test | Op::TestSet => {
                let register = if step.op == Op::Test { a } else { b };
                wanted = c != 0;
                self.is_true(register);
            }
            _ => return None,
        }
        if step.op == Op::TestSet {
            if !wanted {
                self.sink().i32_eqz();
            }
            self.open_if();
            self.copy(a, b);
            let depth = self.jump_depth(step)?;
            self.sink().br(depth);
            self.close();
            return Some(());
        }
        if !wanted {
            self.sink().i32_eqz();
        }
        let depth = self.jump_depth(step)?;
        self.sink().br_if(depth);
        Some(())
    }

    /// Leaves on the stack whether the value is neither nil nor false.
    pub(super) fn is_true(&mut self, register: usize) {
        if self.numbers.has(register) {
            self.sink().i32_const(1);
            return;
        }
        // A tag above that of booleans, or a boolean that is not zero.
        self.sink()
            .local_get(BASE)
            .i32_load(tag(register))
            .local_tee(ITEM)
            .i32_const(BOOLEAN)
            .i32_gt_u()
            .local_get(ITEM)
            .i32_const(BOOLEAN)
            .i32_eq()
            .local_get(BASE)
            .i32_load(word(register))
            .i32_const(0)
            .i32_ne()
            .i32_and()
            .i32_or();
    }

    fn equal(&mut self, step: &Step, b: usize, c: usize) -> Option<()> {
        let (left, right) = (self.function.operand(b)?, self.function.operand(c)?);
        let known = |operand| facts::is_number(self.function, self.numbers, operand);
        if known(b) && known(c) {
            self.number(b)?;
            self.number(c)?;
            self.sink().f64_eq();
            return Some(());
        }
        let (register, constant) = match (left, right) {
            (Operand::Register(register), Operand::Constant(constant)) => (register, constant),
            (Operand::Constant(constant), Operand::Register(register)) => (register, constant),
            _ => {
                self.ask_whether(Helper::Compare, step.at);
                return Some(());
            }
        };
        let kind = match constant {
            Constant::Nil => NIL,
            Constant::Boolean(_) => BOOLEAN,
            Constant::Number(_) => NUMBER,
            Constant::String(_) => STRING,
        };
        self.sink().local_get(BASE).i32_load(tag(register)).i32_const(kind).i32_eq();
        match constant {
            Constant::Nil => return Some(()),
            Constant::Boolean(boolean) => {
                self.sink().local_get(BASE).i32_load(word(register)).i32_const(boolean.into()).i32_eq();
            }
            Constant::Number(number) => {
                self.sink().local_get(BASE).f64_load(value(register)).f64_const(number.into()).f64_eq();
            }
            Constant::String(at) => {
                self.sink().local_get(BASE).i32_load(word(register)).i32_const(at.cast_signed()).i32_eq();
            }
        }
        self.sink().i32_and();
        Some(())
    }

    /// The start and the rounds of loops.
    pub(super) fn iteration(&mut self, step: &Step) -> Option<()> {
        let a = self.function.code[step.at].a();
        match step.op {
            Op::ForPrep => {
                self.prepare_loop(step, a);
                // As Lua does: a step back here, and forward in the first round. That need not give the same number.
                let index = self.local(a);
                self.sink().local_get(index);
                self.step_of(a);
                self.sink().f64_sub().local_set(index);
                self.advance(a);
                self.sink().i32_eqz();
                let depth = self.jump_depth(step)?;
                self.sink().br_if(depth);
                self.set_index(a);
            }
            Op::ForLoop => {
                self.advance(a);
                self.open_if();
                self.set_index(a);
                let depth = self.jump_depth(step)?;
                self.sink().br(depth);
                self.close();
            }
            _ => {
                self.ask_whether(Helper::Iterate, step.at);
                // At the start of the loop the jump leads out of it.
                if step.at != self.pc {
                    self.sink().i32_eqz();
                }
                let depth = self.jump_depth(step)?;
                self.sink().br_if(depth);
            }
        }
        Some(())
    }

    /// Has the index, the limit and the step of the loop in their locals.
    fn prepare_loop(&mut self, step: &Step, a: usize) {
        let unknown: Vec<usize> = (a..a + 3).filter(|&register| !self.numbers.has(register)).collect();
        if let Some((first, rest)) = unknown.split_first() {
            let not_number = |emitter: &mut Self, register| {
                emitter.sink().local_get(BASE).i32_load(tag(register)).i32_const(NUMBER).i32_ne();
            };
            not_number(self, *first);
            for register in rest {
                not_number(self, *register);
                self.sink().i32_or();
            }
            self.open_if();
            self.ask_for_all(Helper::ForPrep, step.at);
            self.close();
        }
        for register in unknown {
            let local = self.local(register);
            self.sink().local_get(BASE).f64_load(value(register)).local_set(local);
            self.numbers.add(register);
        }
    }

    /// Adds the step to the index, and leaves on the stack whether there is another round.
    fn advance(&mut self, a: usize) {
        let (index, limit) = (self.local(a), self.local(a + 1));
        let constant = self.flow.constant_step(self.function, self.pc);
        self.sink().local_get(index);
        self.step_of(a);
        self.sink().f64_add().local_set(index);
        match constant {
            Some(step) if step > 0.0 => drop(self.sink().local_get(index).local_get(limit).f64_le()),
            Some(_) => drop(self.sink().local_get(limit).local_get(index).f64_le()),
            None => {
                let step = self.local(a + 2);
                self.sink()
                    .local_get(index)
                    .local_get(limit)
                    .f64_le()
                    .local_get(limit)
                    .local_get(index)
                    .f64_le()
                    .f64_const(0.0.into())
                    .local_get(step)
                    .f64_lt()
                    .select();
            }
        }
    }

    fn step_of(&mut self, a: usize) {
        let step = self.local(a + 2);
        self.sink().local_get(step);
    }

    /// Shows the index to the loop's body.
    fn set_index(&mut self, a: usize) {
        let (index, shown) = (self.local(a), self.local(a + 3));
        self.sink().local_get(BASE).local_get(index).f64_store(value(a));
        self.sink().local_get(index).local_set(shown);
        self.sink().local_get(BASE).local_get(index).f64_store(value(a + 3));
        if !self.numbers.has(a + 3) {
            self.set_tag(a + 3, NUMBER);
        }
    }
}
