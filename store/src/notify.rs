//! Keyspace notifications: what happens to keys is published, where that is configured.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use store_engine::keyspace::{Announced, Key};
use store_engine::notifications::{KeyActions, Notification, class};
use store_engine::{Partitions, UndoLog};

/// Where events go: called while the keys they are about are locked, so it may neither wait nor look at data.
/// With the classes that are configured, which say what kinds of channels there are.
pub type Audience = Box<dyn Fn(u32, Vec<Notification>) + Send + Sync>;

/// The listener for events, and their classes.
#[derive(Default)]
pub(crate) struct Notifier {
    /// Bits of [`class`]; 0 while nothing is published.
    pub classes: AtomicU32,
    /// As they were said.
    pub said: AtomicU32,
    pub audience: OnceLock<Audience>,
}

impl Notifier {
    /// The classes that are configured.
    pub fn classes(&self) -> u32 {
        self.classes.load(Ordering::Relaxed)
    }

    /// Where a command notes what it does, if that is to be published.
    pub fn key_actions(&self) -> Option<KeyActions> {
        (self.classes() != 0).then(KeyActions::default)
    }

    /// Tells of events, which are about to be forgotten here.
    pub fn publish(&self, events: &mut Vec<Notification>) {
        if let Some(audience) = self.audience.get()
            && !events.is_empty()
            && self.classes() != 0
        {
            audience(self.classes(), std::mem::take(events));
        }
        events.clear();
    }

    /// Publishes one event of a key that no command has caused.
    pub fn publish_event(&self, class: u32, name: &'static str, db: usize, key: &Key) {
        if self.classes() & class != 0 {
            self.publish(&mut vec![Notification { class, name: name.into(), db, key: key.clone() }]);
        }
    }

    /// Tells of keys that have expired in these partitions since this was last done.
    pub fn publish_expired(&self, partitions: &mut Partitions<'_>) {
        self.publish_expired_within(partitions, None, &mut Vec::new());
    }

    /// The same after a call. Those that its transaction has changed before are noted in `events`: they come back if that
    /// is undone.
    pub fn publish_expired_within(
        &self,
        partitions: &mut Partitions<'_>,
        undo: Option<&UndoLog>,
        events: &mut Vec<Notification>,
    ) {
        for at in 0..partitions.len() {
            for (db, space) in partitions.nth(at).databases.iter_mut().enumerate() {
                for announced in space.take_announced() {
                    for event in expired(db, announced, self.classes()) {
                        if undo.is_some_and(|undo| undo.keys().any(|changed| changed == (db, &*event.key))) {
                            events.push(event);
                        } else {
                            self.publish(&mut vec![event]);
                        }
                    }
                }
            }
        }
    }
}

/// That the time of a key, or of fields, was over, as events of these classes.
pub(crate) fn expired(db: usize, announced: Announced, classes: u32) -> impl Iterator<Item = Notification> {
    let (key, names) = match announced {
        Announced::Key(key) => (key, &[(class::EXPIRED, "expired")][..]),
        Announced::Fields(key, false) => (key, &[(class::HASH, "hexpired")][..]),
        Announced::Fields(key, true) => (key, &[(class::HASH, "hexpired"), (class::GENERIC, "del")][..]),
    };
    let wanted = names.iter().filter(move |(class, _)| classes & class != 0);
    wanted.map(move |(class, name)| Notification {
        class: *class,
        name: (*name).into(),
        db,
        key: key.clone(),
    })
}

/// Classes of events that tell of what has expired.
pub(crate) const OF_EXPIRY: u32 = class::EXPIRED | class::HASH | class::GENERIC;
