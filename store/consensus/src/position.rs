//! Where an entry of a log stands.

/// Where an entry stands.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Position {
    /// Its number; the first is 1.
    pub index: u64,
    /// The term in which it was proposed.
    pub term: u64,
}
