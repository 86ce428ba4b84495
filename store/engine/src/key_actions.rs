//! What is done to keys, noted where it is done.

use crate::effect::Effect;

/// What was done to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyAction {
    /// It was not there before.
    New,
    /// It was given a value; with an expiry of its own or not.
    Put(bool),
    /// Its value was changed; what that is called if the command does several things.
    Edit(&'static str),
    /// Something that has a name of its own was done to fields of a hash.
    Fields(&'static str),
    /// It was removed.
    Remove,
    /// It was given an expiry, or lost its expiry.
    Expiry(bool),
    /// It went to another place.
    Leave,
    /// It came from another place.
    Arrive,
    /// It was looked for in vain.
    Miss,
}

/// What a command has done to keys, in its order.
#[derive(Default)]
pub struct KeyActions(pub(crate) Vec<(usize, Box<[u8]>, KeyAction)>);

impl KeyActions {
    /// Notes something.
    pub fn push(&mut self, db: usize, key: &[u8], touch: KeyAction) {
        // Many elements of a key are one change of it.
        let again = |(last_db, last_key, last): &(usize, Box<[u8]>, KeyAction)| {
            let is_repeatable = matches!(touch, KeyAction::Edit(_) | KeyAction::Fields(_));
            *last == touch && is_repeatable && *last_db == db && **last_key == *key
        };
        if !self.0.last().is_some_and(again) {
            self.0.push((db, key.into(), touch));
        }
    }

    /// Notes a change of a value, or of what is kept beside it.
    pub(crate) fn effect(&mut self, db: usize, key: &[u8], effect: &Effect<'_>) {
        let touch = match effect {
            Effect::Remove => KeyAction::Remove,
            // Said by whoever knows whether there was one.
            Effect::Expiry(_) | Effect::Sticky(_) => return,
            // Said by the commands.
            Effect::HashExpiry(..)
            | Effect::StreamAdd(..)
            | Effect::StreamDelete(..)
            | Effect::StreamPut(..)
            | Effect::StreamRemove(_) => return,
            Effect::Push(true, _) => KeyAction::Edit("lpush"),
            Effect::Push(false, _) => KeyAction::Edit("rpush"),
            Effect::Pop(true, _) => KeyAction::Edit("lpop"),
            Effect::Pop(false, _) => KeyAction::Edit("rpop"),
            Effect::SetAdd(_) => KeyAction::Edit("sadd"),
            Effect::SetRemove(_) => KeyAction::Edit("srem"),
            _ => KeyAction::Edit(""),
        };
        self.push(db, key, touch);
    }
}
