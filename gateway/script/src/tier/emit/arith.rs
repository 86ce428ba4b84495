//! Numbers.

use super::super::code::{self, Op};
use super::super::flow::Step;
use super::{BASE, Emitter, NUMBER, value, word};

impl Emitter<'_> {
    /// Operations with one result, which is a number or a boolean.
    pub(super) fn arithmetic(&mut self, step: &Step) -> Option<()> {
        let instruction = self.function.code[step.at];
        let (a, b, c) = (instruction.a(), instruction.b(), instruction.c());
        match step.op {
            Op::Add | Op::Sub | Op::Mul | Op::Div => {
                self.number(b)?;
                self.number(c)?;
                match step.op {
                    Op::Add => self.sink().f64_add(),
                    Op::Sub => self.sink().f64_sub(),
                    Op::Mul => self.sink().f64_mul(),
                    _ => self.sink().f64_div(),
                };
                self.set_number(a);
            }
            Op::Mod => self.modulo(a, b, c)?,
            Op::Unm => {
                self.number(b)?;
                self.sink().f64_neg();
                self.set_number(a);
            }
            _ => self.negate(a, b),
        }
        Some(())
    }

    /// a - floor(a / b) * b, as Lua has it.
    fn modulo(&mut self, a: usize, b: usize, c: usize) -> Option<()> {
        self.number(b)?;
        self.number(c)?;
        self.sink().drop().drop();
        let (numbers, scratch) = (self.numbers, NUMBER);
        // The operands are numbers now; those without a local are loaded again.
        let operand = |emitter: &mut Self, field| emitter.plain_number(field, numbers);
        operand(self, b)?;
        operand(self, b)?;
        operand(self, c)?;
        self.sink().f64_div().f64_floor();
        operand(self, c)?;
        self.sink().f64_mul().f64_sub().local_set(scratch).local_get(scratch);
        self.set_number(a);
        Some(())
    }

    fn plain_number(&mut self, field: usize, numbers: super::Registers) -> Option<()> {
        match self.function.operand(field)? {
            code::Operand::Register(register) if !numbers.has(register) => {
                self.sink().local_get(BASE).f64_load(value(register));
                Some(())
            }
            _ => self.number(field),
        }
    }

    fn negate(&mut self, a: usize, b: usize) {
        // False and nil have the lowest tags; of booleans the value tells.
        self.sink().local_get(BASE);
        self.is_true(b);
        self.sink().i32_eqz().i32_store(word(a));
        self.set_tag(a, code::BOOLEAN);
    }
}
