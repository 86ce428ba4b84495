//! Changes of JSON documents.

use super::Editor;
use crate::discard::discard;
use crate::effect::Effect;
use crate::undo::Undo;
use crate::value::json::Edit;
use crate::value::{Json, Kind};

impl Editor<'_, Json> {
    /// Makes a change; nothing, if there is no such place.
    pub fn apply(&mut self, edit: Edit) {
        let Editor { space, at, log, .. } = self;
        let encoded = if log.effects.is_some() { edit.encoded() } else { Vec::new() };
        let json = Json::of_mut(space.value_mut(*at)).expect("the editor was made for a value of this type");
        let Some(inverse) = json.apply(edit) else { return };
        log.effect(Effect::Json(&encoded));
        if log.wants_undo() {
            log.undo(Undo::Json(Box::new(inverse)));
        } else {
            let bytes = inverse.heap();
            discard(inverse, bytes);
        }
        self.changed = true;
    }
}
