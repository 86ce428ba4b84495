//! Records of the catalog that are a node's own, and are not given away with the rest of it.

use std::array::TryFromSliceError;
use std::fmt;
use std::sync::Arc;

use prost::{DecodeError, Message};
use proto::disk::v1 as disk;
use proto::store::v1 as wire;
use store_engine::codec::{Input, put_bytes};

use super::registry::{Arrival, Roles};
use crate::journal::Failure;
use crate::node::Node;
use crate::topology::{InvalidMap, NodeId, SlotMap};

/// Which node of the cluster this is, and the slot map as it knows it.
pub const MEMBERSHIP: &[u8] = b"cluster/place";
/// The number of the data directory, assigned at its first start.
pub const IDENTITY: &[u8] = b"cluster/identity";
/// The number of the cluster that was recovered with this data although some of it may be lost.
pub const RECOVERED: &[u8] = b"cluster/recovered";
/// Before a transaction's number: what it does if it is committed, and its coordinator.
pub const PREPARED: &[u8] = b"prepared/";
/// Before a transaction's number: it is committed, whatever becomes of its gateway.
pub const DECIDED: &[u8] = b"decided/";
/// Before a transaction's number: it is committed, and all participants have acknowledged that a moment ago.
pub const ACKNOWLEDGED: &[u8] = b"acknowledged/";
/// Before a transaction's number: how this node has ended it as a participant, for the others.
pub const ENDED: &[u8] = b"ended/";
/// Before a transaction's number: how an operator has ended it here, and its coordinator.
pub const CHOSEN: &[u8] = b"chosen/";
/// What the names of all of these begin with.
pub const OWN: &[&[u8]] = &[PREPARED, DECIDED, ACKNOWLEDGED, ENDED, CHOSEN, b"cluster/"];

/// The records that belong to the whole cluster.
pub fn common_records(all: impl IntoIterator<Item = (Vec<u8>, Arc<[u8]>)>) -> Vec<wire::Record> {
    let common = all.into_iter().filter(|(name, _)| !OWN.iter().any(|own| name.starts_with(own)));
    let record = |(name, content): (Vec<u8>, Arc<[u8]>)| wire::Record {
        name: name.into(),
        content: content.to_vec().into(),
    };
    common.map(record).collect()
}

/// Why a node cannot be served with the records that it has.
#[derive(Debug)]
pub enum StartError {
    /// What says which node it is cannot be read.
    Membership(RecordError),
    /// This record of a prepared transaction cannot be read.
    Prepared(Vec<u8>),
    /// The number of a new directory was not written.
    Disk(Failure),
}

/// What is wrong with a record.
#[derive(Debug)]
pub enum RecordError {
    /// It is no such message.
    Encoding(DecodeError),
    /// Its map is none.
    Map(InvalidMap),
    /// It has not the length of a number.
    Length(TryFromSliceError),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::Membership(error) => {
                write!(f, "the record of the node's cluster membership is damaged: {error}")
            }
            StartError::Prepared(name) => {
                write!(f, "the record of the prepared transaction \"{}\" is damaged", name.escape_ascii())
            }
            StartError::Disk(failure) => failure.fmt(f),
        }
    }
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecordError::Encoding(error) => error.fmt(f),
            RecordError::Map(error) => error.fmt(f),
            RecordError::Length(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for StartError {}

impl std::error::Error for RecordError {}

/// Name of the record about a transaction.
pub fn named(prefix: &[u8], number: u64) -> Vec<u8> {
    [prefix, format!("{number:016x}").as_bytes()].concat()
}

/// The transaction that a record is about; its name is given without prefix.
pub fn number_of(name: &[u8]) -> Option<u64> {
    u64::from_str_radix(std::str::from_utf8(name).ok()?, 16).ok()
}

fn map_to_disk(map: &SlotMap) -> disk::SlotMap {
    let wire::SlotMap { epoch, nodes, runs, identities } = map.to_wire();
    let run = |wire::Run { slots, node, version }: wire::Run| disk::Run { slots, node, version };
    let identity = |wire::Identity { id, version }: wire::Identity| disk::Identity { id, version };
    let (runs, identities) =
        (runs.into_iter().map(run).collect(), identities.into_iter().map(identity).collect());
    disk::SlotMap { epoch, nodes, runs, identities }
}

fn map_from_disk(map: Option<disk::SlotMap>) -> Result<SlotMap, InvalidMap> {
    let disk::SlotMap { epoch, nodes, runs, identities } = map.unwrap_or_default();
    let run = |disk::Run { slots, node, version }: disk::Run| wire::Run { slots, node, version };
    let identity = |disk::Identity { id, version }: disk::Identity| wire::Identity { id, version };
    let (runs, identities) =
        (runs.into_iter().map(run).collect(), identities.into_iter().map(identity).collect());
    SlotMap::from_wire(&wire::SlotMap { epoch, nodes, runs, identities })
}

/// The content of [`MEMBERSHIP`].
pub fn membership(map: &SlotMap, me: NodeId) -> Vec<u8> {
    disk::Membership { map: Some(map_to_disk(map)), node: me as u32 }.encode_to_vec()
}

/// Reads what [`membership`] wrote; an error says what is wrong with it.
pub fn read_membership(record: &[u8]) -> Result<(SlotMap, NodeId), RecordError> {
    let disk::Membership { map, node } = disk::Membership::decode(record).map_err(RecordError::Encoding)?;
    Ok((map_from_disk(map).map_err(RecordError::Map)?, node as NodeId))
}

/// The content of the record of a prepared transaction: coordinator, effects, and the slots that arrive with it.
pub fn prepared(roles: &Roles, effects: &[u8], arrival: Option<&Arrival>) -> Vec<u8> {
    let Roles { coordinator, identity, siblings } = roles;
    let mut record = Vec::new();
    put_bytes(coordinator.as_bytes(), &mut record);
    put_bytes(effects, &mut record);
    if let Some(Arrival { map, records }) = arrival {
        let of_catalog = |(name, content): &(bytes::Bytes, bytes::Bytes)| disk::CatalogRecord {
            name: name.clone(),
            content: content.clone(),
        };
        let records = records.iter().map(of_catalog).collect();
        put_bytes(&disk::Arrival { map: Some(map_to_disk(map)), records }.encode_to_vec(), &mut record);
    }
    if *identity != 0 || !siblings.is_empty() {
        if arrival.is_none() {
            put_bytes(b"", &mut record);
        }
        let roles = disk::Roles { coordinator_identity: *identity, siblings: siblings.clone() };
        put_bytes(&roles.encode_to_vec(), &mut record);
    }
    record
}

/// Reads what [`prepared`] wrote, unless it is damaged.
pub fn read_prepared(record: &[u8]) -> Option<(Roles, Vec<u8>, Option<Arrival>)> {
    let mut input = Input(record);
    let coordinator = String::from_utf8(input.bytes().ok()?.to_vec()).ok()?;
    let effects = input.bytes().ok()?.to_vec();
    let mut roles = Roles { coordinator, ..Roles::default() };
    if input.is_empty() {
        return Some((roles, effects, None));
    }
    let arrival = match input.bytes().ok()? {
        [] => None,
        arrival => {
            let disk::Arrival { map, records } = disk::Arrival::decode(arrival).ok()?;
            let records = records.into_iter().map(|record| (record.name, record.content)).collect();
            // Without a map it is damaged, too.
            Some(Arrival { map: map_from_disk(map).ok()?, records })
        }
    };
    // Earlier programs did not write them.
    if !input.is_empty() {
        let disk::Roles { coordinator_identity, siblings } = disk::Roles::decode(input.bytes().ok()?).ok()?;
        (roles.identity, roles.siblings) = (coordinator_identity, siblings);
    }
    Some((roles, effects, arrival))
}

/// How an operator has ended a transaction, and the coordinator in whose place.
pub struct Choice {
    /// The choice.
    pub committed: bool,
    /// Its coordinator, and the number of that one's directory.
    pub roles: Roles,
}

/// The record that an operator has ended a transaction so: name and content. The coordinator's name ends at a line feed,
/// behind which is the number of its directory; earlier programs did not write that.
pub fn choice(number: u64, committed: bool, roles: &Roles) -> (Vec<u8>, Vec<u8>) {
    let coordinator = match roles.identity {
        0 => roles.coordinator.clone(),
        identity => format!("{}\n{identity:016x}", roles.coordinator),
    };
    (named(CHOSEN, number), [&[u8::from(committed)], coordinator.as_bytes()].concat())
}

/// How an operator has ended a transaction here; none once its coordinator was asked.
pub fn chosen(node: &Node, number: u64) -> Option<Choice> {
    let (_, record) = node.records(&named(CHOSEN, number)).into_iter().next()?;
    let (committed, coordinator) = record.split_first()?;
    let coordinator = String::from_utf8_lossy(coordinator);
    let (coordinator, identity) = coordinator.split_once('\n').unwrap_or((&coordinator, "0"));
    let identity = u64::from_str_radix(identity, 16).unwrap_or_default();
    let roles = Roles { coordinator: coordinator.to_owned(), identity, siblings: Vec::new() };
    Some(Choice { committed: *committed != 0, roles })
}

/// The content of a record of [`ENDED`].
pub use proto::disk::v1::Ending;

/// As it is written.
pub fn write_ending(ending: &Ending) -> Vec<u8> {
    ending.encode_to_vec()
}

/// Reads what [`write_ending`] wrote. A damaged one is of no use, and dropped like one that all know.
pub fn read_ending(record: &[u8]) -> Ending {
    Ending::decode(record).unwrap_or_default()
}

/// How a transaction was ended here, if another participant may still have to know.
pub fn ended(node: &Node, number: u64) -> Option<Ending> {
    let (_, record) = node.records(&named(ENDED, number)).into_iter().next()?;
    Ending::decode(&*record).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is written of [`map`].
    const MAP: &[u8] = b"\x08\x02\x12\x03a:1\x12\x03b:2\
        \x1a\x06\x08\x01\x10\x01\x18\x01\x1a\x03\x08\xff\x3f\x1a\x05\x08\x80\x40\x10\x01\
        \x22\x09\x09\x02\x01\0\0\0\0\0\0\x22\0";

    fn map() -> SlotMap {
        let map = SlotMap::even(&["a:1".to_owned(), "b:2".to_owned()]).expect("good names").founded();
        map.moved(&[0], 1).identified(0, 0x0102)
    }

    /// A field of a message: `tag` is its number and its kind.
    fn field(tag: u8, bytes: &[u8]) -> Vec<u8> {
        [&[tag, bytes.len() as u8], bytes].concat()
    }

    #[test]
    fn a_membership_is_written_as_ever() {
        let record = membership(&map(), 1);
        assert_eq!(record, [field(0x12, MAP), vec![0x18, 1]].concat());
        assert!(read_membership(&record).is_ok_and(|read| read == (map(), 1)));
        // In the first programs it was a handshake, with fields that mean nothing here.
        let handshake = [&[0x08, 7][..], &record, b"\x22\x05token"].concat();
        assert!(read_membership(&handshake).is_ok_and(|read| read == (map(), 1)));
        assert!(read_membership(&record[..9]).is_err() && read_membership(b"").is_err());
    }

    #[test]
    fn a_prepared_transaction_is_written_as_ever() {
        let records = vec![("name".into(), "content".into())];
        let arrival = Arrival { map: map(), records };
        let roles = Roles { coordinator: "a:1".to_owned(), ..Roles::default() };
        let record = prepared(&roles, b"effects", Some(&arrival));
        let of_catalog = [field(0x0a, b"name"), field(0x12, b"content")].concat();
        let mut expected = prepared(&roles, b"effects", None);
        assert_eq!(expected, [&[3][..], b"a:1", &[7], b"effects"].concat());
        put_bytes(&[field(0x12, MAP), field(0x22, &of_catalog)].concat(), &mut expected);
        assert_eq!(record, expected);
        let read = read_prepared(&record).expect("it is whole");
        assert_eq!((&read.0, &*read.1), (&roles, &b"effects"[..]));
        assert!(read.2.is_some_and(|read| read.map == map() && read.records == arrival.records));
        assert!(read_prepared(&record[..record.len() - 1]).is_none());
        let plain = read_prepared(&prepared(&roles, b"effects", None)).expect("it is whole");
        assert!(plain.2.is_none());
        let roles = Roles { identity: 5, siblings: vec!["b:2".to_owned()], ..roles };
        let read = read_prepared(&prepared(&roles, b"effects", None)).expect("it is whole");
        assert!(read.0 == roles && read.1 == b"effects" && read.2.is_none());
        let read = read_prepared(&prepared(&roles, b"effects", Some(&arrival))).expect("it is whole");
        assert!(read.0 == roles && read.2.is_some_and(|read| read.map == map()));
    }
}
