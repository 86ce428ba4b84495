//! Streams: their nodes as they are, then what is known of the whole, then the groups.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};

use super::codec::{Decoder, Fault, write_length, write_string};
use super::kind::{STREAM_LISTPACKS, STREAM_LISTPACKS_3, STREAM_LISTPACKS_4, STREAM_LISTPACKS_5};
use super::packed::Damage;
use crate::Work;
use crate::value::Stream;
use crate::value::stream::{Group, Id, Meta, Node, Part};

const TWICE: Damage = "a stream has a group, a consumer or a pending entry twice";

fn write_id(out: &mut impl Write, id: Id) -> io::Result<()> {
    write_length(out, id.ms)?;
    write_length(out, id.seq)
}

/// Writes a stream as Redis 7.0 does.
pub fn write(stream: &Stream, out: &mut impl Write) -> io::Result<()> {
    write_length(out, stream.node_count() as u64)?;
    for (own, node) in stream.nodes() {
        write_length(out, 16)?;
        out.write_all(&own.to_bytes())?;
        write_length(out, node.as_bytes().len() as u64)?;
        out.write_all(node.as_bytes())?;
    }
    let Meta { last_id, entries_added, max_deleted_id } = stream.meta();
    write_length(out, stream.len() as u64)?;
    write_id(out, last_id)?;
    write_id(out, stream.first_id())?;
    write_id(out, max_deleted_id)?;
    write_length(out, entries_added)?;
    write_length(out, stream.groups().len() as u64)?;
    for (name, group) in stream.groups() {
        write_string(out, name)?;
        write_id(out, group.last_id)?;
        // Redis has -1 for what it does not know.
        write_length(out, group.entries_read.unwrap_or(u64::MAX))?;
        write_length(out, group.pending_len() as u64)?;
        for (id, pending) in group.pending(Id::MIN) {
            out.write_all(&id.to_bytes())?;
            out.write_all(&pending.delivered_ms.to_le_bytes())?;
            write_length(out, pending.count)?;
        }
        write_length(out, group.consumers().len() as u64)?;
        for (name, consumer) in group.consumers() {
            write_string(out, name)?;
            out.write_all(&consumer.seen_ms.to_le_bytes())?;
            write_length(out, consumer.pending_len() as u64)?;
            consumer.pending(Id::MIN).try_for_each(|id| out.write_all(&id.to_bytes()))?;
        }
    }
    Ok(())
}

fn read_id<R: Read>(from: &mut Decoder<R>) -> Result<Id, Fault> {
    Ok(Id { ms: from.length()?, seq: from.length()? })
}

/// Reads a stream of one of the five kinds, only a part of it if `work` ends. What idempotent producers have sent is
/// skipped: Redis itself remembers it for some seconds only.
pub fn read<R: Read>(kind: u8, from: &mut Decoder<R>, work: &Work) -> Result<Stream, Fault> {
    let mut stream = Stream::default();
    let mut own = Vec::new();
    for _ in 0..from.length()? {
        from.string(&mut own)?;
        let id = own.as_slice().try_into().map(Id::from_bytes);
        let id = id.map_err(|_| from.damage("a part of a stream has no ID"))?;
        let node = Node::checked(id, from.owned()?, work).map_err(|damage| from.damage(damage))?;
        let node_bytes = node.bytes();
        stream.put_node(id, node).map_err(|_| from.damage("the parts of a stream are not in order"))?;
        if !work.add_element(node_bytes, stream.bytes()) {
            return Ok(stream);
        }
    }
    let len = from.length()?;
    if len != stream.len() as u64 {
        return Err(from.damage("a stream has a wrong number of entries"));
    }
    let mut meta = Meta { last_id: read_id(from)?, entries_added: len, max_deleted_id: Id::MIN };
    if kind != STREAM_LISTPACKS {
        // The first entry is known already.
        read_id(from)?;
        meta.max_deleted_id = read_id(from)?;
        meta.entries_added = from.length()?;
    }
    stream.set_meta(meta);
    if stream.top_id() > meta.last_id {
        return Err(from.damage("a stream has entries behind its last"));
    }
    for _ in 0..from.length()? {
        read_group(kind, from, &mut stream, work)?;
        if !work.add_element(0, stream.bytes()) {
            return Ok(stream);
        }
    }
    if kind >= STREAM_LISTPACKS_4 {
        skip_producers(from, work)?;
    }
    Ok(stream)
}

fn skip_producers<R: Read>(from: &mut Decoder<R>, work: &Work) -> Result<(), Fault> {
    let (_seconds, _most_entries) = (from.length()?, from.length()?);
    for _ in work.over(0..from.length()?) {
        from.skip_string()?;
        for _ in work.over(0..from.length()?) {
            from.skip_string()?;
            read_id(from)?;
        }
    }
    let (_added, _duplicates) = (from.length()?, from.length()?);
    Ok(())
}

fn read_group<R: Read>(
    kind: u8,
    from: &mut Decoder<R>,
    stream: &mut Stream,
    work: &Work,
) -> Result<(), Fault> {
    let name = from.owned()?;
    if stream.group(&name).is_some() {
        return Err(from.damage(TWICE));
    }
    let last_id = read_id(from)?;
    let entries_read = match kind {
        STREAM_LISTPACKS => stream.added_up_to(last_id),
        _ => Some(from.length()?).filter(|read| i64::try_from(*read).is_ok()),
    };
    stream.put_group(&name, Group::new(last_id, entries_read));
    // Whose they are is told later.
    let mut pending = BTreeMap::new();
    for _ in work.over(0..from.length()?) {
        let id = Id::from_bytes(from.bytes()?);
        let delivered = (i64::from_le_bytes(from.bytes()?), from.length()?);
        if pending.insert(id, delivered).is_some() {
            return Err(from.damage(TWICE));
        }
    }
    let mut consumer = Vec::new();
    for _ in work.over(0..from.length()?) {
        from.string(&mut consumer)?;
        if stream.group(&name).is_some_and(|group| group.consumer(&consumer).is_some()) {
            return Err(from.damage(TWICE));
        }
        let seen_ms = i64::from_le_bytes(from.bytes()?);
        if kind >= STREAM_LISTPACKS_3 {
            // When it last got something; Redis 7.0 does not ask.
            from.bytes::<8>()?;
        }
        let mut put = |part: Part<'_>, bytes: &[u8]| {
            stream.put_part(part, bytes).expect("its group and its consumer are there");
        };
        put(Part::Consumer(&name, &consumer), &Part::consumer_bytes(seen_ms));
        for _ in work.over(0..from.length()?) {
            let id = Id::from_bytes(from.bytes()?);
            let Some((delivered_ms, count)) = pending.remove(&id) else {
                return Err(from.damage("a consumer of a stream has what its group does not know of"));
            };
            put(Part::Pending(&name, id), &Part::pending_bytes(&consumer, delivered_ms, count));
        }
    }
    if kind >= STREAM_LISTPACKS_5 && from.length()? > 0 {
        return Err(from.foreign("pending entries that XNACK has released"));
    }
    match pending.is_empty() {
        true => Ok(()),
        false => Err(from.damage("a group of a stream has what none of its consumers has")),
    }
}
