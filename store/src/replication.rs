//! Nodes whose data is on several machines: a group of replicas agrees on the records of one journal.
//!
//! The leader of a group changes its memory first and answers when a majority has the record. The others apply what is
//! committed to a memory of their own, so that each of them can go on in the leader's place.
//!
//! ```text
//! leader:    commit ──▶ journal ──take_proposals──▶ Driver ──entry──▶ other replicas
//!                          ▲                          │  one write and one flush for all groups
//!                          └────── committed ─────────┘
//! follower:  Driver ──committed entries──▶ apply ──▶ memory and journal
//! ```
//!
//! The checkpoint of a leader contains what is not committed yet: the writer waits for the group before it writes. A node that
//! loses the leadership may have changes in memory that the group has not: it is read from disk again.

mod apply;
mod balance;
mod copy;
mod driver;
mod entry;
mod group;
mod group_id;
mod groups;
mod groups_messages;
mod log_disk;
mod placement;
mod questions;
mod recovery;

#[cfg(test)]
mod tests;

pub use self::copy::{Copied, position_of};
pub use self::driver::{Driver, DriverError, GroupState, ReplicaHandle, ReplicaStatus, Transport};
pub use self::group::{Fetched, Group, GroupError, GroupSettings, Leadership, Opened};
pub use self::group_id::GroupId;
pub use self::groups::{Founding, GroupInfo, Groups, GroupsError, META, ProcessInfo, ProcessState};
pub use self::log_disk::LogDisk;
pub use self::placement::{Change, ChangeError};
pub use self::recovery::{Recovery, RecoveryError, Surviving, recover_log};
