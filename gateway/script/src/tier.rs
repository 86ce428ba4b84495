//! The compiled tier: functions of hot scripts as machine code, beside the interpreter and with exactly its results.
//!
//! A script whose runs have used much fuel ([`compiler`]) is compiled from the bytecode in its image to a WebAssembly
//! *side module*, in four stages:
//!
//! 1. [`code`] reads the functions (`Proto`) out of the image. It believes nothing: what makes no sense is left to the
//!    interpreter.
//! 2. [`flow`] joins instructions to steps, and finds the loops and how the blocks of WebAssembly lie around them;
//!    [`facts`] finds the registers that hold numbers; [`plan`] chooses what is compiled and what the guest executes.
//! 3. [`emit`] writes a function of WebAssembly for each function of Lua: `arith` arithmetic, `access` what moves values
//!    and reads and writes tables, `control` tests and loops (`OP_FORLOOP` is in `iteration`), `calls` calls and returns.
//! 4. [`module`] puts them into a module, which imports the guest's memory and its helpers (`guest-lua/c/tier.h`).
//!    Cranelift makes machine code of it.
//!
//! **Running.** The code of a script is linked into the sandbox of a run: the entry of the side module is put into the
//! guest's table of functions. The image of compiled runs differs from the script's other one in `Proto.compiled` alone,
//! the number of the compiled function. So the image that a run starts from chooses its tier, and rewinding stays what it
//! is: the side module has no state. The interpreter enters compiled functions where it calls them, and where it jumps
//! back to the start of a loop.
//!
//! **Leaving.** A compiled function works on the same stack and call records as the interpreter. Lua's stack is always
//! current; locals of WebAssembly only have copies of numbers. So whatever a function is not made for (an operand of
//! arithmetic that is no number, say) it leaves by storing `savedpc`, and the interpreter goes on there. Errors, names of
//! variables, garbage collection and traces see what they always see. Coroutines and deep recursion are interpreted.
//!
//! **Trust.** The side module is validated WebAssembly in the same sandbox, under the same limits: a mistake here is a
//! wrong result, never a way out. That results are right is tested by comparing random programs (`programs`) in both
//! tiers.
//!
//! Fuel counts executed WebAssembly instructions, so a script needs less of it once it is compiled.

mod code;
mod compiler;
mod emit;
mod facts;
mod flow;
mod heat;
mod module;
mod plan;

#[cfg(test)]
mod differential_tests;
#[cfg(test)]
mod programs;

use guest_lua::abi;

pub(crate) use self::code::Memory;
pub(crate) use self::compiler::Tier;
pub use self::compiler::{Compilation, Compile, Compiler, TierReport};
pub(crate) use self::heat::{Code, Compiled, Heat};
pub(crate) use self::module::ENTRY;
pub(crate) use self::plan::Choice;

/// Largest side module. To compile it takes some 200 ms.
const MOST_BYTES: usize = 96 << 10;

/// The side module of a script.
pub(crate) struct Side {
    /// The module.
    pub wasm: Vec<u8>,
    /// The addresses of the functions, in the order of their numbers.
    functions: Vec<u32>,
}

impl Side {
    /// What the image of compiled runs has where in memory: the numbers of the functions.
    fn numbers(&self) -> Vec<(u32, u32)> {
        let functions = (1..).zip(&self.functions);
        functions.map(|(number, at)| (at.wrapping_add(abi::PROTO_COMPILED), number)).collect()
    }
}

/// Makes the side module of the script in this memory, whose Lua state is at `state`. Nothing: no function would gain, or all
/// together are too large.
pub(crate) fn compile(memory: &impl Memory, state: u32, choice: Choice) -> Option<Side> {
    let (functions, flows): (Vec<_>, Vec<_>) = code::functions(memory, state)
        .into_iter()
        .filter_map(|function| flow::Flow::new(&function).map(|flow| (function, flow)))
        .unzip();
    let plans: Vec<_> = functions
        .iter()
        .zip(&flows)
        .map(|(function, flow)| plan::Plan::new(&functions, function, flow, choice))
        .collect();
    let is_called = |number: usize| plans.iter().any(|plan| plan.callees.contains(&Some(number)));
    let chosen: Vec<usize> =
        (0..functions.len()).filter(|&number| plans[number].pays || is_called(number)).collect();
    let module = emit::Module { functions: &functions, chosen: &chosen };
    let body = |&number: &usize| {
        emit::body(module, &functions[number], &flows[number], &plans[number], is_called(number))
    };
    let bodies: Vec<_> = chosen.iter().map(body).collect::<Option<_>>()?;
    let wasm = module::module(&bodies);
    let functions = chosen.iter().map(|&number| functions[number].at).collect();
    let is_suitable = !bodies.is_empty() && wasm.len() <= MOST_BYTES;
    is_suitable.then_some(Side { wasm, functions })
}
