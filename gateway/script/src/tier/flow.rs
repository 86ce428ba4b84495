//! How control flows through a function: its steps, their successors, its loops, and how Wasm's blocks and loops lie around them.

use super::code::{Constant, Function, Op};

/// What is done as one: an instruction, together with the jump that belongs to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// What it does. A jump to the first step of a loop over an iterator is such a step, too.
    pub op: Op,
    /// The place of the instruction.
    pub at: usize,
    /// Where it goes on.
    pub next: Option<usize>,
    /// Where else it may go on.
    pub jump: Option<usize>,
}

/// A stretch of instructions that a block or a loop of Wasm encloses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scope {
    /// Its first instruction.
    pub start: usize,
    /// The instruction behind its last one.
    pub end: usize,
    /// A jump leads to its start. Else jumps lead to its end.
    pub is_loop: bool,
}

/// The control flow of a function.
#[derive(Debug, Default)]
pub struct Flow {
    /// By the place of their first instruction; nothing where no step begins that can be reached.
    pub steps: Vec<Option<Step>>,
    /// Blocks and loops, which lie in each other or apart; outer ones first, and those that begin earlier.
    pub scopes: Vec<Scope>,
    /// Where loops begin that lie in no other loop.
    pub outer_loops: Vec<usize>,
    /// Whether a jump leads to each instruction.
    pub targets: Vec<bool>,
    /// In how many loops each instruction lies.
    pub depth: Vec<usize>,
}

impl Flow {
    /// Nothing: it is not what Lua's compiler makes.
    pub fn new(function: &Function) -> Option<Flow> {
        let steps = reachable(function)?;
        let mut loops: Vec<Scope> = Vec::new();
        // Targets of jumps to later steps, and where the first of these jumps is.
        let mut blocks: Vec<Scope> = Vec::new();
        let mut targets = vec![false; steps.len()];
        for (pc, step) in steps.iter().enumerate().filter_map(|(pc, step)| Some((pc, step.as_ref()?))) {
            for target in
                [step.jump, step.next.filter(|&next| !follows(&steps, pc, next))].into_iter().flatten()
            {
                let end = behind(&steps, pc);
                targets[target] = true;
                match target > pc {
                    true => widen(&mut blocks, Scope { start: pc, end: target, is_loop: false }),
                    false => widen(&mut loops, Scope { start: target, end, is_loop: true }),
                }
            }
        }
        nest_loops(&mut loops);
        let outer_loops = outer(&loops);
        for &start in outer_loops.iter().filter(|&&start| start > 0) {
            // They can be entered from outside, which is a jump from the start of the function.
            widen(&mut blocks, Scope { start: 0, end: start, is_loop: false });
        }
        let scopes = nest(loops.clone(), blocks)?;
        let depth =
            (0..steps.len()).map(|pc| loops.iter().filter(|l| (l.start..l.end).contains(&pc)).count());
        Some(Flow { depth: depth.collect(), steps, scopes, outer_loops, targets })
    }

    /// The step of the loop over numbers that begins or ends at `pc`, if it is a constant: what is loaded last before the loop.
    pub fn constant_step(&self, function: &Function, pc: usize) -> Option<f64> {
        let start = match self.steps[pc]?.op {
            Op::ForPrep => pc,
            _ => self.steps[pc]?.jump?.checked_sub(1)?,
        };
        let load = function.code[start.checked_sub(1)?];
        let loads_step = load.op() == Some(Op::LoadK) && load.a() == function.code[start].a() + 2;
        match function.constants.get(load.bx())? {
            Constant::Number(step) if loads_step && !self.targets[start] => Some(*step),
            _ => None,
        }
    }

    /// The steps in their order.
    pub fn steps(&self) -> impl Iterator<Item = (usize, &Step)> {
        self.steps.iter().enumerate().filter_map(|(pc, step)| Some((pc, step.as_ref()?)))
    }
}

/// The steps that can be reached from the start.
fn reachable(function: &Function) -> Option<Vec<Option<Step>>> {
    let mut steps = vec![None; function.code.len()];
    let mut left = vec![0];
    while let Some(pc) = left.pop() {
        if steps.get(pc)?.is_some() {
            continue;
        }
        let step = step(function, pc)?;
        steps[pc] = Some(step);
        left.extend([step.next, step.jump].into_iter().flatten());
    }
    Some(steps)
}

fn step(function: &Function, pc: usize) -> Option<Step> {
    let code = &function.code;
    let instruction = *code.get(pc)?;
    let op = instruction.op()?;
    // Tests are followed by a jump.
    let jump_behind = |pc: usize| {
        let jump = code.get(pc + 1).filter(|jump| jump.op() == Some(Op::Jmp))?;
        jump.target(pc + 1)
    };
    let mut step = Step { op, at: pc, next: Some(pc + 1), jump: None };
    match op {
        Op::Jmp => {
            let target = instruction.target(pc)?;
            let iterates = code.get(target)?.op() == Some(Op::TForLoop);
            if iterates && target > pc && jump_behind(target) == Some(pc + 1) {
                step = Step { op: Op::TForLoop, at: target, next: Some(pc + 1), jump: Some(target + 2) };
            } else {
                (step.next, step.jump) = (None, Some(target));
            }
        }
        Op::Eq | Op::Lt | Op::Le | Op::Test | Op::TestSet | Op::TForLoop => {
            (step.next, step.jump) = (Some(pc + 2), Some(jump_behind(pc)?));
        }
        Op::ForPrep => {
            let target = instruction.target(pc)?;
            let end = *code.get(target)?;
            let ends = end.op() == Some(Op::ForLoop) && end.a() == instruction.a();
            if !ends || end.target(target) != Some(pc + 1) {
                return None;
            }
            step.jump = Some(target + 1);
        }
        Op::ForLoop => step.jump = Some(instruction.target(pc)?),
        Op::LoadBool if instruction.c() != 0 => step.next = Some(pc + 2),
        Op::SetList if instruction.c() == 0 => step.next = Some(pc + 2),
        Op::Closure => {
            step.next =
                Some(pc + 1 + function.nested.get(instruction.bx())?.1).filter(|&next| next <= code.len())
        }
        // The interpreter does it.
        Op::Return | Op::TailCall => step.next = None,
        _ => {}
    }
    Some(step)
}

/// The place behind the step at `pc`, where the next one may begin.
fn behind(steps: &[Option<Step>], pc: usize) -> usize {
    (pc + 1..steps.len()).find(|&next| steps[next].is_some()).unwrap_or(steps.len())
}

/// Whether `next` is the next step that there is.
fn follows(steps: &[Option<Step>], pc: usize, next: usize) -> bool {
    behind(steps, pc) == next
}

/// Adds a scope, or makes the one that has the same target as large.
fn widen(scopes: &mut Vec<Scope>, new: Scope) {
    let same = |old: &&mut Scope| match new.is_loop {
        true => old.start == new.start,
        false => old.end == new.end,
    };
    match scopes.iter_mut().find(same) {
        Some(old) => {
            old.start = old.start.min(new.start);
            old.end = old.end.max(new.end);
        }
        None => scopes.push(new),
    }
}

/// Makes loops lie in each other: what jumps back to an outer loop last may be the test at the start of an inner one.
fn nest_loops(loops: &mut [Scope]) {
    let mut changed = true;
    while changed {
        changed = false;
        for index in 0..loops.len() {
            let Scope { start, end, .. } = loops[index];
            let crosses =
                |outer: &&mut Scope| (outer.start + 1..outer.end).contains(&start) && outer.end < end;
            for outer in loops.iter_mut().filter(crosses) {
                outer.end = end;
                changed = true;
            }
        }
    }
}

fn outer(loops: &[Scope]) -> Vec<usize> {
    let within =
        |inner: &Scope, outer: &Scope| inner != outer && outer.start <= inner.start && inner.end <= outer.end;
    let mut starts: Vec<usize> = loops
        .iter()
        .filter(|inner| !loops.iter().any(|outer| within(inner, outer)))
        .map(|outer| outer.start)
        .collect();
    starts.sort_unstable();
    starts
}

/// Makes blocks begin early enough to lie in each other and around loops. Nothing: a jump leads into a loop, or loops overlap.
fn nest(loops: Vec<Scope>, mut blocks: Vec<Scope>) -> Option<Vec<Scope>> {
    let mut changed = true;
    while changed {
        changed = false;
        for index in 0..blocks.len() {
            let block = blocks[index];
            let mut start = block.start;
            for around in loops.iter().chain(&blocks) {
                let crosses = around.start < start && start < around.end && around.end < block.end;
                let leaves =
                    around.is_loop && around.start < start && start < around.end && around.end == block.end;
                if crosses || leaves {
                    start = around.start;
                }
            }
            if start != block.start {
                blocks[index].start = start;
                changed = true;
            }
        }
    }
    let mut scopes = [blocks, loops].concat();
    // Of two that begin and end together a jump to the end leads out of the loop.
    scopes.sort_by_key(|scope| (scope.start, std::cmp::Reverse(scope.end), scope.is_loop));
    let nested = |a: &Scope, b: &Scope| b.start >= a.end || b.end <= a.end;
    let all = scopes.iter().enumerate().all(|(index, a)| scopes[index + 1..].iter().all(|b| nested(a, b)));
    all.then_some(scopes)
}
