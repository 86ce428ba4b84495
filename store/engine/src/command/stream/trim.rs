//! What XADD and XTRIM can be told.

use super::ids::{INVALID_ID, id_of};
use super::references::References;
use crate::Args;
use crate::edit::Editor;
use crate::error::{self, CommandError};
use crate::value::Stream;
use crate::value::stream::{self, Id, NODE_ENTRIES, Part, Spelled};

/// So many entries are removed at most if nothing is said about that and it need not be exact: a hundred nodes.
const LIMIT: u64 = 100 * NODE_ENTRIES as u64;

/// Which entries go.
#[derive(Clone, Copy)]
enum Strategy {
    /// Those that are too many.
    Length(u64),
    /// Those before this one.
    Least(Id),
}

/// How a stream is made shorter.
#[derive(Clone, Copy)]
pub struct Trim {
    strategy: Strategy,
    /// Only whole nodes go.
    roughly: bool,
    /// How many go at most; 0: any number.
    limit: u64,
}

/// The words before the fields.
pub struct TrimOptions {
    /// Whether the stream is made shorter.
    pub trim: Option<Trim>,
    /// What becomes of references to the entries that go.
    pub references: Option<References>,
    /// Whether no stream is made.
    pub no_mkstream: bool,
    /// The entry's ID, unless all of it is left to us.
    pub id: Option<Spelled>,
}

impl TrimOptions {
    /// Reads them; with the position of the ID, if the call must have one.
    pub fn parse(args: Args<'_>, adds: bool) -> Result<(TrimOptions, usize), CommandError> {
        let mut options = TrimOptions { trim: None, references: None, no_mkstream: false, id: None };
        let mut given = None;
        let mut cursor = args.cursor(2);
        while let Some(word) = cursor.peek() {
            let valued = cursor.remaining() > 1;
            if adds && word == b"*" {
                break;
            }
            let by_length = valued && cursor.flag("MAXLEN");
            if by_length || (valued && cursor.flag("MINID")) {
                if options.trim.is_some() {
                    return Err(CommandError::new(
                        "ERR syntax error, MAXLEN and MINID options at the same time are not compatible",
                    ));
                }
                let marked = cursor.remaining() > 1;
                let roughly = marked && cursor.flag("~");
                let _ = marked && !roughly && cursor.flag("=");
                let strategy = if by_length {
                    let most = u64::try_from(cursor.integer()?).ok();
                    Strategy::Length(most.ok_or(CommandError::new("ERR The MAXLEN argument must be >= 0."))?)
                } else {
                    Strategy::Least(id_of(cursor.bytes()?)?)
                };
                options.trim = Some(Trim { strategy, roughly, limit: 0 });
            } else if valued && cursor.flag("LIMIT") {
                let limit = u64::try_from(cursor.integer()?).ok();
                given = Some(limit.ok_or(CommandError::new("ERR The LIMIT argument must be >= 0."))?);
            } else if adds && cursor.flag("NOMKSTREAM") {
                options.no_mkstream = true;
            } else if options.references.is_none()
                && let Some(references) = References::next(&mut cursor)
            {
                options.references = Some(references);
            } else if adds {
                options.id = Some(stream::parse(word, 0).ok_or(INVALID_ID)?);
                break;
            } else {
                return Err(error::SYNTAX);
            }
        }
        options.limit(given, adds)?;
        Ok((options, cursor.position()))
    }

    fn limit(&mut self, given: Option<u64>, adds: bool) -> Result<(), CommandError> {
        let error = match (&mut self.trim, given) {
            (None, Some(1..)) => {
                "ERR syntax error, LIMIT cannot be used without specifying a trimming strategy"
            }
            (None, _) if !adds => "ERR syntax error, XTRIM must be called with a trimming strategy",
            (Some(Trim { roughly: false, .. }), Some(_)) | (None, Some(0)) => {
                "ERR syntax error, LIMIT cannot be used without the special ~ option"
            }
            (Some(trim), _) => {
                trim.limit = given.unwrap_or(if trim.roughly { LIMIT } else { 0 });
                return Ok(());
            }
            (None, None) => return Ok(()),
        };
        Err(CommandError::new(error))
    }
}

/// One step of making a stream shorter.
enum Cut {
    /// A node goes.
    Node(Id),
    /// These entries of a node go, and then it is done.
    Entries(Id, Vec<Id>),
}

impl Trim {
    /// Makes a stream shorter; how many entries went.
    pub fn apply(self, stream: &mut Editor<'_, Stream>, references: References) -> usize {
        let before = stream.len();
        if references == References::Keep {
            self.cut(stream);
        } else {
            self.pick(stream, references);
        }
        let removed = before - stream.len();
        if removed > 0 {
            stream.note_event("xtrim");
        }
        removed
    }

    /// Removes all that is to go.
    fn cut(self, stream: &mut Editor<'_, Stream>) {
        let before = stream.len();
        while let Some(cut) = self.next(stream, before - stream.len()) {
            match cut {
                Cut::Node(own) => stream.remove(Part::Node(own)),
                Cut::Entries(own, ids) => {
                    ids.iter().for_each(|id| stream.mark(own, *id));
                    break;
                }
            }
        }
    }

    /// Removes of that what may go, with its references if these are to go too.
    fn pick(self, stream: &mut Editor<'_, Stream>, references: References) {
        let picked = self.picked(stream, references);
        let highest = picked.last().and_then(|(_, ids, _)| ids.last().copied());
        for (own, ids, is_whole) in picked {
            ids.iter().for_each(|id| references.release(stream, *id));
            match is_whole {
                true => stream.remove(Part::Node(own)),
                false => ids.iter().for_each(|id| stream.mark(own, *id)),
            }
        }
        let mut meta = stream.meta();
        // What went from behind an entry that stays is a gap, as XDEL leaves one: groups count what they have not read.
        if let Some(highest) = highest.filter(|highest| !stream.is_empty() && stream.first_id() < *highest) {
            meta.max_deleted_id = meta.max_deleted_id.max(highest);
            stream.set_meta(meta);
        }
    }

    /// The entries that go, by node, and whether these are all that are left in it.
    fn picked(self, stream: &Stream, references: References) -> Vec<(Id, Vec<Id>, bool)> {
        let mut left = match self.strategy {
            Strategy::Length(most) => (stream.len() as u64).saturating_sub(most),
            Strategy::Least(_) => u64::MAX,
        };
        let (mut picked, mut removed) = (Vec::new(), 0);
        for (own, node) in stream.nodes() {
            let live = node.live() as u64;
            let reaches_end = match self.strategy {
                Strategy::Length(_) => live <= left,
                Strategy::Least(least) => node.entries(own).last().is_none_or(|entry| entry.id < least),
            };
            let is_limited = self.limit > 0 && removed + live > self.limit;
            if left == 0 || is_limited || (self.roughly && !reaches_end) {
                break;
            }
            let ids = node.entries(own).filter(|entry| !entry.is_deleted()).map(|entry| entry.id);
            let ids = ids.take_while(|id| !matches!(self.strategy, Strategy::Least(least) if *id >= least));
            let ids = ids.filter(|id| !references.forbid(stream, *id));
            let ids: Vec<Id> = ids.take(usize::try_from(left).unwrap_or(usize::MAX)).collect();
            let count = ids.len() as u64;
            (left, removed) = (left - count, removed + count);
            if count > 0 {
                picked.push((own, ids, count == live));
            }
            if !reaches_end && matches!(self.strategy, Strategy::Least(_)) {
                break;
            }
        }
        picked
    }

    /// What is next when so many entries have gone.
    fn next(self, stream: &Stream, removed: usize) -> Option<Cut> {
        let (own, node) = stream.nodes().next()?;
        let live = node.live();
        let too_many = match self.strategy {
            Strategy::Length(most) => (stream.len() as u64).checked_sub(most).filter(|count| *count > 0)?,
            Strategy::Least(_) => u64::MAX,
        };
        if self.limit > 0 && (removed + live) as u64 > self.limit {
            return None;
        }
        let whole = match self.strategy {
            Strategy::Length(_) => live as u64 <= too_many,
            Strategy::Least(least) => node.entries(own).last().is_none_or(|entry| entry.id < least),
        };
        if whole {
            return Some(Cut::Node(own));
        }
        if self.roughly {
            return None;
        }
        let goes = |id: Id| match self.strategy {
            Strategy::Length(_) => true,
            Strategy::Least(least) => id < least,
        };
        let entries = node.entries(own).filter(|entry| !entry.is_deleted());
        let ids = entries.map(|entry| entry.id).take_while(|id| goes(*id));
        Some(Cut::Entries(own, ids.take(usize::try_from(too_many).unwrap_or(usize::MAX)).collect()))
    }
}
