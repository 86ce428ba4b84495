//! Nodes: a hundred entries or some kilobytes of them in one listpack, laid out as Redis does it.
//!
//! ```text
//! live deleted fields name ... 0        the names that most entries share
//! flags ms seq value ... count          an entry with these names; ms and seq count from the node's own ID
//! flags ms seq fields name value ... count    an entry with names of its own
//! ```
//!
//! An entry that is deleted stays there with a mark, until its node goes.

use std::fmt;

use super::Id;
use crate::Work;
use crate::coding::{Input, Malformed};
use crate::listpack::{self, Damage, END, HEADER, Item, UNCOUNTED};
use crate::size::allocated;

const DELETED: i64 = 1;
const SAME_FIELDS: i64 = 2;

/// Names and values as effects have them: each behind its length, a name before its value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    /// What was written one by one.
    pub fn encoded(bytes: &'a [u8]) -> Fields<'a> {
        Fields(bytes)
    }

    /// The bytes.
    pub fn as_bytes(self) -> &'a [u8] {
        self.0
    }

    /// The names with their values, as far as they are well formed.
    pub fn pairs(self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone {
        let mut input = Input(self.0);
        std::iter::from_fn(move || Some((input.bytes().ok()?, input.bytes().ok()?)))
    }

    /// Whether there is at least one pair, and nothing else.
    pub fn check(self) -> Result<(), Malformed> {
        let mut input = Input(self.0);
        input.bytes()?;
        input.bytes()?;
        while !input.is_empty() {
            input.bytes()?;
            input.bytes()?;
        }
        Ok(())
    }
}

/// A node.
#[derive(Clone, PartialEq)]
pub struct Node {
    pack: Vec<u8>,
}

/// What stands before the entries.
struct Master {
    live: i64,
    live_at: usize,
    deleted: i64,
    deleted_at: usize,
    fields: usize,
    fields_at: usize,
    end: usize,
}

/// An element and where the next one begins. `None` at the end, and at nothing else in a node that was checked.
fn read(pack: &[u8], at: usize) -> Option<(Item<'_>, usize)> {
    let mut rest = pack.get(at..)?;
    let item = listpack::item(&mut rest).ok()?;
    Some((item, pack.len() - rest.len()))
}

fn read_number(pack: &[u8], at: usize) -> Option<(i64, usize)> {
    let (item, next) = read(pack, at)?;
    Some((item.number()?, next))
}

fn read_count(pack: &[u8], at: usize) -> Option<(usize, usize)> {
    let (number, next) = read_number(pack, at)?;
    Some((usize::try_from(number).ok()?, next))
}

fn skip(pack: &[u8], mut at: usize, count: usize) -> Option<usize> {
    for _ in 0..count {
        at = read(pack, at)?.1;
    }
    Some(at)
}

impl Node {
    /// One whose only entry has the node's own ID.
    pub fn new(fields: Fields<'_>) -> Node {
        let mut node = Node { pack: vec![0; HEADER] };
        let out = &mut node.pack;
        let pairs = fields.pairs();
        listpack::push_number(out, 0);
        listpack::push_number(out, 0);
        let count = pairs.clone().count();
        listpack::push_number(out, count as i64);
        pairs.for_each(|(name, _)| listpack::push(out, name));
        listpack::push_number(out, 0);
        out.push(END);
        node.set_header(count + 4);
        node.append(Id::MIN, Id::MIN, fields);
        node
    }

    /// A node of these bytes, if they are one of this ID whose entries come in order. If `work` ends, it is none.
    pub fn checked(own: Id, pack: Vec<u8>, work: &Work) -> Result<Node, Damage> {
        const FORM: Damage = "a part of a stream of unknown form";
        const ORDER: Damage = "the entries of a stream are not in order";
        let mut rest: &[u8] = &pack;
        let size = u32::from_le_bytes(listpack::array(&mut rest)?);
        let counted = usize::from(u16::from_le_bytes(listpack::array(&mut rest)?));
        if size as usize != pack.len() {
            return Err("a packed collection has another size than it says");
        }
        let mut found = 0;
        while *rest != [END] {
            if !work.step(1) {
                return Err("reading the stream was cancelled");
            }
            listpack::item(&mut rest)?;
            found += 1;
        }
        if counted != UNCOUNTED && counted != found {
            return Err("a packed collection has a wrong number of elements");
        }
        let mut node = Node { pack };
        let master = node.master().filter(|master| master.live >= 0 && master.deleted >= 0).ok_or(FORM)?;
        let (mut live, mut deleted, mut last, mut end) = (0, 0, None, master.end);
        for entry in work.over(node.entries(own)) {
            if entry.is_deleted() {
                deleted += 1
            } else {
                live += 1
            }
            let counts = if entry.is_shared() { entry.count + 3 } else { 2 * entry.count + 4 };
            let (written, next) = read_count(&node.pack, entry.counted_at).ok_or(FORM)?;
            if written != counts {
                return Err(FORM);
            }
            if entry.id < own || last.is_some_and(|last| entry.id <= last) {
                return Err(ORDER);
            }
            (last, end) = (Some(entry.id), next);
        }
        if end + 1 != node.pack.len() || (live, deleted) != (master.live, master.deleted) || last.is_none() {
            return Err(FORM);
        }
        node.fit();
        Ok(node)
    }

    /// The listpack.
    pub fn as_bytes(&self) -> &[u8] {
        &self.pack
    }

    /// Bytes on the heap.
    pub fn bytes(&self) -> usize {
        allocated(self.pack.len())
    }

    /// Gives the buffer the room that is counted.
    fn fit(&mut self) {
        let wanted = allocated(self.pack.len());
        self.pack.reserve_exact(wanted - self.pack.len());
        self.pack.shrink_to(wanted);
    }

    fn set_header(&mut self, count: usize) {
        let size = self.pack.len() as u32;
        self.pack[..4].copy_from_slice(&size.to_le_bytes());
        self.pack[4..HEADER].copy_from_slice(&(count.min(UNCOUNTED) as u16).to_le_bytes());
    }

    /// Number of elements as the header has it.
    fn counted(&self) -> usize {
        usize::from(u16::from_le_bytes([self.pack[4], self.pack[5]]))
    }

    fn master(&self) -> Option<Master> {
        let (live_at, pack) = (HEADER, &*self.pack);
        let (live, deleted_at) = read_number(pack, live_at)?;
        let (deleted, at) = read_number(pack, deleted_at)?;
        let (fields, fields_at) = read_count(pack, at)?;
        let (zero, end) = read_number(pack, skip(pack, fields_at, fields)?)?;
        (zero == 0).then_some(Master { live, live_at, deleted, deleted_at, fields, fields_at, end })
    }

    fn known_master(&self) -> Master {
        self.master().expect("a node was checked when it came, and made well formed otherwise")
    }

    /// How many entries are live.
    pub fn live(&self) -> usize {
        read_count(&self.pack, HEADER).map_or(0, |(live, _)| live)
    }

    /// How many entries there are, deleted ones too.
    pub fn entry_count(&self) -> usize {
        let Master { live, deleted, .. } = self.known_master();
        (live + deleted) as usize
    }

    /// All entries of a node of this ID, deleted ones too.
    pub fn entries(&self, own: Id) -> Entries<'_> {
        let master = self.master();
        let at = master.as_ref().map_or(self.pack.len(), |master| master.end);
        let (fields, fields_at) = master.map_or((0, 0), |master| (master.fields, master.fields_at));
        Entries { pack: &self.pack, own, at, fields, fields_at }
    }

    /// The entry of this ID, deleted or not.
    pub fn find(&self, own: Id, id: Id) -> Option<StreamEntry<'_>> {
        self.entries(own).take_while(|entry| entry.id <= id).find(|entry| entry.id == id)
    }

    /// Adds an entry behind all others of a node of this ID.
    pub fn append(&mut self, own: Id, id: Id, fields: Fields<'_>) {
        let master = self.known_master();
        let pairs = fields.pairs();
        let mut at = master.fields_at;
        let shares = pairs.clone().count() == master.fields
            && pairs.clone().all(|(name, _)| {
                read(&self.pack, at).is_some_and(|(held, next)| {
                    at = next;
                    *held.text() == *name
                })
            });
        let counted = self.counted();
        let out = &mut self.pack;
        let (mut added, start) = (0, out.len() - 1);
        out.truncate(start);
        // Rarely more than its texts and two bytes for each.
        let room = fields.as_bytes().len() + 16;
        out.reserve_exact(allocated(start + room).saturating_sub(start));
        let mut number = |out: &mut Vec<u8>, number: i64| {
            listpack::push_number(out, number);
            added += 1;
        };
        number(out, if shares { SAME_FIELDS } else { 0 });
        number(out, id.ms.wrapping_sub(own.ms).cast_signed());
        number(out, id.seq.wrapping_sub(own.seq).cast_signed());
        let mut texts = 0;
        if !shares {
            number(out, pairs.clone().count() as i64);
        }
        for (name, value) in pairs {
            if !shares {
                listpack::push(out, name);
            }
            listpack::push(out, value);
            texts += if shares { 1 } else { 2 };
        }
        let count = added + texts;
        listpack::push_number(out, count as i64);
        out.push(END);
        self.set_header(if counted == UNCOUNTED { UNCOUNTED } else { counted + count + 1 });
        self.set_number(master.live_at, master.live + 1);
        self.fit();
    }

    /// Writes another number in an element's place.
    fn set_number(&mut self, at: usize, number: i64) {
        let Some((_, end)) = read(&self.pack, at) else { return };
        let mut element = Vec::with_capacity(11);
        listpack::push_number(&mut element, number);
        self.pack.splice(at..end, element);
        self.set_header(self.counted());
    }

    /// What [`Node::cut_back`] needs to take the next [`Node::append`] back; `None` if that cannot.
    pub fn extent(&self) -> Option<(usize, usize)> {
        self.is_plain().then(|| (self.pack.len(), self.counted()))
    }

    /// Whether the numbers of entries take, and will take, one byte each.
    fn is_plain(&self) -> bool {
        let Master { live, deleted, deleted_at, .. } = self.known_master();
        deleted_at == HEADER + 2 && live + deleted < 127 && self.pack[deleted_at] < 0x80
    }

    /// Takes an append back.
    pub fn cut_back(&mut self, (len, counted): (usize, usize)) {
        self.pack.truncate(len - 1);
        self.pack.push(END);
        self.set_header(counted);
        let Master { live, live_at, .. } = self.known_master();
        self.set_number(live_at, live - 1);
        self.fit();
    }

    /// Whether [`Node::unmark`] gives this entry its bytes again.
    pub fn can_unmark(&self, own: Id, id: Id) -> bool {
        let is_plain =
            |entry: StreamEntry<'_>| entry.flags <= DELETED | SAME_FIELDS && self.pack[entry.at] < 0x80;
        self.is_plain() && self.find(own, id).is_some_and(is_plain)
    }

    /// Marks an entry that is live as deleted.
    pub fn mark(&mut self, own: Id, id: Id) {
        self.set_deleted(own, id, true);
    }

    /// Takes a mark back.
    pub fn unmark(&mut self, own: Id, id: Id) {
        self.set_deleted(own, id, false);
    }

    /// Gives an entry its mark or takes it.
    fn set_deleted(&mut self, own: Id, id: Id, deletes: bool) {
        let Some(StreamEntry { at, flags, .. }) =
            self.find(own, id).filter(|entry| entry.is_deleted() != deletes)
        else {
            return;
        };
        self.set_number(at, flags ^ DELETED);
        let step = if deletes { 1 } else { -1 };
        let Master { live, live_at, .. } = self.known_master();
        self.set_number(live_at, live - step);
        let Master { deleted, deleted_at, .. } = self.known_master();
        self.set_number(deleted_at, deleted + step);
        self.fit();
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.pack.escape_ascii())
    }
}

/// An entry in its node.
#[derive(Clone, Copy)]
pub struct StreamEntry<'a> {
    /// Its ID.
    pub id: Id,
    pack: &'a [u8],
    at: usize,
    flags: i64,
    count: usize,
    names_at: usize,
    values_at: usize,
    counted_at: usize,
}

impl<'a> StreamEntry<'a> {
    /// Whether it is there no more.
    pub fn is_deleted(&self) -> bool {
        self.flags & DELETED != 0
    }

    fn is_shared(&self) -> bool {
        self.flags & SAME_FIELDS != 0
    }

    /// How many fields it has.
    #[allow(clippy::len_without_is_empty, reason = "there is always one")]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Names and values.
    pub fn pairs(self) -> impl Iterator<Item = (Item<'a>, Item<'a>)> {
        let (mut name_at, mut value_at) = (self.names_at, self.values_at);
        let shared = self.is_shared();
        (0..self.count).map_while(move |_| {
            let (name, behind_name) = read(self.pack, name_at)?;
            let (value, behind_value) = read(self.pack, if shared { value_at } else { behind_name })?;
            name_at = if shared { behind_name } else { behind_value };
            value_at = behind_value;
            Some((name, value))
        })
    }
}

/// Walks over the entries of a node.
pub struct Entries<'a> {
    pack: &'a [u8],
    own: Id,
    at: usize,
    fields: usize,
    fields_at: usize,
}

impl<'a> Iterator for Entries<'a> {
    type Item = StreamEntry<'a>;

    fn next(&mut self) -> Option<StreamEntry<'a>> {
        let (pack, own, at) = (self.pack, self.own, self.at);
        let (flags, next) = read_number(pack, at)?;
        let (ms, next) = read_number(pack, next)?;
        let (seq, values_at) = read_number(pack, next)?;
        let id = Id { ms: own.ms.wrapping_add(ms as u64), seq: own.seq.wrapping_add(seq as u64) };
        let shared = flags & SAME_FIELDS != 0;
        let (count, names_at, values_at) = if shared {
            (self.fields, self.fields_at, values_at)
        } else {
            let (count, names_at) = read_count(pack, values_at)?;
            (count, names_at, names_at)
        };
        let counted_at = skip(pack, values_at, if shared { count } else { count.checked_mul(2)? })?;
        (_, self.at) = read(pack, counted_at)?;
        Some(StreamEntry { id, pack, at, flags, count, names_at, values_at, counted_at })
    }
}
