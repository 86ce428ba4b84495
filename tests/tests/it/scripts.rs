//! The corpus of scripts, `cases/scripts/*.lua`: our replies are snapshots, and Redis gives the same ones.

use std::fmt::Write as _;
use std::path::Path;

use tests::{Client, Oracle, PROTOCOLS, Topology, Value, case_files, corpus, notation, over_nodes};

/// Replies in one protocol or, where they differ, in both.
fn shown(replies: &[Value; 2]) -> String {
    let [resp2, resp3] = replies.each_ref().map(notation::reply);
    if resp2 == resp3 { resp2 } else { format!("{resp2}\n{resp3}") }
}

/// Runs the wanted cases of every file: file, case, replies in both protocols.
fn run_all(
    mut clients: [Client; 2],
    wanted: impl Fn(&corpus::Case) -> bool,
) -> Vec<(String, corpus::Case, [Value; 2])> {
    let mut found = Vec::new();
    // Each has a database of its own, as flushing takes longer than most cases where there are several nodes.
    clients[1].run("SELECT 8");
    for (file, text) in case_files("scripts", "lua") {
        for case in corpus::parse(&text).into_iter().filter(&wanted) {
            clients[0].run("FLUSHALL");
            let replies = clients.each_mut().map(|client| case.run(client));
            found.push((file.clone(), case, replies));
        }
    }
    found
}

fn scripts_answer_as_redis_answers(on: Topology) {
    let server = on.start(&[]);
    let ours = run_all(PROTOCOLS.map(|protocol| Client::connect(server.address(), protocol)), |_| true);
    let mut wrong = Vec::new();
    if let Some(oracle) = Oracle::start() {
        let clients = PROTOCOLS.map(|protocol| Client::connect(oracle.address(), protocol));
        let theirs = run_all(clients, |case| !case.ours);
        for ((file, case, ours), (_, _, theirs)) in ours.iter().filter(|run| !run.1.ours).zip(&theirs) {
            let (ours, theirs) = (shown(ours), shown(theirs));
            if ours != theirs {
                wrong.push(format!("{file}: {}\n  Redis {theirs}\n  ours  {ours}", case.name));
            }
        }
    }
    // Whether calls are collected, or scripts are compiled to machine code, changes nothing that a script or its caller can see.
    for option in ["--script-auto-async", "--script-compile"] {
        let always = on.start(&[option, "always"]);
        let others = run_all(PROTOCOLS.map(|protocol| Client::connect(always.address(), protocol)), |_| true);
        for ((file, case, ours), (_, _, other)) in ours.iter().zip(&others) {
            let (ours, other) = (shown(ours), shown(other));
            if ours != other {
                wrong.push(format!("{file}: {}\n  usually {ours}\n  {option} always {other}", case.name));
            }
        }
    }
    let mut settings = insta::Settings::clone_current();
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.set_snapshot_path(Path::new("../../cases/scripts"));
    assert!(wrong.is_empty(), "{} replies differ:\n{}\n", wrong.len(), wrong.join("\n"));
    for file in ours.chunk_by(|one, other| one.0 == other.0) {
        let mut text = String::new();
        for (_, case, replies) in file {
            writeln!(text, "--- {}\n{}", case.name, shown(replies)).expect("a string");
        }
        settings.bind(|| insta::assert_snapshot!(file[0].0.as_str(), text));
    }
}

over_nodes! {
    scripts_answer_as_redis_answers,
}
