//! JSON documents as RedisJSON and valkey-json write them: a value of a module with one string.

use std::io::{self, Read, Write};

use super::codec::{Cause, Decoder, Fault, write_length, write_string};
use super::module;
use crate::Work;
use crate::value::Json;
use crate::value::json::{parse, printed};

/// The name of their type.
pub const TYPE_NAME: &str = "ReJSON-RL";
/// The ID of the type in the version that is written: of RedisJSON since 2.0.
pub const ID: u64 = 0x45e2_5238_df91_2c03;
/// The version is in the last bits of the ID.
const VERSION: u64 = 0x3ff;
/// Before the data of a module: a string, and the end.
const STRING: u64 = 5;
const END: u64 = 0;

/// Writes a document, without the kind.
pub fn write(json: &Json, out: &mut impl Write) -> io::Result<()> {
    write_length(out, ID)?;
    write_length(out, STRING)?;
    write_string(out, printed(json.root()).as_bytes())?;
    write_length(out, END)
}

/// Reads a document behind the ID of its type. What version 2 has behind the string is of RediSearch.
pub fn read<R: Read>(id: u64, from: &mut Decoder<R>, work: &Work) -> Result<Json, Fault> {
    match id & VERSION {
        2 | 3 => {}
        version => return Err(from.foreign(format!("JSON documents of encoding version {version}"))),
    }
    if from.length()? != STRING {
        return Err(from.damage("a JSON document has no text"));
    }
    let text = from.owned()?;
    let root = parse(&text, work).map_err(|error| match error.text().contains("recursion limit") {
        true => from.foreign("JSON documents with more than 128 arrays and objects in each other"),
        false => Fault { offset: from.offset(), cause: Cause::Damage("a JSON document is malformed") },
    })?;
    module::skip_value(from)?;
    Ok(Json::new(root))
}
