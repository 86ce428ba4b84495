//! What the commands on documents have in common: how they find values, and their errors and replies.

use crate::error::{self, CommandError};
use crate::steps::{CANCELLED, Work};
use crate::value::Json;
use crate::value::json::{Found, MAX_BYTES, MAX_DEPTH, Node, Path, Place, select};
use crate::{Args, Ctx, Reply};

/// The reply of RedisJSON to changes of what is not there.
pub const NO_DOCUMENT: CommandError =
    CommandError::new("ERR could not perform this operation on a key that doesn't exist");

/// A path selects nothing.
pub fn no_value(path: &Path) -> CommandError {
    CommandError::owned(format!("ERR Path '{}' does not exist", path.text))
}

/// A path selects nothing, or nothing of the right type.
pub fn no_value_or(path: &Path, what: &str) -> CommandError {
    CommandError::owned(format!("ERR Path '{}' does not exist or {what}", path.text))
}

/// A value is of another type.
pub fn wrong_type(expected: &str, found: &Node) -> CommandError {
    let found = found.type_name();
    CommandError::owned(format!("WRONGTYPE wrong type of path value - expected {expected} but found {found}"))
}

/// The path at an item of the call; the root if the call is shorter.
pub fn path_at(args: Args<'_>, at: usize) -> Result<Path, CommandError> {
    args.get(at).map_or_else(|| Ok(Path::root()), Path::parse)
}

/// Refuses a call of more items than this.
pub fn at_most(args: Args<'_>, most: usize) -> Result<(), CommandError> {
    if args.len() > most {
        return Err(error::wrong_arity(&String::from_utf8_lossy(args.name()).to_ascii_lowercase()));
    }
    Ok(())
}

/// Reads the document under a key, if there is one, and replies at once.
pub fn reply_from(
    ctx: &mut Ctx<'_>,
    key: &[u8],
    write: impl FnOnce(Option<&Node>, &mut Reply, &Work) -> Result<(), CommandError>,
) -> Result<(), CommandError> {
    let (work, mut done) = (ctx.work, Ok(()));
    ctx.reply_from::<Json>(key, |json, out| done = write(json.map(Json::root), out, work))?;
    done
}

/// The values that a path selects.
pub fn found<'d>(path: &Path, root: &'d Node, work: &Work) -> Result<Vec<Found<'d>>, CommandError> {
    select(&path.segments, root, work).map(|matches| matches.found)
}

/// Where the values are that a path selects, those within others first: changed in this order, no place is one of another value
/// when it is its turn. Each has its number in the order of the path.
pub fn places_inside_out(path: &Path, root: &Node, work: &Work) -> Result<Vec<(usize, Place)>, CommandError> {
    let matches = select(&path.segments, root, work)?;
    let mut places: Vec<(usize, Place)> = matches.places().into_iter().enumerate().collect();
    places.sort_unstable_by(|(_, one), (_, other)| other.cmp(one));
    Ok(places)
}

/// Refuses values that would lie in too many arrays and objects.
pub fn check_depth(depth: usize) -> Result<(), CommandError> {
    if depth > MAX_DEPTH { Err(CommandError::new("ERR recursion limit exceeded")) } else { Ok(()) }
}

/// Counts the work of putting a value of so many bytes to so many places of a document that takes `held` bytes, and checks that
/// it may become so large.
pub fn check_room(held: usize, bytes: usize, places: usize, work: &Work) -> Result<(), CommandError> {
    let more = bytes.saturating_mul(places);
    let all = held.saturating_add(more);
    if all > MAX_BYTES {
        return Err(CommandError::new("ERR a JSON document may take 512 MiB of memory at most"));
    }
    if !work.has_memory(all) {
        return Err(error::OUT_OF_MEMORY);
    }
    if work.step((places + more / size_of::<Node>()) as u64) { Ok(()) } else { Err(CANCELLED) }
}

/// Replies with a number for each value that a path selects, or null for those of another type; for a legacy path with that of
/// the last one that has one.
pub fn reply_counts(
    ctx: &mut Ctx<'_>,
    path: &Path,
    counts: &[Option<usize>],
    what: &str,
) -> Result<(), CommandError> {
    if path.is_legacy {
        let last = counts.iter().flatten().next_back();
        ctx.out.count(*last.ok_or_else(|| no_value_or(path, what))?);
        return Ok(());
    }
    ctx.out.array(counts.len());
    ctx.out.each(ctx.work, counts, |out, count| match count {
        Some(count) => out.count(*count),
        None => out.null(),
    });
    Ok(())
}
