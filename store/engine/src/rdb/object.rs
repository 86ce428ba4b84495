//! Values: each type is written in the form that Redis 7.0 chooses for its size, and read in every form that Redis
//! has written.

use std::io::{self, Read, Write};
use std::num::NonZeroU64;

use super::codec::{Decoder, Fault, write_length, write_string};
use super::json;
use super::kind::*;
use super::module;
use super::packed::{self, Damage, Element, Listpack, ODD, TWICE};
use super::stream;
use super::template::{self, Templates};
use super::version::Dialect;
use crate::value::{Hash, List, Set, Str, ZSet};
use crate::{Value, Work, number};

/// Lists of more bytes are written element by element; Redis would begin a second listpack.
const MOST_IN_ONE: usize = 8192;

/// How an element of a quicklist is kept: by itself.
const PLAIN: u64 = 1;
/// How elements of a quicklist are kept: in a listpack.
const PACKED: u64 = 2;

/// How a value is written.
pub struct Encoding<'a> {
    /// The byte that tells it.
    pub kind: u8,
    value: &'a Value,
    /// A small collection in one string.
    packed: Option<Vec<u8>>,
}

impl<'a> Encoding<'a> {
    /// The one that Redis 7.0 would choose with its default thresholds; of a hash whose fields expire, that of `reader`.
    pub fn of(value: &'a Value, reader: Dialect) -> Encoding<'a> {
        let small = matches!(value.encoding(), "listpack" | "intset");
        let (kind, packed) = match value {
            Value::String(_) => (STRING, None),
            Value::List(list) => match pack_list(list) {
                Some(packed) => (LIST_QUICKLIST_2, Some(packed)),
                None => (LIST, None),
            },
            Value::Hash(hash) if hash.is_expiring() => match reader {
                Dialect::Redis => (HASH_METADATA, None),
                Dialect::Valkey => (HASH_2, None),
            },
            Value::Hash(hash) if small => (HASH_LISTPACK, Some(pack_hash(hash))),
            Value::Hash(_) => (HASH, None),
            Value::Set(set) if small => (SET_INTSET, Some(pack_set(set))),
            Value::Set(_) => (SET, None),
            Value::ZSet(zset) if small => (ZSET_LISTPACK, Some(pack_zset(zset))),
            Value::ZSet(_) => (ZSET_2, None),
            Value::Stream(_) => (STREAM_LISTPACKS_2, None),
            Value::Json(_) => (MODULE_2, None),
        };
        Encoding { kind, value, packed }
    }

    /// Writes the value, without the kind.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        if let Some(packed) = &self.packed {
            if self.kind == LIST_QUICKLIST_2 {
                write_length(out, 1)?;
                write_length(out, PACKED)?;
            }
            return write_string(out, packed);
        }
        match self.value {
            Value::String(text) => write_string(out, &text.as_bytes()),
            Value::List(list) => {
                write_length(out, list.len() as u64)?;
                list.iter_from(0).try_for_each(|element| write_string(out, element))
            }
            Value::Hash(hash) if self.kind == HASH_METADATA => write_with_first(hash, out),
            Value::Hash(hash) if self.kind == HASH_2 => {
                write_length(out, hash.len() as u64)?;
                hash.iter().try_for_each(|(field, value)| {
                    write_string(out, field)?;
                    write_string(out, value)?;
                    let at = hash.expiry(field).map_or(NEVER, |at| at.get().cast_signed());
                    out.write_all(&at.to_le_bytes())
                })
            }
            Value::Hash(hash) => {
                write_length(out, hash.len() as u64)?;
                hash.iter().try_for_each(|(field, value)| {
                    write_string(out, field)?;
                    write_string(out, value)
                })
            }
            Value::Set(set) => {
                write_length(out, set.len() as u64)?;
                set.iter().try_for_each(|member| write_string(out, &member))
            }
            Value::ZSet(zset) => {
                write_length(out, zset.len() as u64)?;
                // From the greatest to the smallest, as Redis: every member it reads is then put in front.
                zset.rev_iter_from(zset.len() - 1).try_for_each(|(member, score)| {
                    write_string(out, member)?;
                    out.write_all(&score.to_le_bytes())
                })
            }
            Value::Stream(held) => stream::write(held, out),
            Value::Json(held) => json::write(held, out),
        }
    }
}

/// As Redis 7.4: the first of the times, then each as how much later it is, plus one, or 0.
fn write_with_first(hash: &Hash, out: &mut impl Write) -> io::Result<()> {
    let first = hash.iter().filter_map(|(field, _)| hash.expiry(field)).min();
    let first = first.map_or(0, NonZeroU64::get);
    out.write_all(&first.to_le_bytes())?;
    write_length(out, hash.len() as u64)?;
    hash.iter().try_for_each(|(field, value)| {
        write_length(out, hash.expiry(field).map_or(0, |at| at.get() - first + 1))?;
        write_string(out, field)?;
        write_string(out, value)
    })
}

fn pack_list(list: &List) -> Option<Vec<u8>> {
    let mut pack = Listpack::new();
    for element in list.iter_from(0) {
        // As Redis, which takes 8 bytes for what an element costs beside its own.
        if pack.len() + element.len() + 8 > MOST_IN_ONE {
            return None;
        }
        pack.push(element);
    }
    Some(pack.finish())
}

fn pack_hash(hash: &Hash) -> Vec<u8> {
    let mut pack = Listpack::new();
    for (field, value) in hash.iter() {
        pack.push(field);
        pack.push(value);
    }
    pack.finish()
}

fn pack_set(set: &Set) -> Vec<u8> {
    let mut numbers: Vec<i64> = set.iter().filter_map(|member| Str::integer_of(&member)).collect();
    numbers.sort_unstable();
    packed::write_intset(&numbers)
}

fn pack_zset(zset: &ZSet) -> Vec<u8> {
    let (mut pack, mut spelled) = (Listpack::new(), Vec::new());
    for (member, score) in zset.iter_from(0) {
        pack.push(member);
        spelled.clear();
        number::push_f64(&mut spelled, score);
        pack.push(&spelled);
    }
    pack.finish()
}

const SCORE: Damage = "a score is no number";
const TIME: Damage = "a field expires at no time";
const UNKNOWN: Damage = "a value of unknown type";

/// The time of a field that does not expire, in Valkey.
const NEVER: i64 = -1;

/// Reads a value of this kind, only a part of it if `work` ends. `None`: a collection without elements, which no server
/// should have written.
pub fn read<R: Read>(
    kind: u8,
    dialect: Dialect,
    templates: &Templates,
    from: &mut Decoder<R>,
    work: &Work,
) -> Result<Option<Value>, Fault> {
    let value = match kind {
        STRING => {
            let text = from.owned()?;
            work.step_bytes(text.len());
            Value::String(Str::from_vec(text))
        }
        LIST => read_list(from, work)?,
        SET => read_set(from, work)?,
        ZSET | ZSET_2 => read_zset(from, kind, work)?,
        HASH => read_hash(from, work)?,
        LIST_QUICKLIST | LIST_QUICKLIST_2 => read_quicklist(from, kind, work)?,
        HASH_ZIPMAP | LIST_ZIPLIST | SET_INTSET | ZSET_ZIPLIST | HASH_ZIPLIST | HASH_LISTPACK
        | ZSET_LISTPACK | SET_LISTPACK => {
            let packed = from.owned()?;
            read_packed(kind, &packed, work).map_err(|damage| from.damage(damage))?
        }
        STREAM_LISTPACKS | STREAM_LISTPACKS_2 | STREAM_LISTPACKS_3 => {
            Value::Stream(stream::read(kind, from, work)?)
        }
        MODULE => return Err(from.foreign("values of modules of a Redis before its release")),
        MODULE_2 => {
            let id = from.length()?;
            match module::type_name(id) {
                name if name == json::TYPE_NAME => Value::Json(json::read(id, from, work)?),
                name => return Err(from.foreign(format!("values of the module type {name}"))),
            }
        }
        FIRST_OF_ONE.. => match dialect {
            Dialect::Redis => read_of_redis(kind, templates, from, work)?,
            Dialect::Valkey => read_of_valkey(kind, from, work)?,
        },
        _ => return Err(from.damage(UNKNOWN)),
    };
    Ok(Some(value).filter(|value| !value.is_empty_collection()))
}

fn read_of_redis<R: Read>(
    kind: u8,
    templates: &Templates,
    from: &mut Decoder<R>,
    work: &Work,
) -> Result<Value, Fault> {
    Ok(match kind {
        HASH_METADATA => read_with_first(from, work)?,
        HASH_LISTPACK_EX => {
            let (_first, packed) = (from.bytes::<8>()?, from.owned()?);
            let hash = packed::listpack(&packed).and_then(|elements| expiring_hash_of(elements, work));
            hash.map_err(|damage| from.damage(damage))?
        }
        HASH_METADATA_PRE_GA | HASH_LISTPACK_EX_PRE_GA => {
            return Err(from.foreign("hashes of a Redis before its release"));
        }
        STREAM_LISTPACKS_4 | STREAM_LISTPACKS_5 => Value::Stream(stream::read(kind, from, work)?),
        HASH_TEMPLATE_LISTPACK
        | HASH_TEMPLATE_LISTPACK_REF
        | HASH_TEMPLATE_ARRAY
        | HASH_TEMPLATE_ARRAY_REF => Value::Hash(template::read(kind, templates, from, work)?),
        ARRAY => return Err(from.foreign("arrays of Redis 8.8")),
        GCRA => return Err(from.foreign("rate limiters (GCRA)")),
        _ => return Err(from.damage(UNKNOWN)),
    })
}

fn read_of_valkey<R: Read>(kind: u8, from: &mut Decoder<R>, work: &Work) -> Result<Value, Fault> {
    match kind {
        HASH_2 => read_hash_2(from, work),
        PATH_HASH => Err(from.foreign("path hashes of Valkey 9.2")),
        _ => Err(from.damage(UNKNOWN)),
    }
}

fn read_list<R: Read>(from: &mut Decoder<R>, work: &Work) -> Result<Value, Fault> {
    let (mut list, mut element) = (List::default(), Vec::new());
    for _ in 0..from.length()? {
        from.string(&mut element)?;
        list.push(false, &element);
        if !work.add_element(element.len(), list.bytes()) {
            break;
        }
    }
    Ok(Value::List(list))
}

fn read_set<R: Read>(from: &mut Decoder<R>, work: &Work) -> Result<Value, Fault> {
    let (mut set, mut member) = (Set::default(), Vec::new());
    for _ in 0..from.length()? {
        from.string(&mut member)?;
        if !set.insert(&member) {
            return Err(from.damage(TWICE));
        }
        if !work.add_element(member.len(), set.bytes()) {
            break;
        }
    }
    Ok(Value::Set(set))
}

fn read_hash<R: Read>(from: &mut Decoder<R>, work: &Work) -> Result<Value, Fault> {
    let (mut hash, mut field, mut value) = (Hash::default(), Vec::new(), Vec::new());
    for _ in 0..from.length()? {
        from.string(&mut field)?;
        from.string(&mut value)?;
        if !hash.insert(&field, &value) {
            return Err(from.damage(TWICE));
        }
        if !work.add_element(field.len() + value.len(), hash.bytes()) {
            break;
        }
    }
    Ok(Value::Hash(hash))
}

/// Adds a field that comes for the first time, with the time at which it expires; 0: it stays.
fn add_field(hash: &mut Hash, field: &[u8], value: &[u8], at: u64) -> Result<(), Damage> {
    if !hash.insert(field, value) {
        return Err(TWICE);
    }
    if at > i64::MAX as u64 {
        return Err(TIME);
    }
    if let Some(at) = NonZeroU64::new(at) {
        hash.set_expiry(field, Some(at));
    }
    Ok(())
}

fn read_hash_2<R: Read>(from: &mut Decoder<R>, work: &Work) -> Result<Value, Fault> {
    let (mut hash, mut field, mut value) = (Hash::default(), Vec::new(), Vec::new());
    for _ in 0..from.length()? {
        from.string(&mut field)?;
        from.string(&mut value)?;
        let at = match i64::from_le_bytes(from.bytes()?) {
            NEVER => 0,
            // A time that is over for ever is over as the first millisecond of all is.
            at => at.max(1).cast_unsigned(),
        };
        add_field(&mut hash, &field, &value, at).map_err(|damage| from.damage(damage))?;
        if !work.add_element(field.len() + value.len(), hash.bytes()) {
            break;
        }
    }
    Ok(Value::Hash(hash))
}

fn read_with_first<R: Read>(from: &mut Decoder<R>, work: &Work) -> Result<Value, Fault> {
    let (mut hash, mut field, mut value) = (Hash::default(), Vec::new(), Vec::new());
    let first = u64::from_le_bytes(from.bytes()?);
    for _ in 0..from.length()? {
        let later = from.length()?;
        from.string(&mut field)?;
        from.string(&mut value)?;
        let at = match later {
            0 => Some(0),
            later => first.checked_add(later - 1),
        };
        let added = at.ok_or(TIME).and_then(|at| add_field(&mut hash, &field, &value, at));
        added.map_err(|damage| from.damage(damage))?;
        if !work.add_element(field.len() + value.len(), hash.bytes()) {
            break;
        }
    }
    Ok(Value::Hash(hash))
}

fn read_zset<R: Read>(from: &mut Decoder<R>, kind: u8, work: &Work) -> Result<Value, Fault> {
    let (mut zset, mut member) = (ZSet::new(), Vec::new());
    for _ in 0..from.length()? {
        from.string(&mut member)?;
        let score = if kind == ZSET_2 { f64::from_le_bytes(from.bytes()?) } else { spelled_score(from)? };
        add(&mut zset, &member, score).map_err(|damage| from.damage(damage))?;
        if !work.add_element(member.len(), zset.bytes()) {
            break;
        }
    }
    Ok(Value::ZSet(zset))
}

fn add(zset: &mut ZSet, member: &[u8], score: f64) -> Result<(), Damage> {
    if score.is_nan() {
        return Err(SCORE);
    }
    if zset.insert(member, score).is_some() { Err(TWICE) } else { Ok(()) }
}

/// A score as Redis wrote it before 4.0.
fn spelled_score<R: Read>(from: &mut Decoder<R>) -> Result<f64, Fault> {
    match from.byte()? {
        255 => Ok(f64::NEG_INFINITY),
        254 => Ok(f64::INFINITY),
        253 => Ok(f64::NAN),
        len => {
            let mut text = Vec::new();
            from.take(len.into(), &mut text)?;
            score_of(&text).map_err(|damage| from.damage(damage))
        }
    }
}

fn score_of(text: &[u8]) -> Result<f64, Damage> {
    let (score, read) = number::strtod(text);
    if read == text.len() && read > 0 { Ok(score) } else { Err(SCORE) }
}

fn read_quicklist<R: Read>(from: &mut Decoder<R>, kind: u8, work: &Work) -> Result<Value, Fault> {
    let (mut list, mut node) = (List::default(), Vec::new());
    for _ in 0..from.length()? {
        let container = if kind == LIST_QUICKLIST { PACKED } else { from.length()? };
        from.string(&mut node)?;
        let done = match container {
            _ if node.is_empty() => Err("a part of a list is empty"),
            PLAIN => {
                list.push(false, &node);
                Ok(())
            }
            PACKED if kind == LIST_QUICKLIST => {
                packed::ziplist(&node).and_then(|elements| extend(&mut list, elements, work))
            }
            PACKED => packed::listpack(&node).and_then(|elements| extend(&mut list, elements, work)),
            _ => Err("a part of a list of unknown form"),
        };
        done.map_err(|damage| from.damage(damage))?;
        if !work.add_element(node.len(), list.bytes()) {
            break;
        }
    }
    Ok(Value::List(list))
}

fn read_packed(kind: u8, bytes: &[u8], work: &Work) -> Result<Value, Damage> {
    match kind {
        LIST_ZIPLIST => {
            let mut list = List::default();
            extend(&mut list, packed::ziplist(bytes)?, work)?;
            Ok(Value::List(list))
        }
        SET_INTSET => set_of(packed::intset(bytes)?.map(|number| number.map(packed::spelled)), work),
        SET_LISTPACK => set_of(packed::listpack(bytes)?, work),
        HASH_ZIPMAP => hash_of(packed::zipmap(bytes)?, work),
        HASH_ZIPLIST => hash_of(packed::ziplist(bytes)?, work),
        HASH_LISTPACK => hash_of(packed::listpack(bytes)?, work),
        ZSET_ZIPLIST => zset_of(packed::ziplist(bytes)?, work),
        ZSET_LISTPACK => zset_of(packed::listpack(bytes)?, work),
        _ => unreachable!("the caller has named all that is packed"),
    }
}

fn extend<'a>(
    list: &mut List,
    elements: impl Iterator<Item = Element<'a>>,
    work: &Work,
) -> Result<(), Damage> {
    for element in elements {
        let element = element?;
        list.push(false, &element);
        if !work.add_element(element.len(), list.bytes()) {
            break;
        }
    }
    Ok(())
}

fn set_of<'a>(elements: impl Iterator<Item = Element<'a>>, work: &Work) -> Result<Value, Damage> {
    let mut set = Set::default();
    for member in elements {
        let member = member?;
        if !set.insert(&member) {
            return Err(TWICE);
        }
        if !work.add_element(member.len(), set.bytes()) {
            break;
        }
    }
    Ok(Value::Set(set))
}

fn hash_of<'a>(mut elements: impl Iterator<Item = Element<'a>>, work: &Work) -> Result<Value, Damage> {
    let mut hash = Hash::default();
    while let Some(field) = elements.next() {
        let (field, value) = (field?, elements.next().ok_or(ODD)??);
        if !hash.insert(&field, &value) {
            return Err(TWICE);
        }
        if !work.add_element(field.len() + value.len(), hash.bytes()) {
            break;
        }
    }
    Ok(Value::Hash(hash))
}

/// Field, value and time in turn.
fn expiring_hash_of<'a>(
    mut elements: impl Iterator<Item = Element<'a>>,
    work: &Work,
) -> Result<Value, Damage> {
    let mut hash = Hash::default();
    while let Some(field) = elements.next() {
        let (field, value) = (field?, elements.next().ok_or(ODD)??);
        let at = number::parse_i64(&elements.next().ok_or(ODD)??).ok_or(TIME)?;
        add_field(&mut hash, &field, &value, u64::try_from(at).map_err(|_| TIME)?)?;
        if !work.add_element(field.len() + value.len(), hash.bytes()) {
            break;
        }
    }
    Ok(Value::Hash(hash))
}

fn zset_of<'a>(mut elements: impl Iterator<Item = Element<'a>>, work: &Work) -> Result<Value, Damage> {
    let mut zset = ZSet::new();
    while let Some(member) = elements.next() {
        let (member, score) = (member?, elements.next().ok_or(ODD)??);
        add(&mut zset, &member, score_of(&score)?)?;
        if !work.add_element(member.len(), zset.bytes()) {
            break;
        }
    }
    Ok(Value::ZSet(zset))
}
