//! Records of the catalog that are a node's own, and are not given away with the rest of it.

use crate::node::Node;

/// Which node of the cluster this is, and the slot map as it knows it.
pub const MEMBERSHIP: &[u8] = b"cluster/place";
/// The number of the folder, which it has from its first start on.
pub const IDENTITY: &[u8] = b"cluster/identity";
/// Before a transaction's number: what it will do if it is committed, and who decides that.
pub const PREPARED: &[u8] = b"prepared/";
/// Before a transaction's number: it is committed, whatever becomes of its gateway.
pub const DECIDED: &[u8] = b"decided/";
/// Before a transaction's number: how somebody has ended it here, and who would have decided that.
pub const CHOSEN: &[u8] = b"chosen/";
/// What the names of all of these begin with.
pub const OWN: &[&[u8]] = &[PREPARED, DECIDED, CHOSEN, b"cluster/"];

/// Name of the record about a transaction.
pub fn named(prefix: &[u8], number: u64) -> Vec<u8> {
    [prefix, format!("{number:016x}").as_bytes()].concat()
}

/// The transaction that a record is about; its name is given without prefix.
pub fn number_of(name: &[u8]) -> Option<u64> {
    u64::from_str_radix(std::str::from_utf8(name).ok()?, 16).ok()
}

/// The record that somebody has ended a transaction so: name and content.
pub fn choice(number: u64, committed: bool, decider: &str) -> (Vec<u8>, Vec<u8>) {
    (named(CHOSEN, number), [&[u8::from(committed)], decider.as_bytes()].concat())
}

/// How somebody has ended a transaction here, and who would have decided that; none once that one was asked.
pub fn chosen(node: &Node, number: u64) -> Option<(bool, String)> {
    let (_, record) = node.records(&named(CHOSEN, number)).into_iter().next()?;
    let (committed, decider) = record.split_first()?;
    Some((*committed != 0, String::from_utf8_lossy(decider).into_owned()))
}
