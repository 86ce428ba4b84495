//! Which group of replicas.

/// The number of a group of replicas.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct GroupId(pub u32);

impl GroupId {
    /// The group that decides which processes and which replicas there are.
    pub const META: GroupId = GroupId(u32::MAX);
}
