//! What the tests of the whole server share: starting it, starting the Redis it is compared with, talking to
//! both, and reading the files in `cases/`.
//!
//! Tests wait for conditions and never for time to pass; the limits here only end what would never end.

pub mod certificates;
pub mod client;
pub mod cluster;
pub mod compare;
pub mod contents;
pub mod conversation;
pub mod corpus;
pub mod counting;
pub mod dump;
pub mod generate;
pub mod history;
pub mod http;
pub mod notation;
pub mod openapi;
pub mod permits;
pub mod ports;
pub mod process;
pub mod proxy;
pub mod temp_dir;
pub mod topology;
pub mod workload;

pub use client::Client;
pub use cluster::TestCluster;
pub use http::Http;
pub use process::{Oracle, TestServer};
pub use resp::Value;
pub use store_engine::Protocol;
pub use topology::Topology;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The longest that anything may take before a test gives up.
pub const TIMEOUT: Duration = Duration::from_secs(60);

/// Both protocols, for tests that hold in each.
pub const PROTOCOLS: [Protocol; 2] = [Protocol::Resp2, Protocol::Resp3];

/// A folder of test data.
pub fn cases(dir: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("cases").join(dir)
}

/// The files in a folder of test data, sorted, each with its name and text.
pub fn case_files(dir: &str, extension: &str) -> Vec<(String, String)> {
    let entries = std::fs::read_dir(cases(dir)).expect("a folder of cases");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let wanted = paths.filter(|path| path.extension().is_some_and(|is| is == extension));
    let read = |path: PathBuf| {
        let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
        (name, std::fs::read_to_string(&path).expect("UTF-8"))
    };
    let mut files: Vec<_> = wanted.map(read).collect();
    files.sort();
    assert!(!files.is_empty(), "no .{extension} files in cases/{dir}");
    files
}

/// Ends the other threads of a test, which work until the flag is set: when the test fails as well, so that its scope ends.
pub struct SetOnDrop<'a>(pub &'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Asks again and again until the answer is yes.
///
/// # Panics
/// When that takes longer than [`TIMEOUT`].
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let started = Instant::now();
    while !condition() {
        let waited = started.elapsed();
        assert!(waited < TIMEOUT, "gave up waiting: {what}");
        // Many conditions are requests to a server, which is to have the processor for what takes long.
        std::thread::sleep((waited / 8).clamp(Duration::from_millis(2), Duration::from_millis(20)));
    }
}
