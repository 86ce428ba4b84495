//! Hashes that share the names of their fields with others, as Redis has them since 8.10. A file has the names once, as
//! templates with numbers; a payload of DUMP has them in itself.

use std::collections::HashMap;
use std::io::Read;

use super::codec::{Decoder, Fault};
use super::kind::{
    HASH_TEMPLATE_ARRAY, HASH_TEMPLATE_ARRAY_REF, HASH_TEMPLATE_LISTPACK, HASH_TEMPLATE_LISTPACK_REF,
};
use super::packed::{self, Damage, ODD, TWICE};
use crate::size::allocated;
use crate::value::Hash;
use crate::{Work, number};

/// Marks a template in a file.
pub const TEMPLATE: u8 = 242;

/// Names of fields in a listpack.
const PACKED: u64 = 0;
/// Names of fields as strings.
const PLAIN: u64 = 1;

const UNKNOWN: Damage = "a hash has the fields of an unknown template";

/// The templates of a file.
#[derive(Default)]
pub struct Templates(HashMap<u64, Vec<Vec<u8>>>);

impl Templates {
    /// Reads a template, behind its mark.
    pub fn add<R: Read>(&mut self, from: &mut Decoder<R>) -> Result<(), Fault> {
        let number = from.length()?;
        let fields = plain_names(from, &Work::unlimited())?;
        match self.0.insert(number, fields) {
            None => Ok(()),
            Some(_) => Err(from.damage("two templates of hashes have the same number")),
        }
    }
}

/// Texts that are kept one by one while a hash is read.
#[derive(Default)]
struct Texts {
    all: Vec<Vec<u8>>,
    /// What they take in memory.
    bytes: usize,
}

impl Texts {
    /// Adds a text, and says whether to go on.
    fn push(&mut self, text: Vec<u8>, work: &Work) -> bool {
        let len = text.len();
        self.bytes += size_of::<Vec<u8>>() + allocated(text.capacity());
        self.all.push(text);
        work.add_element(len, self.bytes)
    }
}

fn plain_names<R: Read>(from: &mut Decoder<R>, work: &Work) -> Result<Vec<Vec<u8>>, Fault> {
    let mut names = Texts::default();
    for _ in 0..from.length()? {
        if !names.push(from.owned()?, work) {
            break;
        }
    }
    Ok(names.all)
}

fn own_names<R: Read>(from: &mut Decoder<R>, work: &Work) -> Result<Vec<Vec<u8>>, Fault> {
    match from.length()? {
        PACKED => unpacked(from, work),
        PLAIN => plain_names(from, work),
        _ => Err(from.damage("names of fields of unknown form")),
    }
}

fn unpacked<R: Read>(from: &mut Decoder<R>, work: &Work) -> Result<Vec<Vec<u8>>, Fault> {
    let (packed, mut texts) = (from.owned()?, Texts::default());
    for element in packed::listpack(&packed).map_err(|damage| from.damage(damage))? {
        let text = element.map_err(|damage| from.damage(damage))?.into_owned();
        if !texts.push(text, work) {
            break;
        }
    }
    Ok(texts.all)
}

/// Reads a hash of one of the four kinds, only a part of it if `work` ends.
pub fn read<R: Read>(
    kind: u8,
    templates: &Templates,
    from: &mut Decoder<R>,
    work: &Work,
) -> Result<Hash, Fault> {
    let own = match kind {
        HASH_TEMPLATE_LISTPACK | HASH_TEMPLATE_ARRAY => Some(own_names(from, work)?),
        _ => None,
    };
    let known = |number: Option<u64>| number.and_then(|number| templates.0.get(&number));
    let mut hash = Hash::default();
    match kind {
        HASH_TEMPLATE_LISTPACK | HASH_TEMPLATE_LISTPACK_REF => {
            // Before the values is the number of the template, also where that means nothing.
            let elements = unpacked(from, work)?;
            let Some((number, values)) = elements.split_first() else {
                return Err(from.damage(UNKNOWN));
            };
            let number = number::parse_i64(number).and_then(|number| u64::try_from(number).ok());
            let names = own.as_ref().or_else(|| known(number)).ok_or_else(|| from.damage(UNKNOWN))?;
            if names.len() != values.len() {
                return Err(from.damage(ODD));
            }
            for (name, value) in names.iter().zip(values) {
                add(&mut hash, name, value, from)?;
                if !work.add_element(name.len() + value.len(), hash.bytes()) {
                    break;
                }
            }
        }
        HASH_TEMPLATE_ARRAY | HASH_TEMPLATE_ARRAY_REF => {
            let number = match own {
                Some(_) => None,
                None => Some(from.length()?),
            };
            let names = own.as_ref().or_else(|| known(number)).ok_or_else(|| from.damage(UNKNOWN))?;
            let mut value = Vec::new();
            for name in names {
                from.string(&mut value)?;
                add(&mut hash, name, &value, from)?;
                if !work.add_element(name.len() + value.len(), hash.bytes()) {
                    break;
                }
            }
        }
        _ => unreachable!("the caller has named all kinds with templates"),
    }
    Ok(hash)
}

fn add<R: Read>(hash: &mut Hash, name: &[u8], value: &[u8], from: &Decoder<R>) -> Result<(), Fault> {
    if hash.insert(name, value) { Ok(()) } else { Err(from.damage(TWICE)) }
}
