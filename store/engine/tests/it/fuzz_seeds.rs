//! What the fuzz targets hold, for their seeds and for some hundred inputs made of them: the same ones in every run.

#[path = "../../fuzz/fuzz_targets/property.rs"]
mod property;
#[path = "../../fuzz/fuzz_targets/sow.rs"]
mod sower;

use std::path::Path;

/// Tries the seeds of a target and what becomes of them.
fn sow(target: &str, property: impl Fn(&[u8]) + std::panic::RefUnwindSafe) {
    sower::sow(&Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds").join(target), 40, property);
}

#[test]
fn calls() {
    sow("calls", property::calls);
}

#[test]
fn effects() {
    sow("effects", property::effects);
}

#[test]
fn glob() {
    sow("glob", property::glob);
}

#[test]
fn hyperloglog() {
    sow("hyperloglog", property::hyperloglog);
}

#[test]
fn rdb_file() {
    sow("rdb_file", property::rdb_file);
}

#[test]
fn restore() {
    sow("restore", property::restore);
}
