//! XDELEX and XACKDEL: entries removed with a view to what groups still want of them. As in Redis 8.2.

use super::WRITES;
use super::ids::ids_of;
use super::references::References;
use crate::cost::Cost;
use crate::edit::Editor;
use crate::error::{self, CommandError};
use crate::spec::{Arity, Command, flags};
use crate::value::Stream;
use crate::value::stream::Id;
use crate::{Args, Ctx, Reply, number};

/// The rows of this chapter.
pub static COMMANDS: &[Command] = &[
    Command {
        name: "xackdel",
        since: "8.2.0",
        arity: Arity::AtLeast(6),
        flags: flags::FAST,
        summary: "Acknowledges entries of a group, and removes them from the stream.",
        complexity: "O(1) for each entry ID processed.",
        syntax: "key group condition(KEEPREF | DELREF | ACKED)? IDS=ids(numids:int id...)",
        cost: Cost::Constant,
        run: acknowledge_and_delete,
        ..WRITES
    },
    Command {
        name: "xdelex",
        since: "8.2.0",
        arity: Arity::AtLeast(5),
        flags: flags::FAST,
        summary: "Removes entries, with their references in groups or only if there are none.",
        complexity: "O(1) for each entry, whatever the size of the stream.",
        syntax: "key condition(KEEPREF | DELREF | ACKED)? IDS=ids(numids:int id...)",
        cost: Cost::Constant,
        run: delete,
        ..WRITES
    },
];

/// What is reported of an ID: there is nothing to do,
const MISSING: i64 = -1;
/// it was done,
const DONE: i64 = 1;
/// or the entry stays, since a group still wants it.
const STAYS: i64 = 2;

/// The words behind the keys and groups.
fn parse(args: Args<'_>, first: usize) -> Result<(References, Vec<Id>), CommandError> {
    let (mut references, mut ids) = (None, None);
    let mut cursor = args.cursor(first);
    while !cursor.is_done() {
        if let Some(next) = References::next(&mut cursor) {
            if references.replace(next).is_some() {
                return Err(error::SYNTAX);
            }
        } else if cursor.remaining() > 1 && cursor.flag("IDS") {
            let count = number::parse_i64(cursor.bytes()?).and_then(|count| usize::try_from(count).ok());
            let count = count.filter(|count| *count > 0);
            let count = count.ok_or(CommandError::new("ERR Number of IDs must be a positive integer"))?;
            let texts = cursor.take(count).map_err(|_| {
                CommandError::new("ERR The `numids` parameter must match the number of arguments")
            })?;
            ids = Some(texts);
        } else {
            return Err(error::SYNTAX);
        }
    }
    let ids = ids.ok_or(error::SYNTAX)?;
    Ok((references.unwrap_or_default(), ids_of(ids)?))
}

/// Removes entries from a stream, and notes at the end that it has.
struct Removal<'s, 'a> {
    stream: &'s mut Editor<'a, Stream>,
    references: References,
    highest: Option<Id>,
}

impl Removal<'_, '_> {
    /// Removes an entry, unless it has to stay.
    fn remove(&mut self, id: Id) -> i64 {
        if self.references.forbid(self.stream, id) {
            return STAYS;
        }
        self.references.release(self.stream, id);
        if self.stream.get(id).is_none() {
            return MISSING;
        }
        self.stream.delete(id);
        self.highest = self.highest.max(Some(id));
        DONE
    }

    fn finish(self) {
        let Some(highest) = self.highest else { return };
        let mut meta = self.stream.meta();
        meta.max_deleted_id = meta.max_deleted_id.max(highest);
        self.stream.set_meta(meta);
        self.stream.note_event("xdel");
    }
}

fn write(out: &mut Reply, reports: &[i64]) {
    out.array(reports.len());
    reports.iter().for_each(|report| out.integer(*report));
}

fn delete(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    let (references, ids) = parse(args, 2)?;
    let mut reports = vec![MISSING; ids.len()];
    if let Some(mut stream) = ctx.edit(args[1]).existing::<Stream>()? {
        let mut removal = Removal { stream: &mut stream, references, highest: None };
        reports = ids.into_iter().map(|id| removal.remove(id)).collect();
        removal.finish();
    }
    write(ctx.out, &reports);
    Ok(())
}

fn acknowledge_and_delete(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    let (references, ids) = parse(args, 3)?;
    let group = args[2];
    let mut reports = vec![MISSING; ids.len()];
    if let Some(mut stream) = ctx.edit(args[1]).existing::<Stream>()? {
        let mut removal = Removal { stream: &mut stream, references, highest: None };
        let mut settle = |id| match removal.stream.settle(group, id) {
            // The entry may have gone before.
            true => removal.remove(id).abs(),
            false => MISSING,
        };
        reports = ids.into_iter().map(&mut settle).collect();
        removal.finish();
    }
    write(ctx.out, &reports);
    Ok(())
}
