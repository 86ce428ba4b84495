//! Which build this is.

/// The commit that a release build was made from; `unknown` outside of a repository.
pub const COMMIT: &str = env!("BUILD_COMMIT");

/// The version with commit, profile and target.
pub fn full() -> &'static str {
    concat!(
        env!("CARGO_PKG_VERSION"),
        " (commit ",
        env!("BUILD_COMMIT"),
        ", ",
        env!("BUILD_PROFILE"),
        ", ",
        env!("BUILD_TARGET"),
        ")"
    )
}
