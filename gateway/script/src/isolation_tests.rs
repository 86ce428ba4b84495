//! Nothing of a run stays behind: whatever ended it, the next request finds memory and globals as in an instance that
//! never ran anything.

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::task::{Context, Waker};
use std::time::Duration;

use wasmtime::Val;

use super::*;
use crate::guard::{Guard, PAGE};
use crate::host::{CallFlags, Finishing, HostCall, LogLevel};
use crate::sandbox::{FREE_IMAGE_BYTES, IMAGE_BYTES_PER_FUEL, MOST_REWINDS};

#[path = "corruption_tests.rs"]
mod corruption_tests;

/// A host whose commands end runs in the ways a host can.
struct TestHost;

impl Host for TestHost {
    fn call(&mut self, args: &[&[u8]], _: CallFlags, reply: &mut Vec<u8>) -> HostCall {
        match args[0] {
            b"STOP" => return HostCall::Stop,
            b"COSTLY" => return HostCall::Done(1 << 60),
            b"PANIC" => panic!("a host call panics, as this test wants"),
            b"NONSENSE" => reply.extend_from_slice(b"?what is this\r\n"),
            b"SLOW" => {
                std::thread::sleep(Duration::from_millis(1));
                reply.extend_from_slice(b"+OK\r\n");
            }
            b"FAIL" => reply.extend_from_slice(b"-ERR no\r\n"),
            b"BIG" => {
                reply.extend_from_slice(b"$100000\r\n");
                reply.resize(reply.len() + 100_000, b'b');
                reply.extend_from_slice(b"\r\n");
            }
            _ => reply.extend_from_slice(b"+OK\r\n"),
        }
        HostCall::Done(1)
    }

    fn finish<'a>(&'a mut self, _: &'a mut Vec<u8>) -> Finishing<'a> {
        unreachable!("this host never says later")
    }

    fn log(&mut self, _: LogLevel, _: &[u8]) {}

    fn frames(&mut self, description: &[u8]) -> bool {
        // Corrupt guests say anything.
        let _ = crate::frames::decode(description);
        true
    }
}

const BUDGET: Budget = Budget {
    fuel: 1 << 32,
    compile_fuel: 1 << 32,
    time: Duration::from_secs(60),
    memory_bytes: 16 << 20,
    reply_bytes: 1 << 20,
    slice_fuel: 50_000,
};

/// Everything a script can reach, in the order and with the addresses it has in memory, and what it can ask about
/// its own heap and randomness.
const CANARY: &str = "
    local seen, lines = {}, {}
    local function walk(value, path)
        lines[#lines + 1] = path .. ' ' .. tostring(value)
        local meta = getmetatable(value)
        if type(meta) == 'table' and not seen[meta] then walk(meta, path .. '<meta>') end
        if type(value) ~= 'table' or seen[value] then return end
        seen[value] = true
        for key, inner in next, value do
            walk(key, path .. '<key>')
            walk(inner, path .. '.' .. tostring(key))
        end
    end
    walk(_G, '_G')
    walk('text', 'text')
    walk(coroutine.create(walk), 'coroutine')
    lines[#lines + 1] = collectgarbage('count') .. ' ' .. math.random() .. ' ' .. os.clock()
    return table.concat(lines, '\\n')";

/// A script, what it may use, and whether its end is the wanted one.
type Ending = (&'static str, &'static str, Budget, fn(&Outcome) -> bool);

/// Fills some megabyte with a pattern, in strings, tables, closures and coroutines.
const SPRAY: &str = "
    local kept = {}
    for i = 1, 40 do
        kept[i] = string.rep('\\170' .. i, 10000)
        kept['name' .. i] = {i, function() return kept, i end, coroutine.wrap(function() coroutine.yield(i) end)}
        kept['name' .. i][3]()
    end
    KEYS[1], ARGV.left = kept, kept
    return #kept";

fn endings() -> Vec<Ending> {
    let replies = |outcome: &Outcome| matches!(outcome, Outcome::Reply(_));
    let fails = |outcome: &Outcome| matches!(outcome, Outcome::Reply(text) if text.starts_with(b"-"));
    let traps = |outcome: &Outcome| matches!(outcome, Outcome::Trap(_));
    let out_of_fuel = |outcome: &Outcome| *outcome == Outcome::Limit(Limit::Fuel);
    let little_fuel = Budget { fuel: 2_000_000, ..BUDGET };
    vec![
        ("success", "return {1, 'two', {3}}", BUDGET, replies),
        ("calls", "for i = 1, 50 do redis.call('SET', i, {}) end", BUDGET, fails),
        (
            "large replies",
            "local t = {} for i = 1, 5 do t[i] = redis.call('BIG') end return 1",
            BUDGET,
            replies,
        ),
        ("RESP3 and a seed", "redis.setresp(3) math.randomseed(5) return math.random()", BUDGET, replies),
        ("Lua error", "local t = {} t.x.y = 1", BUDGET, fails),
        ("error of a call", "redis.call('FAIL')", BUDGET, fails),
        ("error in a coroutine", "coroutine.wrap(function() error({}) end)()", BUDGET, fails),
        ("endless recursion", "local function f() return 1 + f() end return f()", BUDGET, fails),
        ("does not compile", "return (", BUDGET, |outcome| matches!(outcome, Outcome::CompileError(_))),
        ("spray", SPRAY, BUDGET, replies),
        (
            "garbage collected",
            "for i = 1, 2000 do local s = string.rep('g', i) end collectgarbage() return 1",
            BUDGET,
            replies,
        ),
        ("more memory than is kept", "local s = string.rep('m', 6e6) return #s", BUDGET, replies),
        ("trap", "redis.call('SET', 'a', 'b') local x = redis.call('NONSENSE')", BUDGET, traps),
        ("trap in pcall", "pcall(function() local x = redis.pcall('NONSENSE') end)", BUDGET, traps),
        ("fuel", "local t = {} while true do t[#t % 9000 + 1] = #t end", little_fuel, out_of_fuel),
        (
            "time of calls",
            "while true do redis.call('SLOW') end",
            Budget { time: Duration::from_millis(50), ..BUDGET },
            |outcome| *outcome == Outcome::Limit(Limit::Time),
        ),
        ("fuel of calls", "while true do redis.call('COSTLY') end", BUDGET, out_of_fuel),
        (
            "memory",
            "local t = {} while true do t[#t + 1] = string.rep('x', 1e5) .. #t end",
            BUDGET,
            |outcome| *outcome == Outcome::Limit(Limit::Memory),
        ),
        // Over after the first slice, however fast that was.
        ("time", "while true do end", Budget { time: Duration::ZERO, ..BUDGET }, |outcome| {
            *outcome == Outcome::Limit(Limit::Time)
        }),
        ("reply", "return string.rep('r', 5000)", Budget { reply_bytes: 4000, ..BUDGET }, |outcome| {
            *outcome == Outcome::Limit(Limit::Reply)
        }),
        ("stopped", SPRAY_AND_STOP, BUDGET, |outcome| *outcome == Outcome::Stopped),
    ]
}

const SPRAY_AND_STOP: &str = "local t = {} for i = 1, 9000 do t[i] = {i} end redis.call('STOP')";

fn config(instances: Instances, compile: Compile) -> RuntimeConfig {
    RuntimeConfig { instances, concurrency: 4, max_memory_bytes: 16 << 20, compile }
}

const INPUT: RunInput<'static> = RunInput {
    name: "f",
    keys: &[b"k1", b"k2"],
    args: &[b"a"],
    clock_seconds: 1.5,
    seed: 7,
    function: false,
    frames: false,
};

fn input() -> Vec<u8> {
    INPUT.encode()
}

/// The same of a run that is described, or is not.
fn input_with(frames: bool) -> Vec<u8> {
    RunInput { frames, ..INPUT }.encode()
}

/// What memory and globals must be: those of an instance that did nothing but start, and was never rewound.
struct Baseline {
    memory: Vec<u8>,
    globals: Vec<String>,
}

/// What an image is made of.
enum Source<'a> {
    Script(&'a str),
    Library(&'a str),
}

struct Lab {
    runtime: Runtime<TestHost>,
    baseline: Baseline,
    canary: Option<Outcome>,
}

fn globals(sandbox: &mut Sandbox<TestHost>) -> Vec<String> {
    let Sandbox { store, globals, .. } = sandbox;
    globals.iter().map(|global| format!("{:?}", global.get(&mut *store))).collect()
}

/// Holds `sandbox` to the truth; memory beyond it must be empty.
fn hold(sandbox: &mut Sandbox<TestHost>, baseline: &Baseline, after: &str) {
    assert_eq!(globals(sandbox), baseline.globals, "globals after: {after}");
    let memory = sandbox.store.data().memory().data(&sandbox.store);
    assert!(memory.len() >= baseline.memory.len(), "memory too small after: {after}");
    let (start, rest) = memory.split_at(baseline.memory.len());
    if start != baseline.memory {
        let at = start.iter().zip(&baseline.memory).position(|(is, wanted)| is != wanted);
        panic!("memory differs, first at {at:?}, after: {after}");
    }
    // Whole pages at once: this is a lot of memory to look at.
    assert!(
        rest.chunks(PAGE).all(|page| page == &[0; PAGE][..page.len()]),
        "memory is not empty after: {after}"
    );
}

impl Lab {
    async fn new(instances: Instances) -> Lab {
        Lab::with(instances, Compile::Never).await
    }

    async fn with(instances: Instances, compile: Compile) -> Lab {
        let runtime = Runtime::new(config(instances, compile)).await.unwrap();
        let baseline = Lab::baseline(&runtime, None).await;
        Lab { runtime, baseline, canary: None }
    }

    async fn baseline(runtime: &Runtime<TestHost>, source: Option<Source<'_>>) -> Baseline {
        let mut fresh = Sandbox::new(&runtime.engine, &runtime.pre, false).await.unwrap();
        let pristine = fresh.initialise().await.unwrap();
        if let Some(source) = source {
            let (text, export) = match source {
                Source::Script(text) => (text, fresh.compile.clone()),
                Source::Library(text) => (text, fresh.load.clone()),
            };
            let len = fresh.write_input(&pristine, text.as_bytes()).await.unwrap();
            export.call_async(&mut fresh.store, len).await.unwrap();
        }
        let memory = fresh.store.data().memory().data(&fresh.store).to_vec();
        Baseline { memory, globals: globals(&mut fresh) }
    }

    async fn run(&self, script: &Script, budget: &Budget) -> Outcome {
        self.runtime.run(script, &input(), budget, TestHost).await.1
    }

    /// All sandboxes that a later request could get, or a new one.
    async fn next_sandboxes(&self) -> Vec<Sandbox<TestHost>> {
        let mut found: Vec<_> =
            self.runtime.idle.iter().flat_map(|pool| std::mem::take(&mut *pool.lock())).collect();
        if found.is_empty() {
            found.extend(self.runtime.sandbox(0).await.ok());
        }
        found
    }

    /// How many pages of the next sandbox may differ from the image; 0 where that is not watched.
    async fn written(&self) -> u32 {
        let sandbox = self.next_sandboxes().await.pop().unwrap();
        let written = sandbox.guard.as_ref().map_or(0, Guard::written).count_ones();
        self.runtime.give_back(sandbox);
        written
    }

    /// Rewinds whatever a later request could get, and holds it to the truth; then a script looks around.
    async fn look_around(&mut self, after: &str) {
        for mut sandbox in self.next_sandboxes().await {
            sandbox.rewind(&self.runtime.pristine, None, &BUDGET).await.unwrap();
            hold(&mut sandbox, &self.baseline, after);
            self.runtime.give_back(sandbox);
        }
        let seen = self.run(&Script::new(CANARY.as_bytes()), &BUDGET).await;
        assert!(matches!(&seen, Outcome::Reply(text) if text.starts_with(b"$")), "{after}: {seen:?}");
        let first = self.canary.get_or_insert_with(|| Outcome::Reply(Vec::new()));
        if *first == Outcome::Reply(Vec::new()) {
            *first = seen;
        } else {
            assert!(*first == seen, "what a script sees has changed after: {after}");
        }
    }
}

/// Polls a run until it has used up its first slice of fuel.
fn poll_once<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

async fn nothing_stays(instances: Instances, compile: Compile) {
    let mut lab = Lab::with(instances, compile).await;
    lab.look_around("nothing").await;
    let reuses = instances == Instances::Rewind;
    let busy = Script::new(corruption_tests::BUSY.as_bytes());
    // Twice, so that every ending also meets sandboxes that the others have used.
    for _ in 0..2 {
        for (name, source, budget, wanted) in endings() {
            let script = Script::new(source.as_bytes());
            let outcome = lab.run(&script, &budget).await;
            assert!(wanted(&outcome), "{name}: {outcome:?}");
            lab.look_around(name).await;
        }
        let described = lab.runtime.run(&busy, &input_with(true), &BUDGET, TestHost).await.1;
        assert_eq!(described, lab.run(&busy, &BUDGET).await);
        lab.look_around("described").await;
        let endless = Script::new(b"local t = {} while true do t[#t % 9999 + 1] = {} end");
        let input = input();
        {
            let mut run = pin!(lab.runtime.run(&endless, &input, &BUDGET, TestHost));
            assert!(poll_once(run.as_mut()).is_pending());
        }
        lab.look_around("cancelled").await;
        let panics = Script::new(b"redis.call('PANIC')");
        let mut run = Box::pin(lab.runtime.run(&panics, &input, &BUDGET, TestHost));
        let panicked = std::panic::catch_unwind(AssertUnwindSafe(|| poll_once(run.as_mut())));
        assert!(panicked.is_err());
        drop(run);
        lab.look_around("host panicked").await;
    }
    let idle: usize = lab.runtime.idle.iter().map(|pool| pool.lock().len()).sum();
    assert_eq!(idle > 0, reuses);
}

#[tokio::test]
async fn nothing_stays_in_a_used_instance() {
    nothing_stays(Instances::Rewind, Compile::Never).await;
}

#[tokio::test]
async fn nothing_stays_of_compiled_scripts() {
    nothing_stays(Instances::Rewind, Compile::Always).await;
}

#[tokio::test]
async fn nothing_stays_with_new_instances() {
    nothing_stays(Instances::Fresh, Compile::Never).await;
}

/// A known script comes from its image from the second run on, which is not visible, whatever ran in between.
async fn images_are_exact(instances: Instances) {
    let lab = Lab::new(instances).await;
    let long =
        format!("local t = {{{}}} return {{#t, tostring(t), KEYS[1]}}", "'word', 12.5, {}, ".repeat(900));
    assert!(long.len() > abi::INPUT_STATIC as usize);
    for source in [CANARY, long.as_str(), "return 1"] {
        let baseline = Lab::baseline(&lab.runtime, Some(Source::Script(source))).await;
        let script = Script::new(source.as_bytes());
        let first = lab.run(&script, &BUDGET).await;
        assert!(matches!(first, Outcome::Reply(_)), "{first:?}");
        assert!(script.image().is_none(), "a script that ran once is worth no image");
        for number in 2..5 {
            let spray = lab.run(&Script::new(SPRAY.as_bytes()), &BUDGET).await;
            assert!(matches!(spray, Outcome::Reply(_)), "{spray:?}");
            assert!(lab.run(&script, &BUDGET).await == first, "run {number} answers otherwise");
            let image = script.image().expect("the second run keeps the image");
            for mut sandbox in lab.next_sandboxes().await {
                sandbox.rewind(&lab.runtime.pristine, Some(image), &BUDGET).await.unwrap();
                hold(&mut sandbox, &baseline, "image of a script");
                // And the other way round: nothing of the image stays.
                sandbox.rewind(&lab.runtime.pristine, None, &BUDGET).await.unwrap();
                hold(&mut sandbox, &lab.baseline, "run of a script with an image");
                lab.runtime.give_back(sandbox);
            }
        }
        let loaded = Script::new(source.as_bytes());
        lab.runtime.compile(&loaded, &BUDGET).await.0.unwrap();
        assert!(loaded.image().is_some(), "compiling beforehand keeps the image");
        assert!(lab.run(&loaded, &BUDGET).await == first, "a script that was loaded answers otherwise");
    }
}

#[tokio::test]
async fn images_are_exact_in_used_instances() {
    images_are_exact(Instances::Rewind).await;
}

#[tokio::test]
async fn images_are_exact_in_new_instances() {
    images_are_exact(Instances::Fresh).await;
}

/// A library in which one function ends in the given way, having left what it can in the library's own variables, and
/// another looks around.
fn library(body: &str) -> String {
    format!(
        "local state = {{calls = 0}}
        redis.register_function('ends', function(KEYS, ARGV)
            state.calls, state.keys, state[KEYS] = state.calls + 1, KEYS, ARGV
            {body}
        end)
        redis.register_function('looks', function(keys, args)
            local size = 0
            for _ in pairs(state) do size = size + 1 end
            if state.calls ~= 0 or size ~= 1 then return 'a call before was here' end
            {CANARY}
        end)"
    )
}

fn call_of(function: &str) -> Vec<u8> {
    RunInput { name: function, function: true, ..INPUT }.encode()
}

/// However a function ends, the next call finds the library as it was when it was loaded, and scripts find no library.
async fn libraries_stay_fresh(instances: Instances, compile: Compile) {
    let mut lab = Lab::with(instances, compile).await;
    lab.look_around("nothing").await;
    for (name, body, budget, wanted) in endings() {
        let text = library(body);
        let library = Script::new(text.as_bytes());
        let (loaded, _) = lab.runtime.load(&library, &BUDGET, TestHost).await;
        let Outcome::Reply(reply) = loaded else { panic!("{name}: {loaded:?}") };
        // The one that does not compile.
        if reply.starts_with(b"-") {
            assert!(name == "does not compile" && library.image().is_none(), "{name}: {reply:?}");
            lab.look_around(name).await;
            continue;
        }
        let baseline = Lab::baseline(&lab.runtime, Some(Source::Library(&text))).await;
        let image = library.image().expect("loading keeps the image");
        let (ends, looks) = (call_of("ends"), call_of("looks"));
        let first = lab.runtime.run(&library, &looks, &BUDGET, TestHost).await.1;
        assert!(matches!(&first, Outcome::Reply(text) if text.starts_with(b"$")), "{name}: {first:?}");
        for _ in 0..2 {
            let outcome = lab.runtime.run(&library, &ends, &budget, TestHost).await.1;
            assert!(wanted(&outcome), "{name}: {outcome:?}");
            for mut sandbox in lab.next_sandboxes().await {
                sandbox.rewind(&lab.runtime.pristine, Some(image), &BUDGET).await.unwrap();
                hold(&mut sandbox, &baseline, name);
                lab.runtime.give_back(sandbox);
            }
            let again = lab.runtime.run(&library, &looks, &BUDGET, TestHost).await.1;
            assert!(again == first, "what a function sees has changed after: {name}");
            lab.look_around(name).await;
        }
    }
}

#[tokio::test]
async fn libraries_stay_fresh_in_used_instances() {
    libraries_stay_fresh(Instances::Rewind, Compile::Never).await;
}

#[tokio::test]
async fn libraries_stay_fresh_in_new_instances() {
    libraries_stay_fresh(Instances::Fresh, Compile::Never).await;
}

#[tokio::test]
async fn compiled_libraries_stay_fresh_in_new_instances() {
    libraries_stay_fresh(Instances::Fresh, Compile::Always).await;
}

/// Several runs under way at the same time, each in its own sandbox, do not see each other either.
#[tokio::test]
async fn runs_do_not_meet() {
    let mut lab = Lab::new(Instances::Rewind).await;
    lab.look_around("nothing").await;
    let scripts = [SPRAY, CANARY, "while true do end"].map(|source| Script::new(source.as_bytes()));
    let input = input();
    {
        let mut runs = scripts.each_ref().map(|script| {
            Box::pin(lab.runtime.run(script, &input, &Budget { fuel: 1 << 24, ..BUDGET }, TestHost))
        });
        let mut left = vec![0, 1, 2];
        let mut seen = None;
        while !left.is_empty() {
            left.retain(|&at| match poll_once(runs[at].as_mut()) {
                Poll::Ready((_, outcome, _)) if at == 1 => {
                    seen = Some(outcome);
                    false
                }
                step => step.is_pending(),
            });
        }
        assert!(seen == lab.canary, "another run can be seen");
    }
    lab.look_around("runs in turn").await;
}

/// What every run writes lies together in the guest: each page more would have to be put back after each run.
#[tokio::test]
async fn a_short_run_writes_few_pages() {
    let lab = Lab::new(Instances::Rewind).await;
    let script = Script::new(b"return redis.call('GET', KEYS[1])");
    lab.runtime.compile(&script, &BUDGET).await.0.unwrap();
    // Compiling writes more, which a new instance knows nothing of.
    drop(lab.next_sandboxes().await);
    for _ in 0..2 {
        assert!(matches!(lab.run(&script, &BUDGET).await, Outcome::Reply(_)));
    }
    assert!(lab.written().await <= 5);
}

/// What one script has written is put back again and again, but not for ever.
#[tokio::test]
async fn pages_that_are_written_no_more_are_forgotten() {
    let lab = Lab::new(Instances::Rewind).await;
    let (short, long) = (Script::new(b"return 1"), Script::new(b"return #string.rep('x', 40000)"));
    lab.runtime.compile(&short, &BUDGET).await.0.unwrap();
    assert_eq!(lab.run(&long, &BUDGET).await, Outcome::Reply(b":40000\r\n".to_vec()));
    let before = lab.written().await;
    for _ in 0..MOST_REWINDS {
        assert!(matches!(lab.run(&short, &BUDGET).await, Outcome::Reply(_)));
    }
    let after = lab.written().await;
    assert!(before == 0 || after <= 5 && before > after, "{before} pages, then {after}");
}

/// A guest that is no longer the program we built may have written anywhere, and to its globals.
#[tokio::test]
async fn every_byte_is_put_back() {
    let lab = Lab::new(Instances::Rewind).await;
    let known = Script::new(CANARY.as_bytes());
    lab.runtime.compile(&known, &BUDGET).await.0.unwrap();
    let compiled = Lab::baseline(&lab.runtime, Some(Source::Script(CANARY))).await;
    let mut sandbox = lab.next_sandboxes().await.pop().unwrap();
    let cases: [(Option<&Image>, &Baseline); 2] = [(None, &lab.baseline), (known.image(), &compiled)];
    for round in 0..6_u8 {
        // All pages, and every third one: few written pages are put back in another way than many.
        for step in [1, 3] {
            let (image, baseline) = cases[usize::from(round) % 2];
            sandbox.rewind(&lab.runtime.pristine, image, &BUDGET).await.unwrap();
            hold(&mut sandbox, baseline, &format!("writing all over, round {round}"));
            let memory = sandbox.store.data().memory();
            memory.grow_async(&mut sandbox.store, 1).await.unwrap();
            for page in memory.data_mut(&mut sandbox.store).chunks_mut(PAGE).step_by(step) {
                page.fill(0xA0 + round);
            }
            for global in &sandbox.globals {
                global.set(&mut sandbox.store, Val::I32(round.into())).unwrap();
            }
        }
    }
}

/// Whatever the module can change besides its memory is put back between two runs: nothing is hidden from the host.
#[tokio::test]
async fn every_global_that_can_change_is_put_back() {
    let sections = wasmparser::Parser::new(0).parse_all(guest_lua::LUA_WASM);
    let globals = sections.filter_map(|payload| match payload.unwrap() {
        wasmparser::Payload::GlobalSection(globals) => Some(globals),
        _ => None,
    });
    let mutable = globals.flatten().filter(|global| global.as_ref().unwrap().ty.mutable).count();
    let runtime = Runtime::<TestHost>::new(config(Instances::Rewind, Compile::Never)).await.unwrap();
    let sandbox = Sandbox::new(&runtime.engine, &runtime.pre, false).await.unwrap();
    assert!(mutable > 0, "the stack pointer is one");
    assert_eq!(sandbox.globals.len(), mutable);
}

/// What compiling leaves behind does not become part of an image, and a run pays for copying a large one.
#[tokio::test]
async fn images_are_small_and_paid_for() {
    let lab = Lab::new(Instances::Rewind).await;
    let budget = Budget { memory_bytes: 256 << 20, ..BUDGET };
    let input = input();
    let footprint = Arc::new(crate::Footprint::default());
    let script_of = |statement: &str, bytes: usize| {
        let body = statement.repeat(bytes / statement.len());
        Script::counted(format!("local function f() {body} end return 1").as_bytes(), &footprint)
    };
    let small = script_of("x = 1 ", 30);
    let large = script_of("redis.call('SET', KEYS[1], 'v') ", 2 << 20);
    let (mut fuel, mut run_fuel) = (Vec::new(), Vec::new());
    for script in [&small, &large] {
        for _ in 0..3 {
            let (_, outcome, usage) = lab.runtime.run(script, &input, &budget, TestHost).await;
            assert_eq!(outcome, Outcome::Reply(b":1\r\n".into()));
            fuel.push(usage.compile_fuel);
            run_fuel.push(usage.fuel);
        }
        // Whether the script was compiled, or its image copied: the run costs the same.
        assert!(run_fuel.iter().all(|fuel| *fuel == run_fuel[0]), "{run_fuel:?}");
        run_fuel.clear();
    }
    let image = large.image_bytes();
    assert!((1 << 20..3 * large.source().len()).contains(&image), "{image} bytes");
    assert_eq!(footprint.bytes(), small.bytes() + large.bytes());
    let copied = (fuel[5] - fuel[2]) as usize * IMAGE_BYTES_PER_FUEL;
    assert!(
        (image - FREE_IMAGE_BYTES - 1024..image + 1024).contains(&copied),
        "{copied} of {image} bytes are paid for"
    );
    // Beyond the fuel of a run nothing is copied.
    let (_, outcome, _) =
        lab.runtime.run(&large, &input, &Budget { fuel: 100_000, ..budget }, TestHost).await;
    assert_eq!(outcome, Outcome::Limit(Limit::Fuel));
    // A larger image is not kept.
    let too_large = script_of("a=1 ", 4 << 20);
    for _ in 0..2 {
        let (_, outcome, _) = lab.runtime.run(&too_large, &input, &budget, TestHost).await;
        assert_eq!(outcome, Outcome::Reply(b":1\r\n".into()));
    }
    assert_eq!(too_large.image_bytes(), 0);
    drop((small, large, too_large));
    assert_eq!(footprint.bytes(), 0);
}

/// A run needs the same fuel whether its script is compiled for it or was before, and the compilation has its own.
#[tokio::test]
async fn the_fuel_of_a_run_does_not_depend_on_who_compiled_it() {
    let lab = Lab::new(Instances::Rewind).await;
    let input = input();
    let source = format!("{} return 1", "local function f() return 7 end ".repeat(40));
    let fresh = || Script::new(source.as_bytes());
    let (_, _, usage) = lab.runtime.run(&fresh(), &input, &BUDGET, TestHost).await;
    assert!(usage.compile_fuel > usage.fuel, "{usage:?}");
    for (fuel, wanted) in
        [(usage.fuel, Outcome::Reply(b":1\r\n".into())), (usage.fuel / 2, Outcome::Limit(Limit::Fuel))]
    {
        let script = fresh();
        for _ in 0..3 {
            let (_, outcome, spent) =
                lab.runtime.run(&script, &input, &Budget { fuel, ..BUDGET }, TestHost).await;
            assert_eq!(outcome, wanted);
            assert!(spent.fuel >= fuel && spent.compile_fuel <= usage.compile_fuel, "{spent:?}");
        }
        assert!(script.image_bytes() > 0, "later runs found it compiled");
    }
    // The compilation has its limit, too, and what it took is known.
    let budget = Budget { compile_fuel: usage.compile_fuel / 2, ..BUDGET };
    let (_, outcome, spent) = lab.runtime.run(&fresh(), &input, &budget, TestHost).await;
    assert_eq!(outcome, Outcome::Limit(Limit::Fuel));
    assert!(spent.fuel == 0 && spent.compile_fuel >= budget.compile_fuel, "{spent:?}");
}
