//! Numbers of chance.

/// A random number.
pub fn random() -> u64 {
    // Keyed anew for each by the operating system.
    std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), std::process::id())
}
