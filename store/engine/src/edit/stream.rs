//! Changes of streams.

use super::Editor;
use crate::coding::put_bytes;
use crate::effect::Effect;
use crate::key_actions::KeyAction;
use crate::undo::{StreamUndo, Undo};
use crate::value::Stream;
use crate::value::stream::{Fields, Id, Meta, Part};

impl Editor<'_, Stream> {
    /// Adds an entry behind all others; its ID must be higher than that of any before.
    pub fn add(&mut self, id: Id, pairs: &[&[u8]]) {
        let mut bytes = Vec::new();
        pairs.iter().for_each(|text| put_bytes(text, &mut bytes));
        let fields = Fields::encoded(&bytes);
        let own = self.node_for(id, fields);
        if own != id && self.node(own).is_some_and(|node| node.extent().is_none()) {
            // Nobody but a damaged or strange source makes such nodes; they are small enough to be kept whole.
            self.keep(Part::Node(own));
            self.keep(Part::Meta);
        }
        let undo = |stream: &Stream| {
            let extent = stream.node(own).filter(|_| own != id).and_then(|node| node.extent());
            Undo::Stream(Box::new(match (own == id, extent) {
                (false, None) => StreamUndo::Part(Part::Meta.encoded(), stream.part(Part::Meta)),
                _ => StreamUndo::Added(own, extent, stream.meta()),
            }))
        };
        self.change(Effect::StreamAdd(own, id, fields), undo).append(own, id, fields);
    }

    /// Records how a part that is about to be changed is restored.
    fn keep(&mut self, part: Part<'_>) {
        if self.log.wants_undo() {
            let undo = StreamUndo::Part(part.encoded(), self.part(part));
            self.log.undo(Undo::Stream(Box::new(undo)));
        }
    }

    /// Marks an entry that is there as deleted.
    pub fn mark(&mut self, own: Id, id: Id) {
        let undo = |stream: &Stream| {
            let part = Part::Node(own);
            Undo::Stream(Box::new(match stream.node(own) {
                Some(node) if node.can_unmark(own, id) => StreamUndo::Deleted(own, id),
                _ => StreamUndo::Part(part.encoded(), stream.part(part)),
            }))
        };
        self.change(Effect::StreamDelete(own, id), undo).change_node(own, |node| node.mark(own, id));
    }

    /// Removes an entry that is there, and its node if it was the last in that.
    pub fn delete(&mut self, id: Id) {
        let Some((own, node)) = self.node_of(id) else { return };
        if node.live() == 1 { self.remove(Part::Node(own)) } else { self.mark(own, id) }
    }

    /// Changes what is known of the stream.
    pub fn set_meta(&mut self, meta: Meta) {
        let before = self.meta();
        if meta != before {
            let mut after = Stream::default();
            after.set_meta(meta);
            self.put(Part::Meta, &after.part(Part::Meta).expect("every stream has one"));
        }
    }

    /// Makes a group, or changes how far it has read.
    pub fn set_group(&mut self, name: &[u8], last_id: Id, entries_read: Option<u64>) {
        self.put(Part::Group(name), &Part::group_bytes(last_id, entries_read));
    }

    /// Removes a group with all that is pending in it; whether it was there.
    pub fn remove_group(&mut self, name: &[u8]) -> bool {
        let part = Part::Group(name).encoded();
        let take = |stream: &mut Stream, log: &mut super::Log<'_>| {
            let group = stream.take_group(name)?;
            log.effect(Effect::StreamRemove(&part));
            Some(group)
        };
        self.exchange(take, |group| Undo::Stream(Box::new(StreamUndo::Group(name.into(), group))))
    }

    /// Those who listen hear of this event.
    pub fn note_event(&mut self, event: &'static str) {
        self.log.touch(KeyAction::Edit(event));
    }

    /// Notes that a consumer, who may be new, was there at this time.
    pub fn see(&mut self, group: &[u8], consumer: &[u8], seen_ms: i64) {
        if self.group(group).is_some_and(|group| group.consumer(consumer).is_none()) {
            self.note_event("xgroup-createconsumer");
        }
        self.put(Part::Consumer(group, consumer), &Part::consumer_bytes(seen_ms));
    }

    /// Removes a consumer; how many entries were pending for it, if it was there.
    pub fn remove_consumer(&mut self, group: &[u8], consumer: &[u8]) -> Option<usize> {
        let held = self.group(group)?.consumer(consumer)?;
        let pending: Vec<Id> = held.pending(Id::MIN).collect();
        pending.iter().for_each(|id| _ = self.settle(group, *id));
        self.remove(Part::Consumer(group, consumer));
        Some(pending.len())
    }

    /// Makes an entry pending for a consumer that is there, and for nobody else.
    pub fn deliver(&mut self, group: &[u8], id: Id, consumer: &[u8], delivered_ms: i64, count: u64) {
        self.put(Part::Pending(group, id), &Part::pending_bytes(consumer, delivered_ms, count));
    }

    /// Nobody waits for an entry's acknowledgement any more; whether somebody did.
    pub fn settle(&mut self, group: &[u8], id: Id) -> bool {
        let is_pending = self.group(group).is_some_and(|group| group.pending_of(id).is_some());
        if is_pending {
            self.remove(Part::Pending(group, id));
        }
        is_pending
    }

    fn put(&mut self, part: Part<'_>, bytes: &[u8]) {
        let name = part.encoded();
        let undo =
            |stream: &Stream| Undo::Stream(Box::new(StreamUndo::Part(name.clone(), stream.part(part))));
        let done = self.change(Effect::StreamPut(&name, bytes), undo).put_part(part, bytes);
        done.expect("it is made of what the stream has");
    }

    /// Removes a part with which no others go.
    pub fn remove(&mut self, part: Part<'_>) {
        let name = part.encoded();
        let undo =
            |stream: &Stream| Undo::Stream(Box::new(StreamUndo::Part(name.clone(), stream.part(part))));
        self.change(Effect::StreamRemove(&name), undo).remove_part(part);
    }
}
