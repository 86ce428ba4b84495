//! The gRPC API of a running server.

mod talk;
mod users;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use proto::gateway::v1::call::Answer;
use proto::gateway::v1::kill_script_request::Which;
use proto::gateway::v1::step::Step;
use proto::gateway::v1::watch_response::Event;
use proto::gateway::v1::*;
use tests::client::encode;
use tests::http::http2;
use tests::{TIMEOUT, TestServer, Topology, Value, notation, over_nodes, wait_until};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Request, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;

use talk::{Grpc, batch, command, framed, on_key, owned, pipeline, reported, script, shown};

const GRPC: &[&str] = &["--grpc", "127.0.0.1:0", "--shards", "4", "--threads", "2"];

/// Never ends, and has written before.
const ENDLESS: &str = "redis.call('SET', KEYS[1], 'half done') while true do end";

/// Waits until somebody else says `go`, then writes.
const WAITING: &str = "--!df flags=disable-atomicity
    while redis.call('GET', 'go') ~= 'now' do end
    redis.call('SET', KEYS[1], 'done')";

fn start(on: Topology, more: &[&str]) -> TestServer {
    on.start(&[GRPC, more].concat())
}

fn running(server: &TestServer) -> usize {
    match server.client().run("SCRIPT RUNNING") {
        tests::Value::Array(runs) => runs.len(),
        other => panic!("no list of runs: {other:?}"),
    }
}

fn text(server: &TestServer, line: &str) -> String {
    notation::reply(&server.client().run(line))
}

fn commands_have_replies_of_all_types(on: Topology) {
    let server = start(on, &[]);
    let grpc = Grpc::connect(&server);
    let mut transcript = String::new();
    let nested = "local t = 7 for i = 1, 40 do t = {t} end return t";
    let types = "redis.setresp(3) return {{map={a=1}}, {set={b=true}}, {double=1.5}, {big_number='12'}, true, \
                 {verbatim_string={format='mkd', string='x'}}, {err='FULL at 2'}, {ok='fine'}, false}";
    let calls: &[&[&[u8]]] = &[
        &[b"SET", b"\xff\0", b"\xff\r\n"],
        &[b"GET", b"\xff\0"],
        &[b"GET", b"nothing"],
        &[b"HSET", b"hash", b"f", b"1"],
        &[b"HGETALL", b"hash"],
        &[b"SADD", b"set", b"m"],
        &[b"SMEMBERS", b"set"],
        &[b"ZADD", b"zset", b"1.5", b"a", b"inf", b"b"],
        &[b"ZRANGE", b"zset", b"0", b"-1", b"WITHSCORES"],
        &[b"EVAL", types.as_bytes(), b"0"],
        &[b"EVAL", nested.as_bytes(), b"0"],
        &[b"BLPOP", b"nothing", b"0.01"],
    ];
    for args in calls {
        let name = args[..args.len().min(2)].join(&b' ').escape_ascii().to_string();
        let reply = grpc.execute(args).unwrap_or_else(|status| panic!("{name}: {status}"));
        transcript += &format!("{}\n  {}\n", &name[..name.len().min(40)], shown(&reply));
    }
    insta::assert_snapshot!("commands_have_replies_of_all_types", transcript);
    let elsewhere = ExecuteRequest { args: owned(&[b"DBSIZE"]), db: 3 };
    let size = grpc.wait(grpc.client().execute(elsewhere)).expect("a reply").into_inner();
    assert_eq!(size.reply.map(|reply| shown(&reply)), Some("0".into()));
}

fn errors_are_statuses_with_code_words(on: Topology) {
    let server = start(on, &[]);
    let grpc = Grpc::connect(&server);
    let mut transcript = String::new();
    let mut record = |what: &str, outcome: Result<String, Status>| {
        let status = outcome.expect_err(what);
        transcript += &format!("{what}\n  {}\n", reported(&status));
    };
    let execute = |args: &[&[u8]]| grpc.execute(args).map(|reply| shown(&reply));
    let eval = |request: EvalRequest| grpc.eval(request).map(|answer| format!("{answer:?}"));
    execute(&[b"SET", b"string", b"x"]).expect("a reply");
    for args in [
        &[&b"LPUSH"[..], b"string", b"x"][..],
        &[b"NOPE", b"a"],
        &[b"GET"],
        &[],
        &[b"MULTI"],
        &[b"select", b"1"],
        &[b"EVALSHA", b"0000000000000000000000000000000000000000", b"0"],
    ] {
        record(&args.join(&b' ').escape_ascii().to_string(), execute(args));
    }
    let elsewhere = ExecuteRequest { args: owned(&[b"DBSIZE"]), db: 16 };
    let outcome = grpc.wait(grpc.client().execute(elsewhere));
    record("database 16", outcome.map(|_| String::new()));
    let limits = |fuel, memory_bytes| Limits { fuel, memory_bytes, ..Limits::default() };
    for (what, request) in [
        ("its own error", script("return redis.error_reply('FULL at 2')")),
        ("no code word", script("return redis.error_reply('my own words')")),
        ("a failing call", script("return redis.call('LPUSH', 'string', 1)")),
        ("no Lua", script("nonsense(")),
        (
            "a write that is not allowed",
            EvalRequest { read_only: true, ..script("return redis.call('SET', 'string', 1)") },
        ),
        ("no fuel", EvalRequest { limits: Some(limits(Some(100_000), None)), ..on_key(ENDLESS, "job") }),
        ("too much fuel", EvalRequest { limits: Some(limits(Some(u64::MAX), None)), ..script("return 1") }),
        ("too little memory", EvalRequest { limits: Some(limits(None, Some(1))), ..script("return 1") }),
        ("an unknown flag", EvalRequest { flags: vec!["quickly".into()], ..script("return 1") }),
    ] {
        record(what, eval(request));
    }
    let sha = EvalShaRequest { sha: "no digest".into(), ..EvalShaRequest::default() };
    record("no digest", grpc.wait(grpc.client().eval_sha(sha)).map(|_| String::new()));
    let stats = |sha: &str| ScriptStatsRequest { sha: Some(sha.into()) };
    for sha in ["RESET", "no digest"] {
        let outcome = grpc.wait(grpc.client().script_stats(stats(sha)));
        record(&format!("stats of {sha}"), outcome.map(|_| String::new()));
    }
    let outcome = grpc.wait(grpc.client().kill_script(KillScriptRequest::default()));
    record("nothing to kill", outcome.map(|_| String::new()));
    for header in ["Basic bm9ib2R5OnB3", "Basic ?", "Basic bm9jb2xvbg==", "Digest x", "Bearer"] {
        let mut request = Request::new(ScriptStatsRequest::default());
        request.metadata_mut().insert("authorization", header.parse().expect("ASCII"));
        let outcome = grpc.wait(grpc.client().script_stats(request));
        record(header, outcome.map(|_| String::new()));
    }
    insta::assert_snapshot!("errors_are_statuses_with_code_words", transcript);
    for header in ["Basic ZGVmYXVsdDphbnk=", "bearer any"] {
        let mut request = Request::new(ScriptStatsRequest::default());
        request.metadata_mut().insert("authorization", header.parse().expect("ASCII"));
        grpc.wait(grpc.client().script_stats(request)).expect("the user default has no password");
    }
    assert_eq!(text(&server, "GET job"), "nil", "what ran out of fuel is undone");
}

fn scripts_are_loaded_run_listed_and_counted(on: Topology) {
    let server = start(on, &[]);
    let grpc = Grpc::connect(&server);
    let load = LoadScriptRequest {
        script: (&b"#!lua name=add flags=allow-oom\nreturn redis.call('INCRBY', KEYS[1], ARGV[1])"[..])
            .into(),
    };
    let sha = grpc.wait(grpc.client().load_script(load)).expect("a digest").into_inner().sha;
    let request = EvalShaRequest {
        sha: sha.clone(),
        keys: vec!["n".into()],
        args: vec!["5".into()],
        ..EvalShaRequest::default()
    };
    for wanted in ["5", "10"] {
        let answer = grpc.wait(grpc.client().eval_sha(request.clone())).expect("an answer").into_inner();
        assert_eq!(answer.reply.map(|reply| shown(&reply)).as_deref(), Some(wanted));
        let run = answer.run.expect("a run");
        assert_eq!((run.sha, &*run.mode, &*run.outcome, run.calls), (sha.clone(), "atomic", "ok", 1));
        assert!(run.fuel > 0 && run.memory_bytes > 0 && answer.trace.is_none());
    }
    let list = |texts| {
        let answer = grpc.wait(grpc.client().list_scripts(ListScriptsRequest { texts }));
        answer.expect("a list").into_inner().scripts
    };
    let listed = list(false);
    let [script] = &listed[..] else { panic!("one script: {listed:?}") };
    assert_eq!((&script.sha, script.name.as_deref(), script.loaded), (&sha, Some("add"), true));
    assert_eq!((&script.flags[..], &script.script), (&["allow-oom".to_owned()][..], &None));
    assert_eq!(list(true)[0].script.as_ref().map(|text| text.len() as u64), Some(script.bytes));
    for sha in [Some(sha), None] {
        let stats =
            grpc.wait(grpc.client().script_stats(ScriptStatsRequest { sha })).expect("stats").into_inner();
        assert_eq!((stats.runs, stats.commands, stats.errors), (2, 2, 0));
        assert!(stats.fuel.is_some_and(|fuel| fuel.max >= fuel.p50 && fuel.p50 > 0));
    }
}

fn a_trace_tells_each_step(on: Topology) {
    let server = start(on, &[]);
    let grpc = Grpc::connect(&server);
    let text = "redis.log(redis.LOG_NOTICE, 'begin')
        redis.call('SET', KEYS[1], 'x')
        redis.pcall('LPUSH', KEYS[1], 1)
        redis.call('SETRANGE', 'long', 999, 'x')
        local long = redis.call('GET', 'long')
        return redis.error_reply('FULL at 2')";
    let answer = grpc.eval(EvalRequest { trace: true, ..on_key(text, "k") }).expect("an answer");
    // Otherwise it would be a status, and the trace lost.
    assert_eq!(answer.reply.map(|reply| shown(&reply)).as_deref(), Some("-FULL: FULL at 2"));
    let trace = answer.trace.expect("a trace");
    assert_eq!((trace.steps.len(), trace.omitted, trace.reruns.len()), (5, 0, 0));
    let Some(Step::Log(log)) = &trace.steps[0].step else { panic!("no log") };
    assert_eq!((&*log.level, &log.text[..]), ("notice", &b"begin"[..]));
    let calls: Vec<&Call> = trace.steps[1..]
        .iter()
        .map(|step| match &step.step {
            Some(Step::Call(call)) => call,
            other => panic!("no call: {other:?}"),
        })
        .collect();
    let elsewhere = on == Topology::Nodes;
    for call in &calls {
        assert_eq!((call.shard.is_some(), call.node.is_some()), (!elsewhere, elsewhere));
        assert!(call.key.is_some() && call.arg_count == call.args.len() as u64);
    }
    let reply = |call: &Call| match &call.answer {
        Some(Answer::Reply(reply)) => shown(reply),
        Some(Answer::LongReply(long)) => format!("{} of {:?}", long.kind, long.length),
        other => format!("{other:?}"),
    };
    assert_eq!(reply(calls[0]), "+OK");
    assert!(reply(calls[1]).starts_with("-WRONGTYPE: WRONGTYPE "));
    assert_eq!(reply(calls[3]), "string of Some(1000)");
}

fn a_dry_run_tells_what_it_would_change(on: Topology) {
    let server = start(on, &[]);
    let grpc = Grpc::connect(&server);
    server.client().run("RPUSH list a b");
    let change = "redis.call('RPUSH', KEYS[1], 'c') redis.call('SET', 'new', 'x', 'PX', 100000) return 7";
    let answer = grpc.eval(EvalRequest { dry_run: true, ..on_key(change, "list") }).expect("an answer");
    assert_eq!(answer.reply.map(|reply| shown(&reply)).as_deref(), Some("7"));
    let mut writes = answer.writes;
    writes.sort_by_key(|change| change.key.clone());
    let [list, new] = &writes[..] else { panic!("two changes: {writes:?}") };
    let (before, after) =
        (list.before.as_ref().expect("it was there"), list.after.as_ref().expect("it stays"));
    assert_eq!((&*before.r#type, before.length, after.length, after.sticky), ("list", 2, 3, false));
    assert_eq!(after.elements, ["a", "b", "c"]);
    assert!(new.before.is_none() && new.after.as_ref().is_some_and(|after| after.expire_at_ms.is_some()));
    assert_eq!(text(&server, "LRANGE list 0 -1"), r#"["a", "b"]"#);
    assert_eq!(text(&server, "GET new"), "nil");
    let flags = vec!["disable-atomicity".to_owned()];
    let status = grpc.eval(EvalRequest { dry_run: true, flags, ..script("return 1") }).expect_err("no undo");
    assert!(status.message().contains("does not support dry runs"), "{status}");
}

fn deadlines_and_cancellation_end_scripts_and_undo_them(on: Topology) {
    let server = start(on, &[]);
    let grpc = Grpc::connect(&server);
    // A client that says when it gives up, and does not: the server does it.
    let message = framed(&on_key(ENDLESS, "job"));
    let answer = http2(
        server.grpc_address(),
        "/moonshard.gateway.v1.Gateway/Eval",
        &[("content-type", "application/grpc"), ("grpc-timeout", "150m")],
        &message,
    );
    assert_eq!((answer.status, answer.header("grpc-status")), (200, "4"), "DEADLINE_EXCEEDED");
    assert_eq!((running(&server), text(&server, "GET job")), (0, "nil".into()));

    let mut request = Request::new(on_key(ENDLESS, "job"));
    request.set_timeout(Duration::from_millis(150));
    grpc.wait(grpc.client().eval(request)).expect_err("it never ends");
    wait_until("the script is ended", || running(&server) == 0);
    assert_eq!(text(&server, "GET job"), "nil");

    let call = grpc.spawn(Request::new(on_key(ENDLESS, "job")));
    wait_until("the script runs", || running(&server) == 1);
    call.abort();
    wait_until("the script is ended", || running(&server) == 0);
    assert_eq!(text(&server, "GET job"), "nil");
    // The connection goes on.
    assert_eq!(grpc.execute(&[b"PING"]).map(|reply| shown(&reply)).ok().as_deref(), Some("+PONG"));

    // In a stream, too, and a client that is gone altogether.
    let (send, mut replies) = pipeline(&grpc);
    grpc.wait(send.send(PipelineRequest { id: 1, commands: vec![eval_command()], ..Default::default() }))
        .expect("the stream is open");
    wait_until("the script runs", || running(&server) == 1);
    let waiting = grpc.runtime.spawn(async move { replies.message().await });
    drop(grpc);
    wait_until("the script is ended", || running(&server) == 0);
    assert_eq!(text(&server, "GET job"), "nil");
    drop((send, waiting));

    assert_eq!(text(&server, "CONFIG SET script-client-gone finish"), "+OK");
    let grpc = Grpc::connect(&server);
    let call = grpc.spawn(Request::new(on_key(WAITING, "job")));
    wait_until("the script runs", || running(&server) == 1);
    call.abort();
    server.client().run("SET go now");
    wait_until("the script has ended", || running(&server) == 0);
    assert_eq!(text(&server, "GET job"), r#""done""#);
}

fn eval_command() -> Command {
    Command { args: owned(&[b"EVAL", ENDLESS.as_bytes(), b"1", b"job"]) }
}

fn pipelines_answer_in_order_and_go_on_after_errors(on: Topology) {
    let server = start(on, &[]);
    let grpc = Grpc::connect(&server);
    let (send, mut replies) = pipeline(&grpc);
    let atomic = |request: PipelineRequest| PipelineRequest { atomic: true, ..request };
    let empty = Command::default();
    let batches = [
        batch(7, &["SET s x", "LPUSH s 1", "NOPE", "MULTI", "GET s"]),
        batch(1, &[]),
        PipelineRequest { id: 2, commands: vec![empty, command("PING")], ..Default::default() },
        atomic(batch(3, &["INCR n", "LPUSH s 1", "INCR n"])),
        atomic(batch(4, &["INCR n", "NOPE", "GET"])),
        atomic(batch(5, &["INCR n", "SELECT 1"])),
        PipelineRequest { db: 99, ..batch(6, &["PING"]) },
        PipelineRequest { db: 1, ..batch(8, &["SET s other", "GET s"]) },
        batch(7, &["GET s", "GET n"]),
    ];
    let mut transcript = String::new();
    for batch in batches {
        grpc.wait(send.send(batch)).expect("the stream is open");
        let answer = grpc.wait(replies.message()).expect("no status").expect("a message");
        let shown: Vec<String> = answer.replies.iter().map(shown).collect();
        transcript += &format!("{} [{}]", answer.id, shown.join(", "));
        if let Some(error) = answer.error {
            transcript += &format!(" {}: {}", error.code, error.message);
        }
        for Refused { index, error } in answer.refused {
            transcript += &format!("\n  {index}: {}", error.expect("an error").message);
        }
        transcript += "\n";
    }
    insta::assert_snapshot!("pipelines_answer_in_order_and_go_on_after_errors", transcript);
    drop(send);
    assert!(grpc.wait(replies.message()).expect("no status").is_none(), "the stream has ended");
}

fn long_replies_come_in_several_messages(on: Topology) {
    let server = start(on, &[]);
    let grpc = Grpc::connect(&server);
    server.client().run(&format!("SET k {}", "x".repeat(700_000)));
    let (send, mut replies) = pipeline(&grpc);
    grpc.wait(send.send(batch(1, &["GET k", "GET k", "GET k", "PING"]))).expect("the stream is open");
    let mut counts = Vec::new();
    loop {
        let answer = grpc.wait(replies.message()).expect("no status").expect("a message");
        counts.push(answer.replies.len());
        if !answer.more {
            break;
        }
    }
    assert_eq!(counts, [2, 2]);
}

fn a_client_that_does_not_read_is_not_served(on: Topology) {
    const BATCHES: u64 = 300;
    // One thread for all connections.
    let server = on.start(&["--grpc", "127.0.0.1:0", "--threads", "1"]);
    let grpc = Grpc::connect(&server);
    let mut other = server.client();
    other.run(&format!("SET k {}", "x".repeat(1 << 20)));
    let (send, mut replies) = pipeline(&grpc);
    let before = server.info("total_commands_processed");
    for id in 0..BATCHES {
        grpc.wait(send.send(batch(id, &["GET k"]))).expect("the stream is open");
    }
    let mut read = |id| {
        let answer = grpc.wait(replies.message()).expect("no status").expect("a message");
        assert_eq!((answer.id, answer.replies.len()), (id, 1));
    };
    read(0);
    // While somebody else is served so often, a pipeline that is not held back would come to its end.
    let others = 10 * BATCHES;
    for _ in 0..others {
        other.run("PING");
    }
    let served = server.info("total_commands_processed") - before - others;
    assert!(served < BATCHES / 2, "{served} of {BATCHES} batches were run although nobody reads");
    (1..BATCHES).for_each(read);
}

fn calls_are_clients_of_their_own(on: Topology) {
    let server = start(on, &[]);
    let grpc = Grpc::connect(&server);
    let mut client = grpc.client();
    let blocked = grpc.runtime.spawn(async move {
        let args = owned(&[b"BLPOP", b"queue", b"0"]);
        client.execute(ExecuteRequest { args, db: 0 }).await
    });
    wait_until("it waits", || server.info("blocked_clients") == 1);
    // Others on the same connection do not wait for it.
    assert_eq!(grpc.execute(&[b"PING"]).map(|reply| shown(&reply)).ok().as_deref(), Some("+PONG"));
    let list = match server.client().run("CLIENT LIST") {
        tests::Value::Bulk(list) | tests::Value::Verbatim { text: list, .. } => {
            String::from_utf8_lossy(&list).into_owned()
        }
        other => panic!("no list: {other:?}"),
    };
    let at = format!("laddr={}", server.grpc_address());
    let mut ids: Vec<u64> = list
        .lines()
        .filter(|line| line.contains(&at))
        .map(|line| line["id=".len()..].split(' ').next().expect("an id").parse().expect("a number"))
        .collect();
    ids.sort_unstable();
    let [connection, call] = ids[..] else { panic!("the connection and its call: {list}") };
    assert_eq!(text(&server, &format!("CLIENT KILL ID {call}")), "1");
    let status = grpc.wait(blocked).expect("no panic").expect_err("it was ended");
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    assert_eq!(
        grpc.execute(&[b"RPUSH", b"queue", b"x"]).map(|reply| shown(&reply)).ok().as_deref(),
        Some("1")
    );
    assert_eq!(text(&server, "LRANGE queue 0 -1"), r#"["x"]"#, "nobody waits any more");

    let call = grpc.spawn(Request::new(on_key(ENDLESS, "job")));
    wait_until("it runs", || running(&server) == 1);
    assert_eq!(text(&server, &format!("CLIENT KILL ID {connection}")), "1");
    grpc.wait(call).expect("no panic").expect_err("its connection was ended");
    wait_until("it is ended", || running(&server) == 0);
    assert_eq!(text(&server, "GET job"), "nil");
}

fn events_tell_of_runs_and_scripts_are_killed(on: Topology) {
    let server = start(on, &[]);
    let grpc = Grpc::connect(&server);
    let mut events = grpc.wait(grpc.client().watch(WatchRequest {})).expect("a stream").into_inner();
    let mut next =
        || grpc.wait(events.message()).expect("no status").expect("an event").event.expect("a kind");
    assert!(matches!(next(), Event::Listening(_)));
    grpc.eval(script("return 1")).expect("an answer");
    let Event::Began(began) = next() else { panic!("it has not begun") };
    assert_eq!((began.what.len(), &*began.mode, began.is_function), (40, "atomic", false));
    let Event::Ended(ended) = next() else { panic!("it has not ended") };
    assert_eq!((&*ended.outcome, ended.run), ("ok", Some(began)));
    for by_client in [false, true] {
        let call = grpc.spawn(Request::new(on_key(ENDLESS, "job")));
        let Event::Began(began) = next() else { panic!("it has not begun") };
        wait_until("it runs", || running(&server) == 1);
        let which = if by_client { Which::Client(began.client) } else { Which::Sha(began.what.clone()) };
        let kill = KillScriptRequest { which: Some(which) };
        grpc.wait(grpc.client().kill_script(kill)).expect("it is killed");
        let status = grpc.wait(call).expect("no panic").expect_err("it was killed");
        assert_eq!(status.code(), Code::Aborted, "{status}");
        let Event::Ended(ended) = next() else { panic!("it has not ended") };
        assert_eq!(ended.outcome, "killed");
    }
    assert_eq!(text(&server, "GET job"), "nil");
}

fn channels_are_heard_while_the_call_lasts(on: Topology) {
    use subscribe_response::Event;
    let server = start(on, &[]);
    let grpc = Grpc::connect(&server);
    let nothing =
        grpc.wait(grpc.client().subscribe(SubscribeRequest::default())).expect_err("nothing is named");
    assert_eq!(nothing.code(), Code::InvalidArgument, "{nothing}");
    let wanted = SubscribeRequest {
        channels: owned(&[b"news", b"other"]),
        patterns: owned(&[b"n?ws"]),
        shard_channels: owned(&[b"news"]),
    };
    let mut heard = grpc.wait(grpc.client().subscribe(wanted)).expect("a stream").into_inner();
    let mut next =
        || grpc.wait(heard.message()).expect("no status").expect("an event").event.expect("a kind");
    assert!(matches!(next(), Event::Listening(_)));
    for (line, receivers) in [
        ("PUBLISH news one", "2"),
        ("SPUBLISH news two", "1"),
        ("PUBLISH nobody three", "0"),
        ("PUBLISH other 4", "1"),
    ] {
        assert_eq!(text(&server, line), receivers, "{line}");
    }
    let undone = "redis.call('PUBLISH', 'news', 'undone') while true do end";
    grpc.eval(EvalRequest {
        limits: Some(Limits { fuel: Some(1_000_000), ..Limits::default() }),
        ..script(undone)
    })
    .expect_err("it never ends");
    assert_eq!(text(&server, "PUBLISH news last"), "2");
    let mut reported = Vec::new();
    while reported.len() < 6 {
        let Event::Message(ChannelMessage { channel, text, pattern, shard }) = next() else {
            panic!("a message")
        };
        let word = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let by = if shard { "shard".to_owned() } else { pattern.as_deref().map(word).unwrap_or_default() };
        reported.push(format!("{} {} {by}", word(&channel), word(&text)));
    }
    assert_eq!(
        reported,
        ["news one ", "news one n?ws", "news two shard", "other 4 ", "news last ", "news last n?ws"]
    );
    // It is a client like others, until it hangs up.
    assert_eq!(text(&server, "PUBSUB NUMPAT"), "1");
    drop(heard);
    wait_until("nobody listens", || text(&server, "PUBSUB NUMPAT") == "0");
    assert_eq!(text(&server, "PUBLISH news late"), "0");
}

fn wrong_messages_are_refused_one_by_one(on: Topology) {
    let server = start(on, &["--grpc-message-max", "1kb"]);
    let grpc = Grpc::connect(&server);
    let long = ExecuteRequest { args: owned(&[b"SET", b"k", &[b'x'; 2000]]), db: 0 };
    let status = grpc.wait(grpc.client().execute(long)).expect_err("it is too long");
    assert_eq!(status.code(), Code::OutOfRange, "{status}");
    // Elements that are many times as large in memory are counted before they are read.
    assert_eq!(notation::reply(&server.client().run("CONFIG SET grpc-message-max 64mb")), "+OK");
    let many = ExecuteRequest { args: vec![Vec::new().into(); 1024 * 1024 + 1], db: 0 };
    let status = grpc.wait(grpc.client().execute(many)).expect_err("these are too many");
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    let eval = "/moonshard.gateway.v1.Gateway/Eval";
    let kind = ("content-type", "application/grpc");
    let call = |path: &str, headers: &[(&str, &str)], body: &[u8]| {
        let answer = http2(server.grpc_address(), path, headers, body);
        let message = String::from_utf8_lossy(&answer.body).into_owned() + answer.header("grpc-message");
        format!("{} {} {message}", answer.status, answer.header("grpc-status"))
    };
    let good = framed(&script("return 1"));
    let flags = [0, 0, 0, 0, 3, 4 << 3 | 2, 1, 0xff];
    let mut transcript = String::new();
    for (what, path, headers, body) in [
        ("flags that are not UTF-8", eval, &[kind][..], &flags[..]),
        ("no message", eval, &[kind], b""),
        ("half a message", eval, &[kind], &good[..good.len() - 3]),
        ("an unknown path", "/moonshard.gateway.v1.Gateway/Nothing", &[kind], &good),
        ("an unknown service", "/some.Service/Call", &[kind], &good),
        ("a timeout without unit", eval, &[kind, ("grpc-timeout", "10")], &good),
        ("JSON", eval, &[("content-type", "application/json")], b"{}"),
        ("another encoding", eval, &[("content-type", "application/grpc+json")], b"{}"),
        ("no type", eval, &[], &good),
        ("a foreign page", eval, &[kind, ("origin", "https://evil.example")], &good),
    ] {
        transcript += &format!("{what}: {}\n", call(path, headers, body));
    }
    insta::assert_snapshot!("wrong_messages_are_refused_one_by_one", transcript);
    // HTTP/1 is told so, and noise is cut off.
    let mut stream = TcpStream::connect(server.grpc_address()).expect("a connection");
    stream.set_read_timeout(Some(TIMEOUT)).expect("a socket option");
    stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("text");
    assert!(
        answer.starts_with("HTTP/1.1 415 ") && answer.ends_with("Content-Type: application/grpc\n"),
        "{answer}"
    );
    let mut stream = TcpStream::connect(server.grpc_address()).expect("a connection");
    stream.set_read_timeout(Some(TIMEOUT)).expect("a socket option");
    stream.write_all(b"*1\r\n$4\r\nPING\r\n\r\n\r\n").expect("it reads");
    stream.read_to_end(&mut Vec::new()).expect("the end");
    // The connection of before goes on.
    assert_eq!(grpc.execute(&[b"PING"]).map(|reply| shown(&reply)).ok().as_deref(), Some("+PONG"));
}

fn it_tells_that_it_is_well_and_what_it_can_do(on: Topology) {
    let server = start(on, &[]);
    let grpc = Grpc::connect(&server);
    for service in ["", "moonshard.gateway.v1.Gateway"] {
        let request = HealthCheckRequest { service: service.into() };
        let answer = grpc.wait(HealthClient::new(grpc.channel.clone()).check(request)).expect("an answer");
        assert_eq!(answer.into_inner().status, 1, "SERVING");
    }
    let ask = |what| {
        let request = ServerReflectionRequest { host: String::new(), message_request: Some(what) };
        let mut client = ServerReflectionClient::new(grpc.channel.clone());
        let answers = grpc.wait(client.server_reflection_info(tokio_stream::iter([request])));
        let answer = grpc.wait(answers.expect("a stream").into_inner().message());
        answer.expect("no status").expect("an answer").message_response.expect("a kind")
    };
    let MessageResponse::ListServicesResponse(services) = ask(MessageRequest::ListServices(String::new()))
    else {
        panic!("no services")
    };
    assert!(services.service.iter().any(|service| service.name == "moonshard.gateway.v1.Gateway"));
    let MessageResponse::FileDescriptorResponse(files) =
        ask(MessageRequest::FileContainingSymbol("moonshard.gateway.v1.Gateway.Eval".into()))
    else {
        panic!("no file")
    };
    assert_eq!(files.file_descriptor_proto.len(), 1);
}

fn the_server_ends_although_streams_are_open(on: Topology) {
    let mut server = start(on, &[]);
    let grpc = Grpc::connect(&server);
    let mut events = grpc.wait(grpc.client().watch(WatchRequest {})).expect("a stream").into_inner();
    grpc.wait(events.message()).expect("the first event");
    let (_send, mut replies) = pipeline(&grpc);
    let mut health = HealthClient::new(grpc.channel.clone());
    let mut health = grpc.wait(health.watch(HealthCheckRequest::default())).expect("a stream").into_inner();
    grpc.wait(health.message()).expect("the first state");
    let (_ask, asked) = mpsc::channel(1);
    let mut reflection = ServerReflectionClient::new(grpc.channel.clone());
    let open = grpc.wait(reflection.server_reflection_info(ReceiverStream::new(asked))).expect("a stream");
    let mut client = grpc.client();
    let blocked = grpc.runtime.spawn(async move {
        let args = owned(&[b"BLPOP", b"queue", b"0"]);
        client.execute(ExecuteRequest { args, db: 0 }).await
    });
    wait_until("it waits", || server.info("blocked_clients") == 1);
    server.signal(libc::SIGTERM);
    assert!(server.wait().success());
    assert!(!server.log().contains("cut off"), "nobody had to be cut off: {}", server.log());
    for code in [
        grpc.wait(events.message()).err().map(|status| status.code()),
        grpc.wait(replies.message()).err().map(|status| status.code()),
        grpc.wait(blocked).expect("no panic").err().map(|status| status.code()),
    ] {
        assert_eq!(code, Some(Code::Unavailable));
    }
    drop(open);
}

fn connections_are_counted_and_bounded(on: Topology) {
    let server = start(on, &["--maxclients", "2"]);
    let grpc = Grpc::connect(&server);
    assert_eq!(grpc.execute(&[b"PING"]).map(|reply| shown(&reply)).ok().as_deref(), Some("+PONG"));
    // This one, and the one that asks, which is refused while another that has asked is still counted.
    wait_until("two are connected", || {
        let mut client = server.client();
        let _ = client.send_raw(&encode(["INFO", "clients"]));
        let reported = client.try_read().ok().flatten().map(|reply| notation::reply(&reply));
        reported.is_some_and(|reported| reported.contains("connected_clients:2"))
    });
    let mut other = None;
    wait_until("another is let in", || {
        let mut client = server.client();
        let _ = client.send_raw(&encode(["PING"]));
        let is_in = client.try_read().is_ok_and(|reply| reply == Some(Value::Status(b"PONG".to_vec())));
        other = is_in.then_some(client);
        is_in
    });
    let refused = TcpStream::connect(server.grpc_address()).and_then(|mut stream| {
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.read(&mut [0])
    });
    assert!(matches!(refused, Ok(0) | Err(_)), "it is let in");
}

over_nodes! {
    commands_have_replies_of_all_types,
    errors_are_statuses_with_code_words,
    scripts_are_loaded_run_listed_and_counted,
    a_trace_tells_each_step,
    a_dry_run_tells_what_it_would_change,
    deadlines_and_cancellation_end_scripts_and_undo_them,
    pipelines_answer_in_order_and_go_on_after_errors,
    long_replies_come_in_several_messages,
    a_client_that_does_not_read_is_not_served,
    calls_are_clients_of_their_own,
    events_tell_of_runs_and_scripts_are_killed,
    channels_are_heard_while_the_call_lasts,
    wrong_messages_are_refused_one_by_one,
    it_tells_that_it_is_well_and_what_it_can_do,
    the_server_ends_although_streams_are_open,
    connections_are_counted_and_bounded,
}
