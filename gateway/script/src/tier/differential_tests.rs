//! Random programs, and some that were written for what may go wrong, do the same in both tiers: reply, calls, and memory.

use std::time::Duration;

use super::programs::program;
use crate::{
    Budget, CallFlags, Compile, Finishing, Host, HostCall, Instances, LogLevel, Outcome, RunInput, Runtime,
    RuntimeConfig, Script,
};

/// Notes all calls.
#[derive(Default)]
pub struct Recorder(Vec<u8>);

impl Host for Recorder {
    fn call(&mut self, args: &[&[u8]], _: CallFlags, reply: &mut Vec<u8>) -> HostCall {
        args.iter().for_each(|arg| self.0.extend_from_slice(arg));
        reply.extend_from_slice(b":1\r\n");
        HostCall::Done(100)
    }

    fn finish<'a>(&'a mut self, _: &'a mut Vec<u8>) -> Finishing<'a> {
        unreachable!("this host never says later")
    }

    fn log(&mut self, _: LogLevel, _: &[u8]) {}

    fn frames(&mut self, description: &[u8]) -> bool {
        self.0.extend_from_slice(description);
        true
    }
}

/// Enough for every program.
pub const BUDGET: Budget = Budget {
    fuel: 1 << 32,
    compile_fuel: 1 << 32,
    time: Duration::from_secs(600),
    memory_bytes: 16 << 20,
    reply_bytes: 1 << 20,
    slice_fuel: 1 << 24,
};

/// A runtime for each tier.
struct Tiers([Runtime<Recorder>; 2]);

impl Tiers {
    async fn start() -> Tiers {
        let runtime = |compile| {
            let (instances, max_memory_bytes) = (Instances::Rewind, 16 << 20);
            Runtime::new(RuntimeConfig { instances, concurrency: 1, max_memory_bytes, compile })
        };
        Tiers([runtime(Compile::Never).await.unwrap(), runtime(Compile::Always).await.unwrap()])
    }

    /// What a program comes to in each tier, and what it called. The second run starts from the image.
    async fn run(&self, source: &str, frames: bool) -> [Vec<(Outcome, Vec<u8>)>; 2] {
        let input = RunInput {
            name: "f",
            keys: &[b"key"],
            args: &[b"7", b"text"],
            clock_seconds: 1.5,
            seed: 7,
            function: false,
            frames,
        };
        let input = input.encode();
        let mut all = [Vec::new(), Vec::new()];
        for (runtime, runs) in self.0.iter().zip(&mut all) {
            let script = Script::new(source.as_bytes());
            for _ in 0..2 {
                let host = Recorder::default();
                let (host, outcome, _) = runtime.run(&script, &input, &BUDGET, host).await;
                runs.push((outcome, host.map_or_else(Vec::new, |host| host.0)));
            }
        }
        all
    }

    async fn differ(&self, source: &str) -> bool {
        let [interpreted, compiled] = self.run(source, false).await;
        interpreted != compiled
    }

    /// The lines of a program that are enough for a difference.
    async fn reduce(&self, source: &str) -> String {
        let mut lines: Vec<&str> = source.lines().collect();
        let mut size = lines.len() / 2;
        while size > 0 {
            let mut at = 0;
            while at < lines.len() {
                let mut fewer = lines.clone();
                fewer.drain(at..(at + size).min(lines.len()));
                match self.differ(&fewer.join("\n")).await {
                    true => lines = fewer,
                    false => at += size,
                }
            }
            size /= 2;
        }
        lines.join("\n")
    }
}

fn text((outcome, calls): &(Outcome, Vec<u8>)) -> String {
    let reply = match outcome {
        Outcome::Reply(reply) => String::from_utf8_lossy(reply).into_owned(),
        other => format!("{other:?}"),
    };
    format!("{reply}\n{}", String::from_utf8_lossy(calls))
}

fn number(variable: &str, or: u64) -> u64 {
    std::env::var(variable).map_or(or, |text| text.parse().expect("a number"))
}

/// Calls as deep as compiled functions go, in frames as large as they get, and then as deep as functions of C go.
fn deep_frames() -> String {
    let locals: String = (1..=85).map(|number| format!("local a{number} = n + {number} ")).collect();
    let sum: String = (1..=85).map(|number| format!(" + a{number}")).collect();
    format!(
        "frames of many numbers
        local t = {{}}
        function t.gsub(n)
            if n == 0 then return '0' end
            return (('x'):gsub('x', function() return t.gsub(n - 1) .. '1' end))
        end
        function t.sort(n)
            if n == 0 then return '0' end
            local got
            table.sort({{2, 1}}, function(a, b) got = t.sort(n - 1) .. '1' return a < b end)
            return got
        end
        function t.wide(n, deepest)
            {locals}
            if n == 0 then return #t[deepest](90) end
            return t.wide(n - 1, deepest){sum}
        end
        local out = {{}}
        for n = 165, 185, 5 do
            out[#out + 1] = tostring((select(2, pcall(t.wide, n, 'gsub'))))
            out[#out + 1] = tostring((select(2, pcall(t.wide, n, 'sort'))))
        end
        return out"
    )
}

#[tokio::test]
async fn cases_do_the_same_in_both_tiers() {
    let tiers = Tiers::start().await;
    let deep_frames = deep_frames();
    let cases = include_str!("cases.lua").split("\n---- ").skip(1).chain([&*deep_frames]);
    for case in cases {
        let (name, source) = case.split_once('\n').expect("a name and a program");
        for frames in [false, true] {
            let [interpreted, compiled] = tiers.run(source, frames).await;
            for (interpreted, compiled) in interpreted.iter().zip(&compiled) {
                assert!(
                    matches!(&interpreted.0, Outcome::Reply(reply) if reply[0] == b'*'),
                    "{name}: {interpreted:?}"
                );
                assert_eq!(text(interpreted), text(compiled), "{name}");
            }
        }
    }
    let compilations = tiers.0[1].tier_report();
    assert_eq!(compilations.outcomes[1..], [0; 3], "all are compiled");
}

/// `MOONSHARD_TIER_PROGRAMS` is how many, `MOONSHARD_TIER_SEED` the seed of the first.
#[tokio::test]
async fn random_programs_do_the_same_in_both_tiers() {
    let tiers = Tiers::start().await;
    let first = number("MOONSHARD_TIER_SEED", 1);
    let count = number("MOONSHARD_TIER_PROGRAMS", 12);
    let mut replies = 0;
    for seed in first..first + count {
        let source = program(seed);
        let [interpreted, compiled] = tiers.run(&source, seed % 4 == 0).await;
        assert!(!matches!(interpreted[0].0, Outcome::CompileError(_)), "seed {seed}: {interpreted:?}");
        if interpreted != compiled {
            let small = tiers.reduce(&source).await;
            let [interpreted, compiled] = [&interpreted[0], &compiled[0]].map(text);
            panic!("seed {seed}: interpreted\n{interpreted}\ncompiled\n{compiled}\n\n{small}");
        }
        replies += u64::from(matches!(&interpreted[0].0, Outcome::Reply(reply) if reply[0] != b'-'));
    }
    let compilations = tiers.0[1].tier_report();
    let compiled = compilations.outcomes[0];
    println!("{count} programs, {replies} without an error, {compiled} compiled, {} us", compilations.micros);
    assert!(compiled * 4 >= count * 3, "{compilations:?}");
    assert_eq!(compilations.outcomes[3], 0, "the compiler failed");
}
