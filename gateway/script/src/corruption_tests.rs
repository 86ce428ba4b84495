//! A guest whose memory is not what the guest's program has made it: the host answers with a reply, a limit or a trap,
//! whatever the guest passes it, and the next request finds nothing of it.

use wasmtime::Module;

use super::*;
use crate::tier::{self, Memory};

/// Ways in which memory becomes corrupt.
const WAYS: u64 = 5;

/// Calls, errors, strings and tables: each looks at much of the guest's memory.
pub const BUSY: &str = "
    local t = {}
    for i = 1, 30 do
        t[i] = redis.call('SET', 'key' .. i, ('v'):rep(i))
        pcall(error, {i})
        t['k' .. i] = tostring(i):gsub('1', {['1'] = 'one'})
    end
    local n = 0
    for i = 1, 100 do n = n + i % 7 t[i % 30 + 1] = t[n % 30 + 1] end
    redis.call('BIG')
    table.sort(t, function(a, b) return tostring(a) < tostring(b) end)
    return {n, #t, t, cjson.encode({1, 'two', {three = 3}}), KEYS[1]}";

/// Words that are wrong in a way of their own.
const WORDS: [u32; 6] = [0, u32::MAX, i32::MAX as u32, 1, 0xFFFF_0000, 16 << 20];

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}

/// Makes what is in use of the guest's memory another, or its stack pointer.
fn corrupt(sandbox: &mut Sandbox<TestHost>, used: usize, random: &mut Random) {
    let way = random.next() % WAYS;
    if way == 0 {
        let Sandbox { store, globals, .. } = sandbox;
        let value = WORDS[random.below(WORDS.len())] ^ (random.next() as u32 & 0xFF);
        for global in globals.iter() {
            if let Val::I32(_) = global.get(&mut *store) {
                global.set(&mut *store, Val::I32(value as i32)).expect("a global of this type");
            }
        }
        return;
    }
    let memory = sandbox.store.data().memory().data_mut(&mut sandbox.store);
    let memory = &mut memory[..used];
    match way {
        1 => (0..1 + random.below(64)).for_each(|_| memory[random.below(used)] = random.next() as u8),
        2 => {
            for _ in 0..1 + random.below(16) {
                let at = random.below(used / 4) * 4;
                let word = WORDS[random.below(WORDS.len())];
                memory[at..at + 4].copy_from_slice(&word.to_le_bytes());
            }
        }
        3 => {
            let at = random.below(used / PAGE) * PAGE;
            memory[at..at + PAGE].fill_with(|| random.next() as u8);
        }
        _ => {
            for _ in 0..1 + random.below(64) {
                let (one, other) = (random.below(used / 4) * 4, random.below(used / 4) * 4);
                let word: [u8; 4] = memory[one..one + 4].try_into().expect("four bytes");
                memory.copy_within(other..other + 4, one);
                memory[other..other + 4].copy_from_slice(&word);
            }
        }
    }
}

async fn run_corrupt(lab: &Lab, script: &Script, budget: &Budget, random: &mut Random) -> Outcome {
    let runtime = &lab.runtime;
    let Ok(mut sandbox) = runtime.sandbox(0).await else { panic!("no sandbox") };
    sandbox.store.data_mut().host = Some(TestHost);
    let before_compiling = random.next().is_multiple_of(4);
    let result = async {
        if before_compiling {
            sandbox.rewind(&runtime.pristine, None, budget).await?;
            corrupt(&mut sandbox, lab.baseline.memory.len(), random);
            let len = sandbox.write_input(&runtime.pristine, script.source()).await?;
            let compile = sandbox.compile.clone();
            let packed =
                until(sandbox.store.data().deadline, compile.call_async(&mut sandbox.store, len)).await?;
            sandbox.result(packed)?;
        } else {
            runtime.prepare(&mut sandbox, script, false, budget).await?;
            corrupt(&mut sandbox, lab.baseline.memory.len(), random);
        }
        let input = input_with(random.next().is_multiple_of(2));
        let len = sandbox.write_input(&runtime.pristine, &input).await?;
        let run = sandbox.run.clone();
        let packed = until(sandbox.store.data().deadline, run.call_async(&mut sandbox.store, len)).await?;
        Ok::<_, RunFailure>(sandbox.result(packed)?.to_vec())
    };
    let result = result.await;
    sandbox.store.data_mut().host = None;
    match result {
        Ok(reply) => {
            runtime.give_back(sandbox);
            Outcome::Reply(reply)
        }
        Err(failure) => runtime.conclude(failure),
    }
}

async fn corruption_stays_inside(instances: Instances, compile: Compile, runs: u64) {
    let mut lab = Lab::with(instances, compile).await;
    lab.look_around("nothing").await;
    let budget = Budget { fuel: 3_000_000, ..BUDGET };
    let script = Script::new(BUSY.as_bytes());
    let sound = lab.run(&script, &budget).await;
    assert!(matches!(&sound, Outcome::Reply(reply) if reply.starts_with(b"*")), "{sound:?}");
    assert_eq!(script.is_compiled(), compile == Compile::Always);
    let mut differing = 0;
    for seed in 0..runs {
        let outcome = run_corrupt(&lab, &script, &budget, &mut Random(seed)).await;
        differing += u64::from(outcome != sound);
        if seed % 10 == 9 {
            lab.look_around(&format!("corruption {seed}: {outcome:.100?}")).await;
        }
    }
    assert!(differing > runs / 10, "{differing} of {runs} runs saw that memory was corrupt");
}

#[tokio::test]
async fn corrupt_memory_stays_in_its_instance() {
    corruption_stays_inside(Instances::Rewind, Compile::Never, 600).await;
}

#[tokio::test]
async fn corrupt_memory_stays_in_a_new_instance() {
    corruption_stays_inside(Instances::Fresh, Compile::Never, 100).await;
}

#[tokio::test]
async fn corrupt_memory_of_a_compiled_script_stays_in_its_instance() {
    corruption_stays_inside(Instances::Rewind, Compile::Always, 200).await;
}

impl Memory for Vec<u8> {
    fn byte(&self, at: u32) -> Option<u8> {
        self.get(at as usize).copied()
    }
}

/// The compiler reads images that a library may have made corrupt while it was loaded.
#[tokio::test]
async fn corrupt_functions_become_valid_modules_or_none() {
    let lab = Lab::new(Instances::Rewind).await;
    let sound = Lab::baseline(&lab.runtime, Some(Source::Script(BUSY))).await.memory;
    let is_new = |word: &usize| sound[*word..*word + 4] != lab.baseline.memory[*word..*word + 4];
    let new: Vec<usize> = (0..lab.baseline.memory.len()).step_by(4).filter(is_new).collect();
    let mut counts = [0; 2];
    for seed in 0..1000 {
        let random = &mut Random(seed);
        let mut memory = sound.clone();
        for _ in 0..1 + random.below(20) {
            let at = new[random.below(new.len())];
            let word = match random.below(3) {
                0 => WORDS[random.below(WORDS.len())].to_le_bytes(),
                1 => (random.next() as u32).to_le_bytes(),
                _ => sound[new[random.below(new.len())]..][..4].try_into().expect("four bytes"),
            };
            memory[at..at + 4].copy_from_slice(&word);
        }
        let side = tier::compile(&memory, lab.runtime.pristine.state, tier::Choice::All);
        counts[usize::from(side.is_some())] += 1;
        if let Some(side) = side {
            Module::validate(&lab.runtime.engine, &side.wasm).unwrap_or_else(|e| panic!("{seed}: {e}"));
        }
    }
    assert!(counts.iter().all(|&count| count > 50), "{counts:?}");
}
