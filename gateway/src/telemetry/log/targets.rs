//! Whose lines are written.

use tracing_subscriber::filter::{LevelFilter, Targets};

/// The target of lines about what users did or were refused. They are written whatever the level: they have a parameter of
/// their own.
pub const AUDIT: &str = "audit";
/// The target of lines that scripts write.
pub const SCRIPT: &str = "script";
/// Those whose level matters. Libraries log more than is useful.
const OURS: [&str; 3] = ["moonshard", "store", SCRIPT];

/// Lines of this level and above.
pub fn from(level: LevelFilter) -> Targets {
    let ours = OURS.map(|target| (target, level));
    Targets::new().with_targets(ours).with_target(AUDIT, LevelFilter::INFO)
}
