//! CLUSTER SLOT-STATS, as in Valkey 8 and Redis 8.2, with the one statistic that both always show.

use std::cmp::Reverse;
use std::ops::RangeInclusive;

use store::Store;
use store_engine::slot::{SLOTS, slot};
use store_engine::{Args, CommandError, Reply, error, number};

use super::keys::{each_key, slot_of};
use crate::session::Session;

/// Which slots are shown, and in which order.
#[derive(Debug, PartialEq)]
enum Wanted {
    Range(RangeInclusive<u16>),
    ByCount { limit: usize, ascending: bool },
}

impl Wanted {
    fn parse(args: Args<'_>) -> Result<Wanted, CommandError> {
        let mut cursor = args.cursor(2);
        if args.len() == 5 && cursor.flag("SLOTSRANGE") {
            let limit = |text: &[u8]| {
                let slot = number::parse_i64(text).and_then(slot_of);
                slot.ok_or(CommandError::new("ERR Invalid or out of range slot"))
            };
            let (start, end) = (limit(cursor.bytes()?)?, limit(cursor.bytes()?)?);
            if start > end {
                return Err(CommandError::owned(format!(
                    "ERR Start slot number {start} is greater than end slot number {end}"
                )));
            }
            return Ok(Wanted::Range(start..=end));
        }
        if !cursor.flag("ORDERBY") {
            return Err(CommandError::owned(format!(
                "ERR unknown subcommand or wrong number of arguments for '{}'. Try CLUSTER HELP.",
                String::from_utf8_lossy(args[1])
            )));
        }
        if !cursor.flag("KEY-COUNT") {
            return Err(CommandError::new("ERR Unrecognized sort metric for ORDERBY."));
        }
        let (mut limit, mut ascending) = (None, None);
        while !cursor.is_done() {
            let again = if cursor.remaining() > 1 && cursor.flag("LIMIT") {
                let count = number::parse_i64(cursor.bytes()?).and_then(|count| usize::try_from(count).ok());
                let count = count.filter(|count| (1..=usize::from(SLOTS)).contains(count));
                limit
                    .replace(count.ok_or(CommandError::new(
                        "ERR Limit has to lie in between 1 and 16384 (maximum number of slots).",
                    ))?)
                    .is_some()
            } else if cursor.flag("ASC") {
                ascending.replace(true).is_some()
            } else if cursor.flag("DESC") {
                ascending.replace(false).is_some()
            } else {
                return Err(error::SYNTAX);
            };
            if again {
                return Err(CommandError::new("ERR Provided multiple filters of the same type."));
            }
        }
        let limit = limit.unwrap_or(usize::from(SLOTS));
        Ok(Wanted::ByCount { limit, ascending: ascending.unwrap_or(false) })
    }

    /// The slots with their counts, in order.
    fn choose(self, counts: &[u64]) -> Vec<(u16, u64)> {
        let all = (0..SLOTS).zip(counts.iter().copied());
        match self {
            Wanted::Range(range) => all.filter(|(slot, _)| range.contains(slot)).collect(),
            Wanted::ByCount { limit, ascending } => {
                let mut slots: Vec<_> = all.collect();
                match ascending {
                    true => slots.sort_by_key(|(_, count)| *count),
                    false => slots.sort_by_key(|(_, count)| Reverse(*count)),
                }
                slots.truncate(limit);
                slots
            }
        }
    }
}

/// Counts the keys of all slots and shows those that are wanted.
pub async fn reply(
    store: &Store,
    session: &Session,
    args: Args<'_>,
    out: &mut Reply,
) -> Result<(), CommandError> {
    let wanted = Wanted::parse(args)?;
    let mut counts = vec![0; usize::from(SLOTS)];
    let count = |key: &[u8]| {
        counts[usize::from(slot(key))] += 1;
        true
    };
    each_key(store, session, count).await?;
    let chosen = wanted.choose(&counts);
    out.array(chosen.len());
    for (slot, count) in chosen {
        out.array(2);
        out.integer(slot.into());
        out.map(1);
        out.bulk(b"key-count");
        out.integer(count.cast_signed());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_chosen_and_ordered() {
        let mut counts = vec![0; usize::from(SLOTS)];
        (counts[5], counts[7], counts[9]) = (2, 3, 2);
        for (line, wanted) in [
            ("SLOTSRANGE 5 6", Ok(vec![(5, 2), (6, 0)])),
            ("SLOTSRANGE 6 5", Err("ERR Start slot number 6 is greater than end slot number 5")),
            ("SLOTSRANGE 5 16384", Err("ERR Invalid or out of range slot")),
            (
                "SLOTSRANGE 5",
                Err(
                    "ERR unknown subcommand or wrong number of arguments for 'slot-stats'. Try CLUSTER HELP.",
                ),
            ),
            ("ORDERBY key-count LIMIT 3", Ok(vec![(7, 3), (5, 2), (9, 2)])),
            ("ORDERBY KEY-COUNT ASC LIMIT 2", Ok(vec![(0, 0), (1, 0)])),
            (
                "ORDERBY key-count LIMIT 0",
                Err("ERR Limit has to lie in between 1 and 16384 (maximum number of slots)."),
            ),
            ("ORDERBY cpu-usec", Err("ERR Unrecognized sort metric for ORDERBY.")),
            ("ORDERBY key-count ASC DESC", Err("ERR Provided multiple filters of the same type.")),
            ("ORDERBY key-count LIMIT", Err("ERR syntax error")),
        ] {
            let line = format!("cluster slot-stats {line}");
            let items: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
            let chosen = Wanted::parse(Args::new(&items)).map(|wanted| wanted.choose(&counts));
            let chosen = chosen.map_err(|error| error.text().to_owned());
            assert_eq!(chosen, wanted.map_err(str::to_owned), "{line}");
        }
    }
}
