//! Golden conversations, `cases/*.txt`: our server must answer as written, in both protocols, and so must
//! redis-server where it is installed.
//!
//! `MOONSHARD_GOLDEN=update cargo test --package tests --test conversations` writes the replies of Redis into the
//! files; read the difference before you keep it.

use tests::conversation::{Answerer, replay, rewritten};
use tests::{Oracle, PROTOCOLS, Topology, case_files, cases, over_nodes};

fn hold(wrong: Vec<String>) {
    assert!(wrong.is_empty(), "{} replies differ:\n{}\n", wrong.len(), wrong.join("\n"));
}

fn our_server_answers_as_written(on: Topology) {
    let server = on.start(&[]);
    let files = case_files("", "txt");
    let runs = files.iter().flat_map(|file| PROTOCOLS.map(|protocol| (file, protocol)));
    hold(
        runs.flat_map(|((name, text), protocol)| {
            replay(name, text, server.address(), protocol, Answerer::Ours)
        })
        .collect(),
    );
}

#[test]
fn redis_answers_as_written() {
    let Some(oracle) = Oracle::start() else { return };
    let files = case_files("", "txt");
    if std::env::var_os("MOONSHARD_GOLDEN").is_some_and(|word| word == "update") {
        for (name, text) in &files {
            let path = cases("").join(format!("{name}.txt"));
            std::fs::write(path, rewritten(text, oracle.address())).expect("the file can be written");
        }
        return;
    }
    let runs = files.iter().flat_map(|file| PROTOCOLS.map(|protocol| (file, protocol)));
    hold(
        runs.flat_map(|((name, text), protocol)| {
            replay(name, text, oracle.address(), protocol, Answerer::Oracle)
        })
        .collect(),
    );
}

over_nodes! {
    our_server_answers_as_written,
}
