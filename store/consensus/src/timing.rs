//! The times that replicas of a group agree on.

/// Milliseconds between two ticks.
pub const TICK_MS: u64 = 100;
/// Ticks between two heartbeats of the leader.
pub const HEARTBEAT_TICKS: usize = 2;
/// A replica that has heard nothing of a leader for so many ticks, or up to twice as many, tries to become the leader.
pub const ELECTION_TICKS: usize = 10;
