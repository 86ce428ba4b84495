//! The benchmark's scripts, `cases/bench/*.lua`, with data like the benchmark's: what is measured must be right. Our
//! answers are a snapshot, and Redis gives the same ones.

use std::fmt::Write as _;

use tests::{Client, Oracle, PROTOCOLS, TestServer, case_files, notation};

/// A command.
type Words = Vec<String>;

/// What a script is tried with.
struct Plan {
    data: Vec<Words>,
    keys: Words,
    /// The arguments of each call.
    calls: Vec<Words>,
    /// What is asked afterwards; those that promise no order begin with `unordered`.
    questions: Vec<&'static str>,
}

fn words<'a>(line: impl IntoIterator<Item = &'a str>) -> Words {
    line.into_iter().map(str::to_owned).collect()
}

fn numbered(count: usize, name: impl Fn(usize) -> String) -> Words {
    (0..count).map(name).collect()
}

/// Numbers that look random and are the same in every run.
fn scattered(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
    *state >> 33
}

fn plan(script: &str) -> Plan {
    let mut seed = 42;
    let plan = Plan { data: Vec::new(), keys: Vec::new(), calls: vec![Vec::new()], questions: Vec::new() };
    match script {
        "cpu-fib" | "cpu-sieve" | "cpu-strings" => plan,
        "incr-100" => Plan { keys: words(["counter"]), calls: vec![Vec::new(); 2], ..plan },
        "index-messages" => {
            let batch = |start: usize| {
                let ids = (start..start + 10).map(|id| format!("message-{id}"));
                std::iter::once("10".to_owned()).chain(ids).collect()
            };
            Plan {
                keys: words(["queue", "rank"]),
                calls: vec![batch(0), batch(10), batch(5)],
                questions: vec!["ZRANGE queue 0 -1 WITHSCORES", "GET rank"],
                ..plan
            }
        }
        "json-push" => Plan {
            keys: numbered(5, |list| format!("l{list}")),
            calls: vec![words(["[1,2,3,4,5]"]); 11],
            questions: vec!["LRANGE l0 0 -1", "LLEN l4"],
            ..plan
        },
        "leaderboards" => {
            let mut room = |number: usize| {
                let mut line = words(["ZADD", &format!("room:{number}:scores")]);
                for _ in 0..200 {
                    line.push((scattered(&mut seed) % 1000).to_string());
                    line.push(format!("player:{}", scattered(&mut seed) % 5000));
                }
                for cheat in (0..5).filter(|cheat| !(number + cheat).is_multiple_of(4)) {
                    line.extend([(2000 + cheat).to_string(), format!("cheat:{cheat}")]);
                }
                line
            };
            Plan {
                data: (0..64).map(&mut room).collect(),
                keys: words(["suspects"])
                    .into_iter()
                    .chain(numbered(64, |number| format!("room:{number}:scores")))
                    .collect(),
                questions: vec!["unordered SMEMBERS suspects"],
                ..plan
            }
        }
        "long-push" => Plan {
            keys: words(["long"]),
            calls: vec![words(["5000"])],
            questions: vec!["LLEN long", "LRANGE long 0 3", "LINDEX long -1"],
            ..plan
        },
        "metric-scan" => {
            let user = |number: usize| {
                let (key, score) = (format!("user:{number:06}"), (number % 100).to_string());
                words(["HSET", &key, "name", &format!("user number {number}"), "score", &score])
            };
            let page = |number: usize| words(["SET", &format!("page:{number:06}"), "xxxx"]);
            Plan { data: (0..2000).map(user).chain((0..1000).map(page)).collect(), ..plan }
        }
        "multi-get-json" | "multi-get-msgpack" => {
            let fields = ["symbol", "last", "bid", "ask", "open", "high", "low", "volume"];
            let keys = numbered(300, |number| format!("quote:{number:05}"));
            let mut hash = |key: &String| {
                let mut line = words(["HSET", key]);
                for field in fields {
                    let value = scattered(&mut seed) % 10_000_000;
                    line.extend([field.to_owned(), format!("{}.{:04}", value / 10_000, value % 10_000)]);
                }
                line
            };
            Plan { data: keys.iter().map(&mut hash).collect(), keys, ..plan }
        }
        "payload" => {
            let keys = numbered(30, |number| format!("posts/{}", number + 1));
            let mut post = |key: &String| {
                let mut line = words(["HSET", key]);
                for kind in ["posts", "authors", "comments"] {
                    let id = key.trim_start_matches("posts/");
                    let body = format!("{:016x} \"and more\"", scattered(&mut seed));
                    line.push(format!("{kind}/{id}"));
                    line.push(format!("{{\"id\": {id}, \"type\": \"{kind}\", \"body\": {body:?}}}"));
                }
                line
            };
            Plan { data: keys.iter().map(&mut post).collect(), keys, ..plan }
        }
        "zincrby" => {
            let chunk = numbered(5000, |number| format!("m:{number:012}"));
            Plan {
                keys: words(["z"]),
                calls: vec![chunk.clone(), chunk[2000..3000].to_vec()],
                questions: vec![
                    "ZCARD z",
                    "ZCOUNT z 2 2",
                    "ZRANGE z -2 -1 WITHSCORES",
                    "ZSCORE z m:000000000000",
                ],
                ..plan
            }
        }
        other => panic!("cases/bench/{other}.lua has no plan"),
    }
}

/// Runs the plan; a line for each reply.
fn run(client: &mut Client, script: &str, plan: &Plan) -> Vec<String> {
    client.run("FLUSHALL");
    let data: Vec<Vec<Vec<u8>>> =
        plan.data.iter().map(|line| line.iter().map(|word| word.clone().into()).collect()).collect();
    client.pipeline(&data);
    let loaded = client.call(["SCRIPT", "LOAD", script]);
    let sha = String::from_utf8_lossy(loaded.text().expect("a sha")).into_owned();
    let start = [sha, plan.keys.len().to_string()];
    let mut lines = Vec::new();
    for args in &plan.calls {
        let words = ["EVALSHA".to_owned()];
        let reply = client.call(words.iter().chain(&start).chain(&plan.keys).chain(args));
        lines.push(notation::reply(&reply));
    }
    for question in &plan.questions {
        lines.push(match question.strip_prefix("unordered ") {
            Some(question) => notation::unordered(&client.run(question)),
            None => notation::reply(&client.run(question)),
        });
    }
    lines
}

/// A line as it is, or the beginning and the FNV-1a hash of a long one.
fn short(line: &str) -> String {
    if line.len() <= 160 {
        return line.to_owned();
    }
    let hash = line.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{}… {} bytes, hash {hash:016x}", line.chars().take(80).collect::<String>(), line.len())
}

#[test]
fn the_benchmark_measures_right_answers() {
    let server = TestServer::start(&[]);
    let compiling = TestServer::start(&["--script-compile", "always"]);
    let oracle = Oracle::start();
    let (mut wrong, mut shown) = (Vec::new(), String::new());
    for (name, script) in case_files("bench", "lua") {
        let plan = plan(&name);
        for protocol in PROTOCOLS {
            let ours = run(&mut Client::connect(server.address(), protocol), &script, &plan);
            writeln!(shown, "--- {name}, {protocol:?}").expect("a string");
            let compiled = run(&mut Client::connect(compiling.address(), protocol), &script, &plan);
            assert_eq!(ours, compiled, "{name} does something else once it is compiled");
            ours.iter().for_each(|line| writeln!(shown, "{}", short(line)).expect("a string"));
            let Some(oracle) = &oracle else { continue };
            let theirs = run(&mut Client::connect(oracle.address(), protocol), &script, &plan);
            for (at, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
                if ours != theirs {
                    let (ours, theirs) = (short(ours), short(theirs));
                    wrong.push(format!("{name}, {protocol:?}, reply {at}\n  Redis {theirs}\n  ours  {ours}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} replies differ:\n{}\n", wrong.len(), wrong.join("\n"));
    let mut settings = insta::Settings::clone_current();
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(shown));
}
