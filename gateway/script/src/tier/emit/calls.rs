//! How a function is entered and left, and how it calls others.

use guest_lua::abi;
use wasm_encoder::BlockType;

use super::super::code::{self, Op};
use super::super::module::Helper;
use super::{
    ARGUMENTS, BASE, CLOSURE, Emitter, INDEX, ITEM, Open, RESULTS, STATE, WHERE, field, tag, value, word,
};

impl Emitter<'_> {
    /// The start of the function: makes its frame if it is called, else goes to where the caller wants to go on.
    pub(super) fn entries(&mut self) -> Option<()> {
        if self.is_called {
            self.sink().local_get(ARGUMENTS).i32_const(0).i32_lt_s();
            self.open_if();
            self.load_base();
            self.resume()?;
            self.sink().else_();
            self.make_frame();
            self.close();
        } else {
            self.load_base();
            self.resume()?;
        }
        self.load_closure();
        Some(())
    }

    fn load_closure(&mut self) {
        if self.flow.steps().any(|(_, step)| step.op == Op::GetUpval) {
            self.sink()
                .local_get(STATE)
                .i32_load(field(abi::STATE_CI))
                .i32_load(field(abi::CALL_FUNC))
                .i32_load(field(0))
                .local_set(CLOSURE);
        }
    }

    /// Goes on to the start, or jumps to a loop of the outermost ones if what is to be numbers is.
    fn resume(&mut self) -> Option<()> {
        let start = self.function.address(0);
        self.sink().local_get(WHERE).i32_const(start).i32_ne();
        self.open_if();
        for &pc in &self.plan.entries {
            let at = self.function.address(pc);
            self.sink().local_get(WHERE).i32_const(at).i32_eq();
            self.open_if();
            let numbers: Vec<usize> = self.facts.numbers(pc).iter().collect();
            self.sink().i32_const(0);
            for &register in &numbers {
                self.sink()
                    .local_get(BASE)
                    .i32_load(tag(register))
                    .i32_const(code::NUMBER)
                    .i32_xor()
                    .i32_or();
            }
            self.open_if();
            self.not_here();
            self.close();
            for register in numbers {
                let local = self.local(register);
                self.sink().local_get(BASE).f64_load(value(register)).local_set(local);
            }
            self.load_closure();
            let depth = self.depth_of(pc, false)?;
            self.sink().br(depth);
            self.close();
        }
        self.not_here();
        self.close();
        Some(())
    }

    fn not_here(&mut self) {
        self.sink().i32_const(abi::TIER_NOT_HERE.cast_signed()).return_();
    }

    /// As `luaD_precall` does, where that is simple. Else the caller has the guest do it.
    fn make_frame(&mut self) {
        let (parameters, registers) = (self.function.parameters, self.function.registers);
        let size = abi::VALUE_SIZE as i32;
        self.sink()
            .local_get(ARGUMENTS)
            .i32_const(parameters as i32)
            .i32_ne()
            // Room on the stack for whatever the interpreter would want.
            .local_get(STATE)
            .i32_load(field(abi::STATE_STACK_LAST))
            .local_get(WHERE)
            .i32_sub()
            .i32_const((registers + 2 * parameters + 1) as i32 * size)
            .i32_le_s()
            .i32_or()
            .local_get(STATE)
            .i32_load(field(abi::STATE_CI))
            .local_tee(ITEM)
            .local_get(STATE)
            .i32_load(field(abi::STATE_TIER_CI))
            .i32_ge_u()
            .i32_or();
        self.open_if();
        self.not_here();
        self.close();
        let call = |offset: u32| field(abi::CALL_SIZE + offset);
        self.sink()
            .local_get(ITEM)
            .local_get(WHERE)
            .i32_store(call(abi::CALL_FUNC))
            .local_get(ITEM)
            .local_get(WHERE)
            .i32_const(size)
            .i32_add()
            .local_tee(BASE)
            .i32_store(call(abi::CALL_BASE))
            .local_get(STATE)
            .local_get(BASE)
            .i32_store(field(abi::STATE_BASE))
            .local_get(ITEM)
            .local_get(BASE)
            .i32_const(registers as i32 * size)
            .i32_add()
            .local_tee(INDEX)
            .i32_store(call(abi::CALL_TOP))
            .local_get(STATE)
            .local_get(INDEX)
            .i32_store(field(abi::STATE_TOP))
            .local_get(ITEM)
            .local_get(RESULTS)
            .i32_store(call(abi::CALL_RESULTS))
            .local_get(ITEM)
            .i32_const(0)
            .i32_store(call(abi::CALL_TAILCALLS))
            .local_get(STATE)
            .local_get(ITEM)
            .i32_const(abi::CALL_SIZE as i32)
            .i32_add()
            .i32_store(field(abi::STATE_CI));
        for register in parameters..registers {
            self.set_tag(register, code::NIL);
        }
    }

    /// Calls one of the module's functions directly, if that is what the register holds.
    pub(super) fn call(&mut self, at: usize, callee: usize) -> Option<()> {
        let instruction = self.function.code[at];
        let (a, b, c) = (instruction.a(), instruction.b(), instruction.c());
        let callee_at = self.module.functions[callee].at.cast_signed();
        let place = self.module.chosen.iter().position(|&chosen| chosen == callee)?;
        self.open_block();
        self.open_block();
        self.sink()
            .local_get(BASE)
            .i32_load(tag(a))
            .i32_const(code::FUNCTION)
            .i32_ne()
            .br_if(0)
            .local_get(BASE)
            .i32_load(word(a))
            // A function of C has a small number there.
            .i32_load(field(abi::CLOSURE_PROTO))
            .i32_const(callee_at)
            .i32_ne()
            .br_if(0);
        let behind = self.function.behind(at);
        let size = (self.function.registers * abi::VALUE_SIZE as usize) as i32;
        self.sink()
            .local_get(STATE)
            .i32_load(field(abi::STATE_CI))
            .i32_const(behind)
            .i32_store(field(abi::CALL_SAVEDPC))
            .local_get(STATE)
            .local_get(BASE)
            .i32_const(a as i32 * abi::VALUE_SIZE as i32)
            .i32_add()
            .i32_const(b as i32 - 1)
            .i32_const(c as i32 - 1);
        self.sink().call(Helper::COUNT + place as u32);
        self.sink().local_tee(INDEX).if_(BlockType::Empty);
        self.open.push(Open::Inner);
        self.sink().local_get(INDEX).i32_const(abi::TIER_NOT_HERE as i32).i32_eq().br_if(1);
        self.ask_for_all(Helper::Interpret, at);
        self.sink().br(2).end();
        self.open.pop();
        self.load_base();
        self.sink()
            .local_get(STATE)
            .local_get(BASE)
            .i32_const(size)
            .i32_add()
            .i32_store(field(abi::STATE_TOP))
            .br(1);
        self.close();
        self.run(at, at + 1);
        self.close();
        Some(())
    }

    /// Returns: to a compiled function with a result or none as it wants that; else with the guest's help.
    pub(super) fn give_back(&mut self, at: usize) {
        let instruction = self.function.code[at];
        let (a, b) = (instruction.a(), instruction.b());
        if !self.is_called || (b != 1 && b != 2) {
            self.ask(Helper::Return, at);
            self.sink().return_();
            return;
        }
        let results = b as i32 - 1;
        self.sink()
            .local_get(STATE)
            .i32_load(field(abi::STATE_OPEN_UPVALUES))
            .local_get(STATE)
            .i32_load(field(abi::STATE_CI))
            .local_tee(ITEM)
            .i32_load(field(abi::CALL_RESULTS))
            .i32_const(results)
            .i32_ne()
            .i32_or();
        self.open_if();
        self.ask(Helper::Return, at);
        self.sink().return_();
        self.close();
        self.sink().local_get(ITEM).i32_load(field(abi::CALL_FUNC)).local_set(INDEX);
        if results == 1 {
            self.give_result(a);
        }
        self.sink()
            .local_get(STATE)
            .local_get(ITEM)
            .i32_const(abi::CALL_SIZE as i32)
            .i32_sub()
            .local_tee(ITEM)
            .i32_store(field(abi::STATE_CI))
            .local_get(STATE)
            .local_get(ITEM)
            .i32_load(field(abi::CALL_BASE))
            .i32_store(field(abi::STATE_BASE))
            .i32_const(abi::TIER_RETURNED as i32)
            .return_();
    }

    /// Copies a register to the address in `INDEX`.
    fn give_result(&mut self, a: usize) {
        if self.numbers.has(a) {
            let local = self.local(a);
            self.sink()
                .local_get(INDEX)
                .local_get(local)
                .f64_store(value(0))
                .local_get(INDEX)
                .i32_const(code::NUMBER)
                .i32_store(tag(0));
            return;
        }
        self.sink()
            .local_get(INDEX)
            .local_get(BASE)
            .i64_load(value(a))
            .i64_store(value(0))
            .local_get(INDEX)
            .local_get(BASE)
            .i32_load(tag(a))
            .i32_store(tag(0));
    }
}
