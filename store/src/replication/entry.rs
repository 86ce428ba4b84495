//! Records of a journal as an entry of the replicated log.

use bytes::Bytes;
use store_engine::codec::{Input, Malformed, put_bytes, put_number};

use crate::journal::{Drained, Record};

/// The only encoding there is.
const VERSION: u8 = 1;

/// An entry as it was read.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// Number of the first record.
    pub first: u64,
    /// How many records there are; at least one.
    pub count: u64,
    records: Input<'a>,
}

/// The entry of these records, in pieces: large records are shared, as a copy takes long.
pub fn encode(drained: &Drained) -> Vec<Bytes> {
    let (mut count, mut bytes) = (0, 32);
    for record in drained.records() {
        count += 1;
        bytes += 10 + if let Record::Small(record) = record { record.len() } else { 0 };
    }
    let (mut pieces, mut piece) = (Vec::new(), Vec::with_capacity(bytes));
    piece.push(VERSION);
    put_number(drained.newest + 1 - count, &mut piece);
    put_number(count, &mut piece);
    for record in drained.records() {
        match record {
            Record::Small(record) => put_bytes(record, &mut piece),
            Record::Large(record) => {
                put_number(record.len() as u64, &mut piece);
                pieces.extend([std::mem::take(&mut piece).into(), record.clone()]);
            }
        }
    }
    if !piece.is_empty() {
        pieces.push(piece.into());
    }
    pieces
}

/// Reads an entry; none for one of the consensus itself, which is empty.
pub fn decode(data: &Bytes) -> Result<Option<Entry<'_>>, Malformed> {
    let mut input = Input(data);
    if input.is_empty() {
        return Ok(None);
    }
    if input.byte()? != VERSION {
        return Err(Malformed);
    }
    let (first, count) = (input.number()?, input.number()?);
    if first == 0 || count == 0 || first.checked_add(count).is_none() {
        return Err(Malformed);
    }
    Ok(Some(Entry { first, count, records: input }))
}

impl<'a> Entry<'a> {
    /// Number of the last record.
    pub fn last(&self) -> u64 {
        self.first + (self.count - 1)
    }

    /// The records with their numbers. An error: there are fewer than the entry says.
    pub fn records(&self) -> impl Iterator<Item = Result<(u64, &'a [u8]), Malformed>> + use<'a> {
        let (mut input, numbers) = (self.records, self.first..=self.last());
        numbers.map(move |number| input.bytes().map(|record| (number, record)))
    }
}

#[cfg(test)]
mod tests {
    use store_engine::Effects;
    use store_engine::effect::Effect;

    use super::*;
    use crate::journal::{Durability, Journal};

    #[test]
    fn records_come_back_with_their_numbers() {
        let journal = Journal::new(Durability::Sync, 6, None);
        for key in [&b"a"[..], b"b"] {
            let mut effects = Effects::default();
            effects.push(0, key, Effect::Remove);
            journal.append(&mut effects);
        }
        let drained = journal.drain(&mut Vec::new());
        let data = Bytes::from(encode(&drained[0]).concat());
        let entry = decode(&data).expect("it is whole").expect("it has records");
        assert_eq!((entry.first, entry.last()), (7, 8));
        let records: Vec<_> = entry.records().map(|record| record.expect("it is whole").0).collect();
        assert_eq!(records, [7, 8]);
        assert!(decode(&Bytes::new()).is_ok_and(|entry| entry.is_none()));
        assert!(decode(&Bytes::from_static(b"\x02\x01\x01")).is_err(), "another version");
        assert!(decode(&Bytes::from_static(b"\x01\x01\x00")).is_err(), "no records");
        let short = data.slice(..data.len() - 1);
        let entry = decode(&short).expect("its head is whole").expect("it has records");
        assert_eq!(entry.records().last(), Some(Err(Malformed)));
    }
}
