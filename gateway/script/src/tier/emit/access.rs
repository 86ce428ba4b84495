//! Values from one place to another: registers, constants, upvalues, tables.

use guest_lua::abi;
use wasm_encoder::{Ieee64, MemArg};

use super::super::code::{self, Constant, Op, Operand};
use super::super::facts;
use super::super::flow::Step;
use super::super::module::Helper;
use super::{BASE, CLOSURE, Emitter, INDEX, ITEM, TABLE, field, tag, value, word};

/// Added to a number of 32 bits it leaves the number in the lowest bits of the sum.
const LOW_BITS: f64 = 6_755_399_441_055_744.0;

/// The type of a value at an address.
const TAG: MemArg = MemArg { offset: abi::VALUE_TYPE as u64, align: 2, memory_index: 0 };
/// A value of 32 bits at an address.
const WORD: MemArg = MemArg { offset: 0, align: 2, memory_index: 0 };
/// The value itself.
const VALUE: MemArg = MemArg { offset: 0, align: 3, memory_index: 0 };

impl Emitter<'_> {
    /// What only fills registers.
    pub(super) fn load(&mut self, step: &Step) -> Option<()> {
        let instruction = self.function.code[step.at];
        let (a, b) = (instruction.a(), instruction.b());
        match step.op {
            Op::Move => self.copy(a, b),
            Op::LoadK => self.constant(a, *self.function.constants.get(instruction.bx())?),
            Op::LoadBool => self.constant(a, Constant::Boolean(b != 0)),
            Op::LoadNil => (a..=b).for_each(|register| self.set_tag(register, code::NIL)),
            _ => {
                let upvalue = abi::CLOSURE_UPVALUES + 4 * b as u32;
                self.sink()
                    .local_get(CLOSURE)
                    .i32_load(field(upvalue))
                    .i32_load(field(abi::UPVALUE_VALUE))
                    .local_set(ITEM);
                self.load_item(a);
            }
        }
        Some(())
    }

    /// Copies the value whose address is in `ITEM` to a register.
    fn load_item(&mut self, a: usize) {
        self.sink()
            .local_get(BASE)
            .local_get(ITEM)
            .i64_load(VALUE)
            .i64_store(value(a))
            .local_get(BASE)
            .local_get(ITEM)
            .i32_load(TAG)
            .i32_store(tag(a));
    }

    /// Copies register `b` to `a`.
    pub(super) fn copy(&mut self, a: usize, b: usize) {
        if self.numbers.has(b) {
            let from = self.local(b);
            self.sink().local_get(from);
            self.set_number(a);
            return;
        }
        self.sink()
            .local_get(BASE)
            .local_get(BASE)
            .i64_load(value(b))
            .i64_store(value(a))
            .local_get(BASE)
            .local_get(BASE)
            .i32_load(tag(b))
            .i32_store(tag(a));
    }

    fn constant(&mut self, a: usize, constant: Constant) {
        match constant {
            Constant::Nil => self.set_tag(a, code::NIL),
            Constant::Boolean(boolean) => {
                self.sink().local_get(BASE).i32_const(boolean.into()).i32_store(word(a));
                self.set_tag(a, code::BOOLEAN);
            }
            Constant::Number(number) => {
                self.sink().f64_const(number.into());
                self.set_number(a);
            }
            Constant::String(at) => {
                self.sink().local_get(BASE).i32_const(at.cast_signed()).i32_store(word(a));
                self.set_tag(a, code::STRING);
            }
        }
    }

    /// `R[a] = R[b][c]`: of the array inline, else by the guest.
    pub(super) fn get_table(&mut self, step: &Step) -> Option<()> {
        let instruction = self.function.code[step.at];
        let (a, b, c) = (instruction.a(), instruction.b(), instruction.c());
        if facts::is_number(self.function, self.numbers, c) {
            self.open_block();
            self.open_block();
            self.find_item(b, c, None)?;
            self.sink().local_get(ITEM).i32_load(TAG).i32_eqz().br_if(0);
            self.load_item(a);
            self.sink().br(1);
            self.close();
            self.ask_for_all(Helper::Get, step.at);
            self.close();
        } else {
            self.ask_for_all(Helper::Get, step.at);
        }
        Some(())
    }

    /// `R[a][b] = c`, likewise.
    pub(super) fn set_table(&mut self, step: &Step) -> Option<()> {
        let instruction = self.function.code[step.at];
        let (a, b, c) = (instruction.a(), instruction.b(), instruction.c());
        if !facts::is_number(self.function, self.numbers, b) {
            self.ask_for_all(Helper::Set, step.at);
            return Some(());
        }
        // The collector must hear of an object that comes into a table where it has been already.
        let kept_in_peace = match self.function.operand(c)? {
            Operand::Register(register) => self.numbers.has(register),
            Operand::Constant(constant) => !matches!(constant, Constant::String(_)),
        };
        let marks = 1 << abi::MARK_READONLY | if kept_in_peace { 0 } else { 1 << abi::MARK_BLACK };
        self.open_block();
        self.open_block();
        self.find_item(a, b, Some(marks))?;
        // Where nothing was, a metatable may know more.
        self.sink()
            .local_get(ITEM)
            .i32_load(TAG)
            .local_get(TABLE)
            .i32_load(field(abi::TABLE_METATABLE))
            .i32_eqz()
            .i32_or()
            .i32_eqz()
            .br_if(0);
        match self.function.operand(c)? {
            Operand::Register(register) if self.numbers.has(register) => {
                let local = self.local(register);
                self.sink().local_get(ITEM).local_get(local).f64_store(VALUE);
                self.set_item_tag(code::NUMBER);
            }
            Operand::Register(register) => {
                self.sink()
                    .local_get(ITEM)
                    .local_get(BASE)
                    .i64_load(value(register))
                    .i64_store(VALUE)
                    .local_get(ITEM)
                    .local_get(BASE)
                    .i32_load(tag(register))
                    .i32_store(TAG);
            }
            Operand::Constant(Constant::Nil) => self.set_item_tag(code::NIL),
            Operand::Constant(Constant::Boolean(boolean)) => {
                self.sink().local_get(ITEM).i32_const(boolean.into()).i32_store(WORD);
                self.set_item_tag(code::BOOLEAN);
            }
            Operand::Constant(Constant::Number(number)) => {
                self.sink().local_get(ITEM).f64_const(number.into()).f64_store(VALUE);
                self.set_item_tag(code::NUMBER);
            }
            Operand::Constant(Constant::String(at)) => {
                self.sink().local_get(ITEM).i32_const(at.cast_signed()).i32_store(WORD);
                self.set_item_tag(code::STRING);
            }
        }
        self.sink().br(1);
        self.close();
        self.ask_for_all(Helper::Set, step.at);
        self.close();
        Some(())
    }

    fn set_item_tag(&mut self, kind: i32) {
        self.sink().local_get(ITEM).i32_const(kind).i32_store(TAG);
    }

    /// Leaves the table's address in `TABLE` and in `ITEM` that of the value under a number, or jumps to the innermost label: if the
    /// register has no table, or one with one of these marks that is to be changed, or if the array part does not have the number.
    fn find_item(&mut self, register: usize, key: usize, marks: Option<i32>) -> Option<()> {
        self.sink()
            .local_get(BASE)
            .i32_load(tag(register))
            .i32_const(code::TABLE)
            .i32_ne()
            .br_if(0)
            .local_get(BASE)
            .i32_load(word(register))
            .local_set(TABLE);
        if let Some(marks) = marks {
            let marked = MemArg { offset: abi::OBJECT_MARKED.into(), align: 0, memory_index: 0 };
            self.sink().local_get(TABLE).i32_load8_u(marked).i32_const(marks).i32_and().br_if(0);
        }
        match self.function.operand(key)? {
            Operand::Constant(Constant::Number(number)) => {
                if number.fract() != 0.0 || !(1.0..1e9).contains(&number) {
                    self.sink().br(0);
                }
                self.sink().i32_const((number as i32).wrapping_sub(1)).local_set(INDEX);
            }
            Operand::Register(register) => {
                let key = self.local(register);
                self.sink()
                    .local_get(key)
                    .f64_const(Ieee64::from(LOW_BITS))
                    .f64_add()
                    .i64_reinterpret_f64()
                    .i32_wrap_i64()
                    .local_tee(INDEX)
                    .f64_convert_i32_s()
                    .local_get(key)
                    .f64_ne()
                    .br_if(0)
                    .local_get(INDEX)
                    .i32_const(1)
                    .i32_sub()
                    .local_set(INDEX);
            }
            Operand::Constant(_) => return None,
        }
        self.sink()
            .local_get(INDEX)
            .local_get(TABLE)
            .i32_load(field(abi::TABLE_ARRAY_SIZE))
            .i32_ge_u()
            .br_if(0)
            .local_get(TABLE)
            .i32_load(field(abi::TABLE_ARRAY))
            .local_get(INDEX)
            .i32_const(4)
            .i32_shl()
            .i32_add()
            .local_set(ITEM);
        Some(())
    }
}
