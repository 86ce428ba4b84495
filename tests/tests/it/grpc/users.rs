//! Who may call what by gRPC.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use proto::gateway::v1::*;
use tests::{TestServer, Topology, notation, over_nodes, wait_until};
use tokio::time::timeout;
use tonic::{Code, Request, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use super::talk::{Grpc, batch, owned, reported, shown};
use super::{start, text};

/// A message with what says who asks.
fn by<T>(header: &str, message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("authorization", header.parse().expect("ASCII"));
    request
}

fn basic(user: &str, password: &str) -> String {
    format!("Basic {}", BASE64.encode(format!("{user}:{password}")))
}

fn execute(grpc: &Grpc, header: &str, args: &[&[u8]]) -> Result<String, Status> {
    let request = by(header, ExecuteRequest { args: owned(args), db: 0 });
    let answer = grpc.wait(grpc.client().execute(request))?;
    Ok(shown(&answer.into_inner().reply.expect("a reply")))
}

fn eval(grpc: &Grpc, header: &str, script: &str, key: &str) -> Result<String, Status> {
    let keys = owned(&[key.as_bytes()]);
    let request = EvalRequest { script: script.as_bytes().to_vec().into(), keys, ..EvalRequest::default() };
    let answer = grpc.wait(grpc.client().eval(by(header, request)))?;
    Ok(shown(&answer.into_inner().reply.expect("a reply")))
}

/// The status of a call that is refused, and the code word.
fn refused<T: std::fmt::Debug>(outcome: Result<T, Status>) -> (Code, String) {
    let status = outcome.expect_err("a refusal");
    let text = reported(&status);
    let word = text.split(' ').nth(1).unwrap_or_default().to_owned();
    (status.code(), word)
}

fn calls_are_those_of_users(on: Topology) {
    let server = start(on, &[]);
    assert_eq!(text(&server, "ACL SETUSER u on >pw +get +set +eval +select ~k*"), "+OK");
    assert_eq!(text(&server, "CONFIG SET requirepass secret"), "+OK");
    let grpc = Grpc::connect(&server);
    let user = basic("u", "pw");
    let wrongpass = (Code::Unauthenticated, "WRONGPASS".to_owned());
    let noperm = (Code::PermissionDenied, "NOPERM".to_owned());
    assert_eq!(refused(grpc.execute(&[b"GET", b"k"])), (Code::Unauthenticated, "NOAUTH".into()));
    for header in [&*basic("u", "no"), &basic("nobody", "pw"), &basic("default", "pw"), "Bearer no"] {
        assert_eq!(refused(execute(&grpc, header, &[b"GET", b"k"])), wrongpass, "{header}");
    }
    assert_eq!(execute(&grpc, &user, &[b"SET", b"k", b"v"]).expect("allowed"), "+OK");
    assert_eq!(execute(&grpc, "Bearer secret", &[b"GET", b"k"]).expect("allowed"), "\"v\"");
    assert_eq!(refused(execute(&grpc, &user, &[b"GET", b"x"])), noperm);
    assert_eq!(refused(execute(&grpc, &user, &[b"DEL", b"k"])), noperm);
    assert_eq!(eval(&grpc, &user, "return redis.call('GET', KEYS[1])", "k").expect("allowed"), "\"v\"");
    assert_eq!(refused(eval(&grpc, &user, "return 1", "x")), noperm);
    let inside = eval(&grpc, &user, "return redis.pcall('DEL', KEYS[1])", "k").expect_err("an error");
    assert!(inside.message().contains("The user executing the script can't run this command"), "{inside}");
    // What is no command asks for the right to the one that comes nearest.
    let list = by(&user, ListScriptsRequest::default());
    assert_eq!(refused(grpc.wait(grpc.client().list_scripts(list))), noperm);
    let watch = by(&user, WatchRequest::default());
    assert_eq!(refused(grpc.wait(grpc.client().watch(watch)).map(drop)), noperm);
    let list = by("Bearer secret", ListScriptsRequest::default());
    grpc.wait(grpc.client().list_scripts(list)).expect("allowed");
    // Of a pipeline each command.
    let requests = tokio_stream::iter([batch(1, &["GET k", "DEL k", "GET x"])]);
    let replies = grpc.wait(async {
        let mut replies = grpc.client().pipeline(by(&user, requests)).await?.into_inner();
        replies.message().await
    });
    let replies = replies.expect("a stream").expect("an answer").replies;
    let replies: Vec<String> = replies.iter().map(shown).collect();
    assert_eq!(replies[0], "\"v\"");
    assert!(replies[1..].iter().all(|reply| reply.starts_with("-NOPERM: ")), "{replies:?}");
}

fn limits_of_users_hold(on: Topology) {
    let server = start(on, &[]);
    let rules = "limit:script-modes=atomic limit:fuel-per-second=100000";
    assert_eq!(text(&server, &format!("ACL SETUSER u on >pw +@all ~* {rules}")), "+OK");
    let (grpc, user) = (Grpc::connect(&server), basic("u", "pw"));
    let limit = (Code::ResourceExhausted, "LIMIT".to_owned());
    let asynchronous = "#!lua flags=disable-atomicity\nreturn 1";
    assert_eq!(refused(eval(&grpc, &user, asynchronous, "k")), limit);
    assert_eq!(grpc.eval(super::talk::script(asynchronous)).map(|_| ()).ok(), Some(()), "others may");
    wait_until("its fuel is used up", || {
        let (code, word) = refused(eval(&grpc, &user, "while true do end", "k"));
        assert_eq!(code, Code::ResourceExhausted);
        word == "LIMIT"
    });
    assert_eq!(text(&server, "ACL SETUSER v on >pw +@all ~* limit:fuel-per-second=100000"), "+OK");
    let other = basic("v", "pw");
    let long = "x = x + 1\n".repeat(100_000);
    let load = || {
        let request = LoadScriptRequest { script: long.clone().into() };
        refused(grpc.wait(grpc.client().load_script(by(&other, request))))
    };
    assert_eq!(load(), (Code::ResourceExhausted, "SCRIPTLIMIT".to_owned()));
    wait_until("fuel is used up by compiling", || load() == limit);
    assert_eq!(text(&server, "ACL SETUSER u limit:commands-per-second=1"), "+OK");
    wait_until("it calls too often", || match execute(&grpc, &user, &[b"GET", b"k"]) {
        Ok(reply) => reply != "null",
        status => refused(status) == limit,
    });
}

/// A connection on which this came about. One that says nothing for seconds is ended, which a busy machine may take for it.
fn connect_and<T>(server: &TestServer, mut first: impl FnMut(&Grpc) -> Option<T>) -> Grpc {
    let mut connected = None;
    wait_until("its first call is answered", || {
        let grpc = Grpc::connect(server);
        let is_answered = first(&grpc).is_some();
        connected = is_answered.then_some(grpc);
        is_answered
    });
    connected.expect("it was waited for")
}

fn strangers_may_ask_for_health_a_little(on: Topology) {
    let server = start(on, &[]);
    let mut admin = server.client();
    assert_eq!(notation::reply(&admin.run("CONFIG SET requirepass secret")), "+OK");
    let health = |grpc: &Grpc| HealthClient::new(grpc.channel.clone());
    let watch = |grpc: &Grpc| grpc.wait(health(grpc).watch(HealthCheckRequest::default()));
    let grpc = Grpc::connect(&server);
    let answer = grpc.wait(health(&grpc).check(HealthCheckRequest::default())).expect("an answer");
    assert_eq!(answer.into_inner().status, 1, "SERVING");
    // A connection is ended after so many calls; the next one is another.
    let mut open = Vec::new();
    wait_until("there are too many", || match watch(&grpc) {
        Ok(health) => {
            open.push(health.into_inner());
            false
        }
        Err(status) => status.code() == Code::ResourceExhausted,
    });
    for health in &mut open {
        while let Ok(Some(_)) = grpc.wait(health.message()) {}
    }
    assert!(watch(&grpc).is_ok());

    assert_eq!(notation::reply(&admin.run("CONFIG SET timeout 3")), "+OK");
    let known = connect_and(&server, |grpc| execute(grpc, "Bearer secret", &[b"PING"]).ok());
    let mut lasting = watch(&known).expect("it may").into_inner();
    assert!(known.wait(lasting.message()).expect("no status").is_some());
    let mut short = None;
    let strange =
        connect_and(&server, |grpc| watch(grpc).ok().map(|health| short = Some(health.into_inner())));
    let mut short = short.expect("it may");
    while let Ok(Some(_)) = strange.wait(short.message()) {}
    let ended = known.wait(async { timeout(Duration::ZERO, lasting.message()).await });
    assert!(ended.is_err(), "who has said who they are stays");
}

over_nodes! {
    calls_are_those_of_users,
    limits_of_users_hold,
    strangers_may_ask_for_health_a_little,
}
