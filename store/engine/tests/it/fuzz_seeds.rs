//! What the fuzz targets hold, for their seeds and for some hundred inputs made of them: the same ones in every run.

#[path = "../../fuzz/fuzz_targets/property.rs"]
mod property;
#[path = "../../fuzz/fuzz_targets/sow.rs"]
mod sower;

use std::path::Path;

/// Tries the seeds of a target and what becomes of them.
fn run_seeds(target: &str, property: impl Fn(&[u8]) + std::panic::RefUnwindSafe) {
    sower::run_seeds(&Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds").join(target), 40, property);
}

#[test]
fn calls() {
    run_seeds("calls", property::calls);
}

#[test]
fn effects() {
    run_seeds("effects", property::effects);
}

#[test]
fn glob() {
    run_seeds("glob", property::glob);
}

#[test]
fn hyperloglog() {
    run_seeds("hyperloglog", property::hyperloglog);
}

#[test]
fn json_path() {
    run_seeds("json_path", property::json_path);
}

#[test]
fn rdb_file() {
    run_seeds("rdb_file", property::rdb_file);
}

#[test]
fn restore() {
    run_seeds("restore", property::restore);
}
