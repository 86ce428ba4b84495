//! Which steps a compiled function does itself, and which it has the guest execute, many at a time.
//!
//! To compile an instruction costs some 50 microseconds, to have a hundred of them executed by the guest as much as one. So what
//! is compiled is what becomes faster: numbers, arrays, calls of compiled functions, and whatever jumps.

use std::ops::Range;

use super::code::{self, Constant, Function, Op, Operand};
use super::facts::{self, Facts};
use super::flow::{Flow, Step};

/// Steps before a call in which it is looked for what is called.
const MOST_LOOKED_AT: usize = 32;
/// Registers beyond its parameters that a function may have to be called directly: each of them is cleared.
const MOST_CLEARED: usize = 16;

/// What a change to the guest and back costs, in steps that become faster. Measured: a loop with as many of both took an
/// eighth longer than interpreted.
const CHANGE_COST: i64 = 2;
/// How often a step of a loop is executed for one outside of it.
const TURNS: i64 = 8;
/// Loops in each other that are told apart.
const MOST_DEPTH: usize = 4;

/// Which functions are worth it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Those that become faster as a whole.
    Faster,
    /// All in which something becomes faster, which is for tests.
    All,
}

/// What is done with each step.
pub struct Plan {
    /// The guest executes it.
    pub run: Vec<bool>,
    /// The function of the module that a call most likely calls.
    pub callees: Vec<Option<usize>>,
    /// What is known of the registers then.
    pub facts: Facts,
    /// Where loops begin that can be entered from the interpreter, and are worth it.
    pub entries: Vec<usize>,
    /// The function is faster for being compiled.
    pub pays: bool,
}

/// Who does a step best.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Compiled,
    Guest,
    /// Whichever executes the steps around it.
    Either,
}

impl Plan {
    /// Plans for one of the functions of a module.
    pub fn new(module: &[Function], function: &Function, flow: &Flow, choice: Choice) -> Plan {
        let count = flow.steps.len();
        let facts = Facts::new(function, flow, &vec![false; count]);
        let callees: Vec<_> = (0..count)
            .map(|pc| flow.steps[pc].as_ref().and_then(|step| callee(module, function, flow, pc, step)))
            .collect();
        let mut places = vec![Place::Either; count];
        for (pc, step) in flow.steps() {
            places[pc] = place(function, &facts, pc, step, callees[pc].is_some());
        }
        let mut run: Vec<bool> = places.iter().map(|place| *place == Place::Guest).collect();
        for (pc, _) in flow.steps().filter(|(pc, _)| places[*pc] == Place::Either) {
            let before = neighbours(flow, pc, false).find(|&pc| places[pc] != Place::Either);
            let after = neighbours(flow, pc, true).find(|&pc| places[pc] != Place::Either);
            let guest = |near: Option<usize>| near.is_some_and(|pc| places[pc] == Place::Guest);
            run[pc] = (guest(before) || guest(after)) && !is_number_later(function, flow, &facts, pc);
        }
        let facts = Facts::new(function, flow, &run);
        let gained = |pc: usize| {
            let gains =
                places[pc] == Place::Compiled && flow.steps[pc].as_ref().is_some_and(|step| gains(step.op));
            let changes = run[pc] && !neighbours(flow, pc, false).next().is_some_and(|before| run[before]);
            (
                gains,
                TURNS.pow(flow.depth[pc].min(MOST_DEPTH) as u32)
                    * (i64::from(gains) - CHANGE_COST * i64::from(changes)),
            )
        };
        let pays = |pcs: Range<usize>| {
            let sum = |(any, sum), (gains, gained)| (any | gains, sum + gained);
            let (any, sum) = pcs.filter(|&pc| flow.steps[pc].is_some()).map(gained).fold((false, 0), sum);
            any && (choice == Choice::All || sum > 0)
        };
        let in_loop = |start: usize| {
            let end = flow
                .scopes
                .iter()
                .find(|scope| scope.is_loop && scope.start == start)
                .map_or(start, |scope| scope.end);
            pays(start..end)
        };
        let entries: Vec<usize> =
            flow.outer_loops.iter().copied().filter(|&pc| pc > 0 && in_loop(pc)).collect();
        let pays = if function.is_main { !entries.is_empty() } else { pays(0..count) };
        Plan { run, callees, facts, entries, pays }
    }

    /// Whether the guest executes the next step, too, without a jump to it.
    pub fn goes_on(&self, flow: &Flow, pc: usize) -> bool {
        neighbours(flow, pc, true).next().is_some_and(|next| self.run[next])
    }

    /// The first of the steps that the guest executes up to this one.
    pub fn first(&self, flow: &Flow, pc: usize) -> usize {
        neighbours(flow, pc, false).take_while(|&before| self.run[before]).last().unwrap_or(pc)
    }
}

/// Whether compiled code does it much faster: there are many steps around it that only have to be done somewhere.
fn gains(op: Op) -> bool {
    matches!(
        op,
        Op::Add | Op::Sub | Op::Mul | Op::Div | Op::Mod | Op::Unm | Op::GetTable | Op::SetTable | Op::Call
    )
}

/// The steps behind or before one that are executed whenever it is.
fn neighbours(flow: &Flow, pc: usize, after: bool) -> impl Iterator<Item = usize> {
    let next = move |&pc: &usize| match after {
        true => flow.steps[pc]?.next.filter(|&next| {
            next > pc && !flow.targets[next] && flow.steps[pc].is_some_and(|step| step.jump.is_none())
        }),
        false => (0..pc).rev().find(|&before| flow.steps[before].is_some()).filter(|&before| {
            !flow.targets[pc]
                && flow.steps[before].is_some_and(|step| step.next == Some(pc) && step.jump.is_none())
        }),
    };
    std::iter::successors(next(&pc), next)
}

fn place(function: &Function, facts: &Facts, pc: usize, step: &Step, is_ours: bool) -> Place {
    let instruction = function.code[step.at];
    let (b, c) = (instruction.b(), instruction.c());
    let is_number = |field| facts::is_number(function, facts.numbers(pc), field);
    let may_be_number = |field| match function.operand(field) {
        Some(Operand::Constant(constant)) => matches!(constant, Constant::Number(_)),
        operand => operand.is_some(),
    };
    let compiled = match step.op {
        Op::LoadBool if c != 0 => true,
        Op::Move | Op::LoadK | Op::LoadBool | Op::LoadNil | Op::GetUpval | Op::Not => return Place::Either,
        Op::Add | Op::Sub | Op::Mul | Op::Div | Op::Mod => may_be_number(b) && may_be_number(c),
        Op::GetTable => is_number(c),
        Op::SetTable => is_number(b),
        Op::Call => is_ours,
        Op::Unm | Op::Jmp | Op::Eq | Op::Lt | Op::Le | Op::Test | Op::TestSet => true,
        Op::Return | Op::TailCall | Op::ForPrep | Op::ForLoop | Op::TForLoop => true,
        _ => false,
    };
    if compiled { Place::Compiled } else { Place::Guest }
}

/// Whether a step makes a number that is used as one before the register is lost, or that may be used beyond the next jump.
fn is_number_later(function: &Function, flow: &Flow, facts: &Facts, pc: usize) -> bool {
    let instruction = function.code[pc];
    let (a, is_number) = match instruction.op() {
        Some(Op::Move) => (instruction.a(), facts.numbers(pc).has(instruction.b())),
        Some(Op::LoadK) => {
            let constant = function.constants.get(instruction.bx());
            (instruction.a(), matches!(constant, Some(Constant::Number(_))))
        }
        _ => return false,
    };
    if !is_number || !facts.is_own(pc, a) {
        return false;
    }
    let lost = |&pc: &usize| match function.code[pc].op() {
        Some(Op::Call | Op::VarArg) => function.code[pc].a() <= a,
        Some(Op::SetList) => function.code[pc].a() < a,
        _ => false,
    };
    !neighbours(flow, pc, true).take_while(|&pc| facts.numbers(pc).has(a)).any(|pc| lost(&pc))
}

/// Which of the module's functions a call calls, as far as that can be guessed.
fn callee(module: &[Function], function: &Function, flow: &Flow, pc: usize, step: &Step) -> Option<usize> {
    let call = function.code[step.at];
    if step.op != Op::Call || call.b() == 0 || call.c() == 0 {
        return None;
    }
    let before = flow.steps[..pc].iter().rev().flatten().take(MOST_LOOKED_AT);
    let load = before.map(|step| function.code[step.at]).find(|instruction| instruction.a() == call.a())?;
    let at = match load.op()? {
        Op::Move => code::held(function, load.b())?,
        Op::GetUpval => *function.upvalues.get(load.b())?.as_ref()?,
        _ => return None,
    };
    module.iter().position(|function| {
        let cleared = function.registers.saturating_sub(function.parameters);
        function.at == at && !function.is_vararg && cleared <= MOST_CLEARED
    })
}
