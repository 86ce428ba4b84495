//! What the host learns before each call about functions and variables, and that the script does not notice.

use std::time::Duration;

use script::frames::{self, Frame, LuaValue};
use script::{
    Budget, CallFlags, Compile, Finishing, Host, HostCall, Instances, Limit, LogLevel, Outcome,
    ResourceUsage, RunInput, Runtime, RuntimeConfig, Script,
};

/// Keeps so many descriptions, and answers every call with OK.
struct Recorder {
    wanted: usize,
    descriptions: Vec<Vec<u8>>,
}

impl Host for Recorder {
    fn call(&mut self, _: &[&[u8]], _: CallFlags, reply: &mut Vec<u8>) -> HostCall {
        reply.extend_from_slice(b"+OK\r\n");
        HostCall::Done(1)
    }

    fn finish<'a>(&'a mut self, _: &'a mut Vec<u8>) -> Finishing<'a> {
        unreachable!("this host never says later")
    }

    fn log(&mut self, _: LogLevel, _: &[u8]) {}

    fn frames(&mut self, description: &[u8]) -> bool {
        self.descriptions.push(description.to_vec());
        self.descriptions.len() < self.wanted
    }
}

const BUDGET: Budget = Budget {
    fuel: 1 << 32,
    compile_fuel: 1 << 32,
    time: Duration::from_secs(600),
    memory_bytes: 16 << 20,
    reply_bytes: 1 << 20,
    slice_fuel: 50_000,
};

struct Lab(Runtime<Recorder>);

impl Lab {
    async fn new() -> Lab {
        let config = RuntimeConfig {
            instances: Instances::Rewind,
            concurrency: 1,
            max_memory_bytes: 16 << 20,
            compile: Compile::Never,
        };
        Lab(Runtime::new(config).await.unwrap())
    }

    async fn run(
        &self,
        source: &str,
        frames: bool,
        budget: Budget,
    ) -> (Outcome, ResourceUsage, Vec<Vec<u8>>) {
        let script = Script::new(source.as_bytes());
        self.run_script(&script, RunInput { frames, ..INPUT }, budget, usize::MAX).await
    }

    async fn run_script(
        &self,
        script: &Script,
        input: RunInput<'_>,
        budget: Budget,
        wanted: usize,
    ) -> (Outcome, ResourceUsage, Vec<Vec<u8>>) {
        let recorder = Recorder { wanted, descriptions: Vec::new() };
        let (host, outcome, usage) = self.0.run(script, &input.encode(), &budget, recorder).await;
        (outcome, usage, host.expect("the host comes back").descriptions)
    }

    /// What is described before each call of a script that returns nothing.
    async fn told(&self, source: &str) -> Vec<String> {
        let (outcome, _, descriptions) = self.run(source, true, BUDGET).await;
        assert_eq!(outcome, Outcome::Reply(b"_\r\n".into()), "{source}");
        descriptions.iter().map(|description| told(description)).collect()
    }
}

const INPUT: RunInput<'_> = RunInput {
    name: "f",
    keys: &[b"k"],
    args: &[],
    clock_seconds: 1.5,
    seed: 7,
    function: false,
    frames: true,
};

/// A description as text, such as `f@2 a=1 b={1:"x"}#1 | 0@5`.
fn told(description: &[u8]) -> String {
    let described = frames::decode(description).expect("a description");
    let mut out: Vec<String> = described.frames.iter().map(frame).collect();
    out.extend(described.omitted.then(|| "…".to_owned()));
    out.join(" | ")
}

fn frame(frame: &Frame<'_>) -> String {
    let name = match frame.name {
        b"" => frame.begins.to_string(),
        name => String::from_utf8_lossy(name).into_owned(),
    };
    let line = frame.line.map_or("?".to_owned(), |line| line.to_string());
    let variables = frame.variables.iter();
    let variables = variables.map(|(name, of)| format!(" {}={}", String::from_utf8_lossy(name), value(of)));
    format!("{name}@{line}{}", variables.collect::<String>())
}

fn value(of: &LuaValue<'_>) -> String {
    match of {
        LuaValue::Nil => "nil".to_owned(),
        LuaValue::Boolean(value) => value.to_string(),
        LuaValue::Number(text) => String::from_utf8_lossy(text).into_owned(),
        LuaValue::String { start, len } if start.len() == *len as usize => {
            format!("{:?}", String::from_utf8_lossy(start))
        }
        LuaValue::String { start, len } => format!("{} of {len}", start.len()),
        LuaValue::Table { entries, count } => {
            let entries = entries.iter().map(|(key, item)| format!("{}:{}", value(key), value(item)));
            let count = count.map_or("?".to_owned(), |count| count.to_string());
            format!("{{{}}}#{count}", entries.collect::<Vec<_>>().join(","))
        }
        LuaValue::Function => "function".to_owned(),
        LuaValue::Thread => "thread".to_owned(),
        LuaValue::Userdata => "userdata".to_owned(),
    }
}

#[tokio::test]
async fn values_of_all_types_are_told() {
    let lab = Lab::new().await;
    let source = "local a, b, c, d = nil, true, false, 2^53
        local e, f, g, h = -0.5, 1/0, 'a\\0b', ('x'):rep(1000)
        local i, j, k, l = rawget(_G, 'print'), type, coroutine.create(function() end), cjson.null
        redis.call('PING')";
    assert_eq!(
        lab.told(source).await,
        [
            "0@4 a=nil b=true c=false d=9.007199254741e+15 e=-0.5 f=inf g=\"a\\0b\" h=128 of 1000 i=nil j=function \
          k=thread l=userdata"
        ]
    );
}

#[tokio::test]
async fn tables_are_told_as_deep_and_as_far_as_it_is_short() {
    let lab = Lab::new().await;
    let told = lab
        .told(
            "local deep = {{{{1}}, 2}}
            local cycle = {} cycle[1] = cycle
            local keyed = {[deep] = 1}
            local gaps = {1, nil, 3, [2^40] = 'far'}
            redis.call('PING')",
        )
        .await;
    assert_eq!(
        told,
        [
            "0@5 deep={1:{1:{}#1,2:2}#2}#1 cycle={1:{1:{}#1}#1}#1 keyed={{}#1:1}#1 gaps={1:1,3:3,1099511627776:\"far\"}#3"
        ]
    );
    let told = lab.told("local t = {} for i = 1, 20 do t[i] = i end redis.call('PING')").await;
    let first = (1..=16).map(|at| format!("{at}:{at}")).collect::<Vec<_>>().join(",");
    assert_eq!(told, [format!("0@1 t={{{first}}}#20")]);
    let told = lab.told("local t = {} for i = 1, 5000 do t[i] = true end redis.call('PING')").await;
    assert!(told[0].ends_with("}#?"), "{told:?}");
}

#[tokio::test]
async fn the_variables_are_those_in_scope() {
    let lab = Lab::new().await;
    let told = lab
        .told(
            "local a, b = 1, 2
            do local a = 'inner' redis.call('PING') end
            for i = 1, 2 do local b = i * 10 redis.pcall('PING') end
            for _, item in ipairs({'x'}) do redis.acall('PING') end
            redis.apcall('PING')
            local c = redis.acl_check_cmd('PING')",
        )
        .await;
    assert_eq!(
        told,
        [
            "0@2 b=2 a=\"inner\"",
            "0@3 a=1 i=1 b=10",
            "0@3 a=1 i=2 b=20",
            "0@4 a=1 b=2 _=1 item=\"x\"",
            "0@5 a=1 b=2",
            "0@6 a=1 b=2",
        ]
    );
    let many: String = (0..150).map(|at| format!("local v{at} = {at}\n")).collect();
    let told = lab.told(&format!("{many}redis.call('PING')")).await;
    let last: String = (86..150).map(|at| format!(" v{at}={at}")).collect();
    assert_eq!(told, [format!("0@151{last} | …")]);
}

#[tokio::test]
async fn the_functions_are_told_from_the_innermost_on() {
    let lab = Lab::new().await;
    let told = lab
        .told(
            "local function inner(x) redis.call('PING') return x end
            local t = {}
            function t.outer(...)
                local n = select('#', ...)
                return (inner(n))
            end
            t.outer(1, 2)
            pcall(function() return redis.call('PING') end)
            pcall(redis.call, 'PING')
            loadstring('local made = 1 redis.call(\"PING\")')()",
        )
        .await;
    let main = |line: u32| format!("0@{line} inner=function t={{\"outer\":function}}#1");
    assert_eq!(
        told,
        [
            format!("inner@1 x=2 | outer@5 arg=nil n=2 | {}", main(7)),
            format!("8@8 | {}", main(8)),
            main(9),
            format!("0@? made=1 | {}", main(10)),
        ]
    );
    let told =
        lab.told("local function f(n) if n > 0 then f(n - 1) else redis.call('PING') end end f(30)").await;
    let frames: String = (0..16).map(|n| format!("f@1 n={n} | ")).collect();
    assert_eq!(told, [format!("{frames}…")]);
    let told = lab
        .told(
            "local outside = 1
            local resume = coroutine.wrap(function(a)
                redis.call('PING')
                local b = coroutine.yield()
                redis.call('PING')
            end)
            resume('first') resume('second')",
        )
        .await;
    assert_eq!(told, ["2@3 a=\"first\"", "2@5 a=\"first\" b=\"second\""]);
}

#[tokio::test]
async fn a_description_has_bounds() {
    let lab = Lab::new().await;
    // Different lengths of what stands before the end, so that the end comes in different places.
    for padding in (0..90).step_by(4) {
        let source = format!(
            "local row = {{}} for i = 1, 16 do row[i] = ('x'):rep(60) end
            local t = {{}} for i = 1, 16 do t[i] = row end
            local function f(n) local a, b = t, t redis.call('PING') end
            f(('p'):rep({padding}))"
        );
        let (_, _, descriptions) = lab.run(&source, true, BUDGET).await;
        let [description] = &descriptions[..] else { panic!("{} descriptions", descriptions.len()) };
        assert!((16_000..=16_384).contains(&description.len()), "{padding}: {}", description.len());
        let described = frames::decode(description).expect("a description");
        assert!(described.omitted && described.frames[0].variables.len() == 2);
    }
}

/// What a script could notice: where its values lie, what memory is used, what is collected, metamethods, randomness.
const CURIOUS: &str = "
    local seen = {}
    local angry = setmetatable({}, {__index = error, __tostring = error, __len = error, __eq = error,
        __call = error, __metatable = 'hidden'})
    local weak = setmetatable({}, {__mode = 'kv'})
    local function look(depth, t, ...)
        local text = ('s'):rep(depth) .. depth
        weak[#weak + 1] = {text}
        redis.call('PING', depth, 1 / 3, text)
        seen[#seen + 1] = tostring({}) .. collectgarbage('count') .. ' ' .. #weak .. math.random()
        if depth > 0 then return (look(depth - 1, {t, angry, [t] = depth}, ...)) end
    end
    for i = 1, 20 do look(i, {}, nil, i) end
    collectgarbage()
    for i = 1, 20 do redis.pcall('PING') seen[#seen + 1] = tostring(function() end) .. collectgarbage('count') end
    return table.concat(seen, '\\n')";

#[tokio::test]
async fn a_script_does_not_notice_that_it_is_described() {
    let lab = Lab::new().await;
    let (plain, usage, none) = lab.run(CURIOUS, false, BUDGET).await;
    let (described, described_usage, descriptions) = lab.run(CURIOUS, true, BUDGET).await;
    assert!(matches!(&plain, Outcome::Reply(text) if text.starts_with(b"$")), "{plain:?}");
    assert!(none.is_empty() && descriptions.len() > 200);
    assert_eq!(plain, described);
    assert_eq!(usage.memory_bytes, described_usage.memory_bytes);
    assert!(described_usage.fuel > usage.fuel, "it is paid for");

    let full = "local t = {} for i = 1, 1e7 do t[i] = {i} if i % 1000 == 0 then redis.call('PING') end end";
    for frames in [false, true] {
        let (outcome, _, _) = lab.run(full, frames, Budget { memory_bytes: 4 << 20, ..BUDGET }).await;
        assert_eq!(outcome, Outcome::Limit(Limit::Memory), "{frames}");
    }
}

#[tokio::test]
async fn fuel_may_run_out_anywhere() {
    let lab = Lab::new().await;
    let source = "local t = {} for i = 1, 30 do t[i] = {i, ('x'):rep(i)} end
        for i = 1, 3 do redis.call('PING', i) end return 1";
    let (outcome, usage, whole) = lab.run(source, true, BUDGET).await;
    assert_eq!((outcome, whole.len()), (Outcome::Reply(b":1\r\n".into()), 3));
    let mut stopped = [0; 4];
    for part in 1..200 {
        let budget = Budget { fuel: usage.fuel * part / 200, ..BUDGET };
        let (outcome, _, descriptions) = lab.run(source, true, budget).await;
        assert_eq!(outcome, Outcome::Limit(Limit::Fuel), "{part}");
        assert!(whole.starts_with(&descriptions), "{part}");
        stopped[descriptions.len()] += 1;
    }
    assert!(stopped.iter().all(|runs| *runs > 0), "{stopped:?}");
    let (outcome, _, again) = lab.run(source, true, BUDGET).await;
    assert_eq!((outcome, again), (Outcome::Reply(b":1\r\n".into()), whole));
}

#[tokio::test]
async fn no_more_is_told_than_is_wanted() {
    let lab = Lab::new().await;
    let calls = Script::new(b"for i = 1, 5 do redis.call('PING') end return 1");
    // The image of a script that was run before is no different.
    for _ in 0..3 {
        assert_eq!(lab.run_script(&calls, INPUT, BUDGET, 2).await.2.len(), 2);
        let unwanted = RunInput { frames: false, ..INPUT };
        assert_eq!(lab.run_script(&calls, unwanted, BUDGET, usize::MAX).await.2.len(), 0);
    }
    let library = Script::new(b"redis.register_function('f', function() redis.call('PING') return 1 end)");
    let recorder = Recorder { wanted: usize::MAX, descriptions: Vec::new() };
    let (loaded, _) = lab.0.load(&library, &BUDGET, recorder).await;
    assert!(matches!(&loaded, Outcome::Reply(reply) if reply.starts_with(b"*")), "{loaded:?}");
    let function = RunInput { function: true, ..INPUT };
    let (outcome, usage, descriptions) = lab.run_script(&library, function, BUDGET, usize::MAX).await;
    assert_eq!((outcome, usage.calls), (Outcome::Reply(b":1\r\n".into()), 1));
    assert!(descriptions.is_empty());
}
