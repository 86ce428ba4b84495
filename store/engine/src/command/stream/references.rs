//! What becomes of an entry's references in groups when it goes: KEEPREF, DELREF and ACKED, as in Redis 8.2.

use crate::Cursor;
use crate::edit::Editor;
use crate::value::Stream;
use crate::value::stream::{Group, Id};

/// The choice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum References {
    /// They stay, and lead nowhere.
    #[default]
    Keep,
    /// They go too.
    Delete,
    /// An entry with references stays.
    Acked,
}

impl References {
    /// Takes its word, if one comes next.
    pub fn next(cursor: &mut Cursor<'_>) -> Option<References> {
        const WORDS: [(&str, References); 3] =
            [("KEEPREF", References::Keep), ("DELREF", References::Delete), ("ACKED", References::Acked)];
        WORDS.into_iter().find(|(word, _)| cursor.flag(word)).map(|(_, references)| references)
    }

    /// Whether an entry has to stay: as long as a group has not read it, or a consumer has not acknowledged it.
    pub fn forbid(self, stream: &Stream, id: Id) -> bool {
        let refers = |group: &Group| group.last_id < id || group.pending_of(id).is_some();
        self == References::Acked && stream.groups().any(|(_, group)| refers(group))
    }

    /// Removes the references of an entry that goes, if they are to go.
    pub fn release(self, stream: &mut Editor<'_, Stream>, id: Id) {
        if self != References::Delete {
            return;
        }
        let pending = stream.groups().filter(|(_, group)| group.pending_of(id).is_some());
        let names: Vec<Box<[u8]>> = pending.map(|(name, _)| name.into()).collect();
        names.iter().for_each(|name| _ = stream.settle(name, id));
    }
}
