//! What a transaction did, as bytes that repeat it.
//!
//! Every change that an editor of [`crate::edit`] or [`crate::Ctx`] makes leaves one effect here, beside its undo:
//! what became of the key, never how a command came to it. Applied in order to what was there before, effects give
//! exactly what was there after. A journal keeps them; a record of a journal is the effects of one transaction.

use std::num::NonZeroU64;

use crate::Stamp;
use crate::codec;
use crate::coding::{Input, Malformed, put_bytes, put_number};
use crate::entry::Entry;
use crate::keyspace::Keyspace;
use crate::partition::Partitions;
use crate::value::json::Edit;
use crate::value::stream::{Fields, Id, Part, put_id, read_id};
use crate::value::{Hash, Json, Kind, List, Set, Str, Stream, ZSet};

/// The database of what is no client's data. The engine knows none of this number; effects may name it.
pub const CATALOG: usize = crate::DATABASES;

/// What became of one key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Effect<'a> {
    /// It holds this entry: [`Effects::put`] and [`Put::entry`].
    Put(Put<'a>),
    /// It is gone.
    Remove,
    /// It is gone if it had an expiry that had come by this Unix time in milliseconds.
    Expired(u64),
    /// Its entry is now that of this key of this database.
    Rename(usize, &'a [u8]),
    /// It expires then, or not at all; Unix time in milliseconds.
    Expiry(Option<NonZeroU64>),
    /// Whether it stays when memory is short.
    Sticky(bool),
    /// The string is this one.
    Text(&'a [u8]),
    /// The string is this number.
    Number(i64),
    /// The string has become longer.
    Append(&'a [u8]),
    /// The string has these bytes at this offset.
    Write(usize, &'a [u8]),
    /// A list element came to the front (`true`) or back.
    Push(bool, &'a [u8]),
    /// That many list elements left the front (`true`) or back.
    Pop(bool, usize),
    /// The list element at this position is this one.
    ListSet(usize, &'a [u8]),
    /// A list element was inserted at this position.
    ListInsert(usize, &'a [u8]),
    /// The list element at this position is gone.
    ListRemove(usize),
    /// The hash field has this value, and does not expire.
    HashSet(&'a [u8], &'a [u8]),
    /// The hash field is gone.
    HashRemove(&'a [u8]),
    /// The hash field expires then, or not at all; Unix time in milliseconds.
    HashExpiry(&'a [u8], Option<NonZeroU64>),
    /// The hash field is gone if it had an expiry that had come by this Unix time in milliseconds, and with the last
    /// one the key.
    HashExpired(&'a [u8], u64),
    /// The set has this member.
    SetAdd(&'a [u8]),
    /// The set has this member no more.
    SetRemove(&'a [u8]),
    /// The sorted set has this member with this score.
    ZSetAdd(&'a [u8], f64),
    /// The sorted set has this member no more.
    ZSetRemove(&'a [u8]),
    /// The stream has this new last entry, in the node of the first ID.
    StreamAdd(Id, Id, Fields<'a>),
    /// In the stream's node of the first ID this entry is marked as deleted.
    StreamDelete(Id, Id),
    /// The stream's [`Part`] of this name is this one.
    StreamPut(&'a [u8], &'a [u8]),
    /// The stream has this part no more.
    StreamRemove(&'a [u8]),
    /// The document was changed by this [`Edit`].
    Json(&'a [u8]),
    /// All keys of the database are gone, whatever the key.
    Flush,
    /// The database and this other one are exchanged, whatever the key.
    Swap(usize),
}

/// An encoded entry.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Put<'a>(&'a [u8]);

impl<'a> Put<'a> {
    /// From [`EntryMeta`] and a value behind them, as they were written.
    pub fn encoded(bytes: &'a [u8]) -> Put<'a> {
        Put(bytes)
    }

    /// The entry.
    pub fn entry(self) -> Result<Entry, Malformed> {
        let mut input = Input(self.0);
        let entry = read_entry(&mut input)?;
        if input.is_empty() { Ok(entry) } else { Err(Malformed) }
    }
}

const EXPIRES: u8 = 1;
const STICKY: u8 = 2;
const STAMPED: u8 = 4;

/// What is remembered beside a value.
#[derive(Clone, Copy, Debug, Default)]
pub struct EntryMeta {
    /// [`Entry::expire_at_ms`].
    pub expire_at_ms: Option<NonZeroU64>,
    /// [`Entry::sticky`].
    pub sticky: bool,
    /// [`Entry::stamp`], where it is worth its bytes.
    pub stamp: Option<Stamp>,
}

impl EntryMeta {
    /// All that an entry has.
    pub fn of(entry: &Entry) -> EntryMeta {
        EntryMeta { expire_at_ms: entry.expire_at_ms, sticky: entry.sticky, stamp: Some(entry.stamp) }
    }

    /// Writes them; a value follows.
    pub fn write(self, out: &mut Vec<u8>) {
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        out.push(
            flag(self.expire_at_ms.is_some(), EXPIRES)
                | flag(self.sticky, STICKY)
                | flag(self.stamp.is_some(), STAMPED),
        );
        if let Some(at) = self.expire_at_ms {
            put_number(at.get(), out);
        }
        if let Some(stamp) = self.stamp {
            out.extend_from_slice(&stamp.bits().to_le_bytes());
        }
    }
}

/// Reads [`EntryMeta`] and the value behind them.
pub fn read_entry(input: &mut Input<'_>) -> Result<Entry, Malformed> {
    let meta = input.byte()?;
    if meta & !(EXPIRES | STICKY | STAMPED) != 0 {
        return Err(Malformed);
    }
    let expire_at_ms = match meta & EXPIRES {
        0 => None,
        _ => Some(NonZeroU64::new(input.number()?).ok_or(Malformed)?),
    };
    let stamp = match meta & STAMPED {
        0 => Stamp::default(),
        _ => Stamp::from_bits(u32::from_le_bytes(input.take(4)?.try_into().map_err(|_| Malformed)?)),
    };
    Ok(Entry { value: codec::value(input)?, expire_at_ms, stamp, sticky: meta & STICKY != 0 })
}

/// The effects of one transaction, oldest first.
#[derive(Default, Debug)]
pub struct Effects {
    bytes: Vec<u8>,
    /// Where the newest key stands, and its database.
    last: Option<(usize, usize, usize)>,
}

/// Set in an effect's first byte if it is about the same key as the one before.
const SAME_KEY: u8 = 0x80;

impl Effects {
    /// Whether nothing was changed.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Effects that were kept as bytes.
    pub fn from_bytes(bytes: &[u8]) -> Effects {
        Effects { bytes: bytes.to_vec(), last: None }
    }

    /// The effects as bytes, for [`Effects::read`].
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The same, without a copy.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Forgets all; keeps the memory.
    pub fn clear(&mut self) {
        self.truncate(0);
    }

    /// How far it has come, for [`Effects::truncate`].
    pub fn mark(&self) -> usize {
        self.bytes.len()
    }

    /// Forgets what was added since `mark`.
    pub fn truncate(&mut self, mark: usize) {
        self.bytes.truncate(mark);
        self.last = None;
    }

    /// Adds that `key` now holds `entry`.
    pub fn put(&mut self, db: usize, key: &[u8], entry: &Entry) {
        self.put_with(db, key, |out| {
            EntryMeta { stamp: None, ..EntryMeta::of(entry) }.write(out);
            codec::put_value(&entry.value, out);
        });
    }

    /// Adds that `key` now holds this string.
    pub fn put_string(&mut self, db: usize, key: &[u8], bytes: &[u8], meta: EntryMeta) {
        self.put_with(db, key, |out| {
            meta.write(out);
            codec::put_string(bytes, out);
        });
    }

    fn put_with(&mut self, db: usize, key: &[u8], write: impl FnOnce(&mut Vec<u8>)) {
        self.begin(tag::PUT, db, key);
        // Room for the length, which is known afterwards.
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 8]);
        write(&mut self.bytes);
        let len = (self.bytes.len() - start - 8) as u64;
        self.bytes[start..start + 8].copy_from_slice(&len.to_le_bytes());
    }

    fn begin(&mut self, tag: u8, db: usize, key: &[u8]) {
        if let Some((last_db, from, to)) = self.last
            && last_db == db
            && self.bytes[from..to] == *key
        {
            self.bytes.push(tag | SAME_KEY);
            return;
        }
        self.bytes.push(tag);
        self.bytes.push(db as u8);
        put_bytes(key, &mut self.bytes);
        self.last = Some((db, self.bytes.len() - key.len(), self.bytes.len()));
    }

    /// Adds what became of `key`.
    pub fn push(&mut self, db: usize, key: &[u8], effect: Effect<'_>) {
        self.begin(effect.tag(), db, key);
        let out = &mut self.bytes;
        match effect {
            Effect::Remove | Effect::Flush => {}
            Effect::Put(Put(bytes)) => {
                out.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
                out.extend_from_slice(bytes);
            }
            Effect::Expired(now_ms) => put_number(now_ms, out),
            Effect::Rename(to_db, to) => {
                out.push(to_db as u8);
                put_bytes(to, out);
            }
            Effect::Expiry(at) => put_number(at.map_or(0, NonZeroU64::get), out),
            Effect::Sticky(sticky) => out.push(sticky.into()),
            Effect::Number(number) => put_number(number.cast_unsigned(), out),
            Effect::Write(at, bytes) | Effect::ListSet(at, bytes) | Effect::ListInsert(at, bytes) => {
                put_number(at as u64, out);
                put_bytes(bytes, out);
            }
            Effect::Push(front, bytes) => {
                out.push(front.into());
                put_bytes(bytes, out);
            }
            Effect::Pop(front, count) => {
                out.push(front.into());
                put_number(count as u64, out);
            }
            Effect::ListRemove(at) => put_number(at as u64, out),
            Effect::HashSet(field, value) => {
                put_bytes(field, out);
                put_bytes(value, out);
            }
            Effect::HashExpiry(field, at) => {
                put_bytes(field, out);
                put_number(at.map_or(0, NonZeroU64::get), out);
            }
            Effect::HashExpired(field, at) => {
                put_bytes(field, out);
                put_number(at, out);
            }
            Effect::ZSetAdd(member, score) => {
                put_bytes(member, out);
                out.extend_from_slice(&score.to_le_bytes());
            }
            Effect::Text(bytes)
            | Effect::Append(bytes)
            | Effect::HashRemove(bytes)
            | Effect::SetAdd(bytes)
            | Effect::SetRemove(bytes)
            | Effect::ZSetRemove(bytes)
            | Effect::StreamRemove(bytes)
            | Effect::Json(bytes) => put_bytes(bytes, out),
            Effect::StreamAdd(node, id, fields) => {
                put_id(node, out);
                put_id(id, out);
                put_bytes(fields.as_bytes(), out);
            }
            Effect::StreamDelete(node, id) => {
                put_id(node, out);
                put_id(id, out);
            }
            Effect::StreamPut(part, bytes) => {
                put_bytes(part, out);
                put_bytes(bytes, out);
            }
            Effect::Swap(other) => out.push(other as u8),
        }
    }

    /// The effects that `bytes` hold, with database and key.
    pub fn read(bytes: &[u8]) -> EffectReader<'_> {
        EffectReader { input: Input(bytes), key: None }
    }
}

/// First bytes of effects. They stand in files: never given a second meaning.
mod tag {
    pub const PUT: u8 = 1;
    pub const REMOVE: u8 = 2;
    pub const EXPIRED: u8 = 3;
    pub const RENAME: u8 = 4;
    pub const EXPIRY: u8 = 5;
    pub const TEXT: u8 = 6;
    pub const NUMBER: u8 = 7;
    pub const APPEND: u8 = 8;
    pub const WRITE: u8 = 9;
    pub const PUSH: u8 = 10;
    pub const POP: u8 = 11;
    pub const LIST_SET: u8 = 12;
    pub const LIST_INSERT: u8 = 13;
    pub const LIST_REMOVE: u8 = 14;
    pub const HASH_SET: u8 = 15;
    pub const HASH_REMOVE: u8 = 16;
    pub const SET_ADD: u8 = 17;
    pub const SET_REMOVE: u8 = 18;
    pub const ZSET_ADD: u8 = 19;
    pub const ZSET_REMOVE: u8 = 20;
    pub const FLUSH: u8 = 21;
    pub const SWAP: u8 = 22;
    pub const STICKY: u8 = 23;
    pub const STREAM_ADD: u8 = 24;
    pub const STREAM_DELETE: u8 = 25;
    pub const STREAM_PUT: u8 = 26;
    pub const STREAM_REMOVE: u8 = 27;
    pub const HASH_EXPIRY: u8 = 28;
    pub const HASH_EXPIRED: u8 = 29;
    pub const JSON: u8 = 30;
}

impl<'a> Effect<'a> {
    fn tag(self) -> u8 {
        match self {
            Effect::Put(_) => tag::PUT,
            Effect::Remove => tag::REMOVE,
            Effect::Expired(_) => tag::EXPIRED,
            Effect::Rename(..) => tag::RENAME,
            Effect::Expiry(_) => tag::EXPIRY,
            Effect::Sticky(_) => tag::STICKY,
            Effect::Text(_) => tag::TEXT,
            Effect::Number(_) => tag::NUMBER,
            Effect::Append(_) => tag::APPEND,
            Effect::Write(..) => tag::WRITE,
            Effect::Push(..) => tag::PUSH,
            Effect::Pop(..) => tag::POP,
            Effect::ListSet(..) => tag::LIST_SET,
            Effect::ListInsert(..) => tag::LIST_INSERT,
            Effect::ListRemove(_) => tag::LIST_REMOVE,
            Effect::HashSet(..) => tag::HASH_SET,
            Effect::HashRemove(_) => tag::HASH_REMOVE,
            Effect::HashExpiry(..) => tag::HASH_EXPIRY,
            Effect::HashExpired(..) => tag::HASH_EXPIRED,
            Effect::SetAdd(_) => tag::SET_ADD,
            Effect::SetRemove(_) => tag::SET_REMOVE,
            Effect::ZSetAdd(..) => tag::ZSET_ADD,
            Effect::ZSetRemove(_) => tag::ZSET_REMOVE,
            Effect::StreamAdd(..) => tag::STREAM_ADD,
            Effect::StreamDelete(..) => tag::STREAM_DELETE,
            Effect::StreamPut(..) => tag::STREAM_PUT,
            Effect::StreamRemove(_) => tag::STREAM_REMOVE,
            Effect::Json(_) => tag::JSON,
            Effect::Flush => tag::FLUSH,
            Effect::Swap(_) => tag::SWAP,
        }
    }

    fn read(tag: u8, input: &mut Input<'a>) -> Result<Effect<'a>, Malformed> {
        Ok(match tag {
            tag::PUT => {
                let len = input.take(8)?.try_into().map_err(|_| Malformed)?;
                let len = usize::try_from(u64::from_le_bytes(len)).map_err(|_| Malformed)?;
                Effect::Put(Put(input.take(len)?))
            }
            tag::REMOVE => Effect::Remove,
            tag::EXPIRED => Effect::Expired(input.number()?),
            tag::RENAME => Effect::Rename(database(input)?, input.bytes()?),
            tag::EXPIRY => Effect::Expiry(NonZeroU64::new(input.number()?)),
            tag::STICKY => Effect::Sticky(input.byte()? != 0),
            tag::TEXT => Effect::Text(input.bytes()?),
            tag::NUMBER => Effect::Number(input.number()?.cast_signed()),
            tag::APPEND => Effect::Append(input.bytes()?),
            tag::WRITE => Effect::Write(input.count()?, input.bytes()?),
            tag::PUSH => Effect::Push(input.byte()? != 0, input.bytes()?),
            tag::POP => Effect::Pop(input.byte()? != 0, input.count()?),
            tag::LIST_SET => Effect::ListSet(input.count()?, input.bytes()?),
            tag::LIST_INSERT => Effect::ListInsert(input.count()?, input.bytes()?),
            tag::LIST_REMOVE => Effect::ListRemove(input.count()?),
            tag::HASH_SET => Effect::HashSet(input.bytes()?, input.bytes()?),
            tag::HASH_REMOVE => Effect::HashRemove(input.bytes()?),
            tag::HASH_EXPIRY => Effect::HashExpiry(input.bytes()?, NonZeroU64::new(input.number()?)),
            tag::HASH_EXPIRED => Effect::HashExpired(input.bytes()?, input.number()?),
            tag::SET_ADD => Effect::SetAdd(input.bytes()?),
            tag::SET_REMOVE => Effect::SetRemove(input.bytes()?),
            tag::ZSET_ADD => Effect::ZSetAdd(input.bytes()?, input.score()?),
            tag::ZSET_REMOVE => Effect::ZSetRemove(input.bytes()?),
            tag::STREAM_ADD => {
                let (node, id, fields) = (read_id(input)?, read_id(input)?, Fields::encoded(input.bytes()?));
                fields.check()?;
                Effect::StreamAdd(node, id, fields)
            }
            tag::STREAM_DELETE => Effect::StreamDelete(read_id(input)?, read_id(input)?),
            tag::STREAM_PUT => Effect::StreamPut(input.bytes()?, input.bytes()?),
            tag::STREAM_REMOVE => Effect::StreamRemove(input.bytes()?),
            tag::JSON => Effect::Json(input.bytes()?),
            tag::FLUSH => Effect::Flush,
            tag::SWAP => Effect::Swap(database(input)?),
            _ => return Err(Malformed),
        })
    }
}

fn database(input: &mut Input<'_>) -> Result<usize, Malformed> {
    Some(usize::from(input.byte()?)).filter(|db| *db <= CATALOG).ok_or(Malformed)
}

/// Reads effects; ends after the first that is malformed.
pub struct EffectReader<'a> {
    input: Input<'a>,
    key: Option<(usize, &'a [u8])>,
}

impl<'a> Iterator for EffectReader<'a> {
    type Item = Result<(usize, &'a [u8], Effect<'a>), Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.input.is_empty() {
            return None;
        }
        let item = self.read();
        if item.is_err() {
            self.input = Input(&[]);
        }
        Some(item)
    }
}

impl<'a> EffectReader<'a> {
    fn read(&mut self) -> Result<(usize, &'a [u8], Effect<'a>), Malformed> {
        let first = self.input.byte()?;
        if first & SAME_KEY == 0 {
            self.key = Some((database(&mut self.input)?, self.input.bytes()?));
        }
        let (db, key) = self.key.ok_or(Malformed)?;
        Ok((db, key, Effect::read(first & !SAME_KEY, &mut self.input)?))
    }
}

impl Effect<'_> {
    /// Makes `key` what it became. An effect on something that is not there, or is of another type, does nothing:
    /// it is then followed by one that removes or replaces the key.
    ///
    /// The partitions must hold the key, and be all there are for [`Effect::Flush`] and [`Effect::Swap`]. What is
    /// no client's data is malformed here.
    pub fn apply(self, db: usize, key: &[u8], partitions: &mut Partitions<'_>) -> Result<(), Malformed> {
        match self {
            _ if db == CATALOG => return Err(Malformed),
            Effect::Swap(CATALOG) | Effect::Rename(CATALOG, _) => return Err(Malformed),
            Effect::Flush => {
                for at in 0..partitions.len() {
                    partitions.nth(at).databases[db].swap(&mut Keyspace::default());
                }
            }
            Effect::Swap(other) => partitions.swap_databases(db, other),
            Effect::Rename(to_db, to) => {
                if let Some(entry) = partitions.keyspace(db, key).remove(key) {
                    partitions.keyspace(to_db, to).insert(to, entry);
                }
            }
            Effect::Put(put) => drop(partitions.keyspace(db, key).insert(key, put.entry()?)),
            Effect::Remove => drop(partitions.keyspace(db, key).remove(key)),
            effect => return effect.change(partitions.keyspace(db, key), key),
        }
        Ok(())
    }

    fn change(self, space: &mut Keyspace, key: &[u8]) -> Result<(), Malformed> {
        // Time 0: what expires is told by effects of their own.
        let Some(at) = space.find(key, 0) else { return Ok(()) };
        match self {
            Effect::Expired(now_ms) if space.at(at).is_expired(now_ms) => drop(space.remove_at(at)),
            Effect::Expired(_) => {}
            Effect::Expiry(expiry) => drop(space.set_expiry(at, expiry)),
            Effect::Sticky(sticky) => drop(space.set_sticky(at, sticky)),
            effect => {
                let value = space.value_mut(at);
                let before = value.bytes();
                let mut done = Ok(());
                match effect {
                    Effect::HashSet(..)
                    | Effect::HashRemove(_)
                    | Effect::HashExpiry(..)
                    | Effect::HashExpired(..) => on(value, |hash| effect.change_hash(hash)),
                    Effect::SetAdd(_) | Effect::SetRemove(_) => on(value, |set| effect.change_set(set)),
                    Effect::ZSetAdd(..) | Effect::ZSetRemove(_) => on(value, |zset| effect.change_zset(zset)),
                    Effect::Text(_) | Effect::Number(_) | Effect::Append(_) | Effect::Write(..) => {
                        on(value, |text| effect.change_string(text));
                    }
                    Effect::StreamAdd(..)
                    | Effect::StreamDelete(..)
                    | Effect::StreamPut(..)
                    | Effect::StreamRemove(_) => on(value, |stream| done = effect.change_stream(stream)),
                    Effect::Json(edit) => on(value, |json| done = change_json(json, edit)),
                    _ => on(value, |list| effect.change_list(list)),
                }
                let after = space.at(at).value.bytes();
                space.resized(at, before, after);
                match effect {
                    Effect::HashExpiry(..) => space.note_expiry(at),
                    Effect::HashExpired(..) if space.at(at).value.is_empty_collection() => {
                        drop(space.remove_at(at));
                    }
                    _ => {}
                }
                return done;
            }
        }
        Ok(())
    }

    fn change_stream(self, stream: &mut Stream) -> Result<(), Malformed> {
        match self {
            Effect::StreamAdd(node, id, fields) => stream.append(node, id, fields),
            Effect::StreamDelete(node, id) => _ = stream.change_node(node, |held| held.mark(node, id)),
            Effect::StreamPut(part, bytes) => stream.put_part(Part::decoded(part)?, bytes)?,
            Effect::StreamRemove(part) => stream.remove_part(Part::decoded(part)?),
            _ => {}
        }
        Ok(())
    }

    fn change_hash(self, hash: &mut Hash) {
        match self {
            Effect::HashSet(field, value) => _ = hash.insert(field, value),
            Effect::HashRemove(field) => _ = hash.remove(field),
            Effect::HashExpiry(field, at) if hash.contains(field) => hash.set_expiry(field, at),
            Effect::HashExpired(field, at_ms) if hash.is_overdue(field, at_ms) => _ = hash.remove(field),
            _ => {}
        }
    }

    fn change_set(self, set: &mut Set) {
        let _ = match self {
            Effect::SetAdd(member) => set.insert(member),
            Effect::SetRemove(member) => set.remove(member),
            _ => false,
        };
    }

    fn change_zset(self, zset: &mut ZSet) {
        let _ = match self {
            Effect::ZSetAdd(member, score) => zset.insert(member, score),
            Effect::ZSetRemove(member) => zset.remove(member),
            _ => None,
        };
    }

    fn change_string(self, text: &mut Str) {
        match self {
            Effect::Text(bytes) => *text = Str::new(bytes),
            Effect::Number(number) => *text = Str::Int(number),
            Effect::Append(bytes) => text.raw_mut().extend_from_slice(bytes),
            Effect::Write(at, bytes) => {
                let (raw, end) = (text.raw_mut(), at.saturating_add(bytes.len()));
                // A gap was filled when this was recorded too; it cannot be longer than a string may be.
                if raw.len() < end && end <= Str::MAX_BYTES {
                    raw.resize(end, 0);
                }
                if let Some(place) = raw.get_mut(at..end) {
                    place.copy_from_slice(bytes);
                }
            }
            _ => {}
        }
    }

    fn change_list(self, list: &mut List) {
        let len = list.len();
        match self {
            Effect::Push(front, element) => list.push(front, element),
            Effect::Pop(front, count) => drop(list.trim(front, count.min(len))),
            Effect::ListSet(at, element) if at < len => drop(list.set(at, element)),
            Effect::ListInsert(at, element) if at <= len => list.insert(at, element),
            Effect::ListRemove(at) => drop(list.remove(at)),
            _ => {}
        }
    }
}

fn change_json(json: &mut Json, edit: &[u8]) -> Result<(), Malformed> {
    json.apply(Edit::decoded(edit)?);
    Ok(())
}

fn on<T: Kind>(value: &mut crate::Value, change: impl FnOnce(&mut T)) {
    if let Some(held) = T::of_mut(value) {
        change(held);
    }
}
