//! What every command of the engine must keep, whichever comes: a change can be taken back to the byte and to the
//! place, its effects repeat it, a refused call changes nothing, and the byte account is what a recount gives.
//!
//! Calls are made up from the `syntax` of the rows, so a new command is covered as soon as it has a row.

mod author;
mod engine;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use author::{Chance, NOW_MS, call_like, call_of, hash_call_of};
use engine::Engine;
use proptest::prelude::*;
use store_engine::{DATABASES, Effects, UndoLog, command};

/// Later by so much that some keys have expired.
const LATER_MS: u64 = NOW_MS + 1_000_000;

fn is_raised(flag: &Arc<AtomicBool>) -> bool {
    flag.load(Ordering::Relaxed)
}

fn calls(most: usize) -> impl Strategy<Value = Vec<u64>> {
    prop::collection::vec(any::<u64>(), 0..most)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn whatever_is_taken_back_was_never_there(before in calls(60), inside in calls(60)) {
        let mut engine = Engine::new();
        for call in &before {
            engine.run(&call_of(*call), None);
        }
        let wanted = engine.contents();
        let mut log = UndoLog::default();
        let mut calls = Vec::new();
        for call in &inside {
            let words = call_of(*call);
            engine.db = (call >> 60) as usize % 8 / 6;
            engine.run(&words, Some(&mut log));
            calls.push(words);
        }
        log.roll_back(&mut engine.all());
        prop_assert_eq!(engine.contents(), wanted, "after taking back {:?}", calls);
    }

    /// A key that has expired may be removed at any time, and stays so.
    #[test]
    fn what_is_taken_back_was_never_there_though_keys_expire(before in calls(60), inside in calls(60)) {
        let mut engine = Engine::new();
        for call in &before {
            engine.run(&call_of(*call), None);
        }
        engine.now_ms = LATER_MS;
        let wanted = engine.alive();
        let mut log = UndoLog::default();
        for call in &inside {
            engine.db = (call >> 60) as usize % 8 / 6;
            engine.run(&call_of(*call), Some(&mut log));
        }
        log.roll_back(&mut engine.all());
        prop_assert_eq!(engine.alive(), wanted.clone());
        engine.sweep();
        prop_assert_eq!(engine.alive(), wanted);
        engine.recount();
    }

    /// Effects repeat what happened; those of a transaction that was taken back are cut off.
    #[test]
    fn effects_repeat_what_was_done(first in calls(60), undone in calls(20), last in calls(60)) {
        let mut engine = Engine::new();
        for (part, calls) in [first, undone, last].iter().enumerate() {
            let (mark, mut log) = (engine.effects.mark(), UndoLog::default());
            for call in calls {
                engine.db = (call >> 60) as usize % 8 / 6;
                engine.run(&call_of(*call), Some(&mut log));
            }
            if part == 1 {
                log.roll_back(&mut engine.all());
                engine.effects.truncate(mark);
                engine.now_ms = LATER_MS;
            }
        }
        let repeated = engine.repeated();
        prop_assert_eq!(repeated.meaning(), engine.meaning());
        repeated.recount();
    }

    /// The same of fields that expire, and of those that have: they are removed at some time, and then stay so.
    #[test]
    fn fields_expire_once_and_for_all(
        first in calls(80),
        undone in calls(40),
        last in calls(40),
        swept in any::<bool>(),
    ) {
        let mut engine = Engine::new();
        engine.keep_expired();
        for (part, calls) in [first, undone, last].iter().enumerate() {
            let (mark, mut log) = (engine.effects.mark(), UndoLog::default());
            let wanted = (engine.contents(), engine.alive());
            calls.iter().for_each(|call| _ = engine.run(&hash_call_of(*call), Some(&mut log)));
            if part == 1 {
                log.roll_back(&mut engine.all());
                prop_assert_eq!((engine.contents(), engine.alive()), wanted);
                engine.effects.truncate(mark);
                engine.now_ms = LATER_MS;
                if swept {
                    let alive = engine.alive();
                    engine.sweep();
                    prop_assert_eq!(engine.alive(), alive);
                    engine.record_expired();
                }
            }
        }
        engine.recount();
        let mut repeated = engine.repeated();
        repeated.recount();
        prop_assert_eq!(repeated.alive(), engine.alive());
        engine.sweep();
        engine.record_expired();
        prop_assert_eq!(engine.repeated().meaning(), engine.meaning());
        repeated.sweep();
        prop_assert_eq!(repeated.meaning(), engine.meaning());
    }

    /// Hostile or damaged bytes are refused or mean something; they never panic.
    #[test]
    fn damaged_effects_do_no_harm(calls in calls(40), damage in prop::collection::vec(any::<(usize, u8)>(), 1..4)) {
        let mut engine = Engine::new();
        for call in &calls {
            engine.run(&call_of(*call), None);
        }
        let mut bytes = engine.effects.as_bytes().to_vec();
        for (at, byte) in damage {
            if let Some(len) = std::num::NonZeroUsize::new(bytes.len()) {
                bytes[at % len] = byte;
            }
        }
        let mut engine = Engine::new();
        for effect in Effects::read(&bytes) {
            let Ok((db, key, effect)) = effect else { break };
            if effect.apply(db, key, &mut engine.all()).is_err() {
                break;
            }
        }
    }

    /// Whoever watches a key hears of every change that stays, and not before.
    #[test]
    fn watchers_hear_of_changes(before in calls(40), inside in calls(6), alone in any::<bool>()) {
        let mut engine = Engine::new();
        for call in &before {
            engine.run(&call_of(*call), None);
        }
        let (mut log, old) = (UndoLog::default(), engine.alive());
        let (flags, mut calls) = (engine.watch(), Vec::new());
        for call in &inside {
            calls.push(call_of(*call));
            engine.run(&calls[calls.len() - 1], (!alone).then_some(&mut log));
        }
        let new = engine.alive();
        prop_assert!(alone || !flags.values().any(is_raised), "too early of {:?}", calls);
        log.notify_watchers();
        for (name, flag) in &flags {
            let (old, new) = (old.get(name), new.get(name));
            prop_assert!(old == new || is_raised(flag), "{:?}: {:?} → {:?} by {:?}", name, old, new, calls);
        }
    }

    /// What is taken back was never there for those who watch, whenever they came; and they go on watching.
    #[test]
    fn watchers_do_not_hear_of_what_is_taken_back(before in calls(40), inside in calls(6), more in calls(6)) {
        let mut engine = Engine::new();
        for call in &before {
            engine.run(&call_of(*call), None);
        }
        let early = engine.watch();
        let mut whole = UndoLog::default();
        for calls in [&inside, &more] {
            let mut part = UndoLog::default();
            for call in calls {
                engine.run(&call_of(*call), Some(&mut part));
            }
            whole.append(part);
        }
        let late = engine.watch();
        whole.roll_back(&mut engine.all());
        prop_assert!(!early.values().chain(late.values()).any(is_raised));
        let spaces = engine.partitions.iter_mut().flat_map(|partition| &mut partition.databases);
        spaces.for_each(|space| space.touch_all(|_| true));
        prop_assert!(early.values().chain(late.values()).all(is_raised));
    }

    #[test]
    fn a_refused_call_changes_nothing_and_every_account_is_true(inside in calls(80)) {
        let mut engine = Engine::new();
        for call in &inside {
            let words = call_of(*call);
            let before = engine.contents();
            engine.db = (call >> 60) as usize % 8 / 6;
            if !engine.run(&words, None) {
                prop_assert_eq!(engine.contents(), before, "{:?}", words);
            }
        }
        engine.recount();
        for db in 0..DATABASES {
            engine.db = db;
            engine.run(&["flushdb".into()], None);
        }
        prop_assert!(engine.contents().is_empty());
    }
}

#[test]
fn most_calls_made_up_here_are_good_ones() {
    let mut engine = Engine::new();
    let mut chance = Chance(1);
    let done = (0..5_000).filter(|_| engine.run(&call_of(chance.below(usize::MAX) as u64), None)).count();
    assert!(done > 3_000, "only {done} of 5000 calls were good");
}

/// So that nothing above is true only because a command never does anything here.
#[test]
fn every_write_command_changes_something_here() {
    let mut engine = Engine::new();
    let mut chance = Chance(5);
    let writes = command::all().filter(|row| row.is_write());
    let mut idle: BTreeSet<String> = writes.map(|row| row.name.to_owned()).collect();
    assert!(idle.len() > 50, "{idle:?}");
    let mut before = engine.contents();
    for turn in 0..150_000 {
        // Those that seldom find what they change are tried more often.
        let name = idle.iter().nth(turn / 2 % idle.len()).filter(|_| turn % 2 == 1);
        let words = call_like(chance.below(usize::MAX) as u64, name.map(String::as_str));
        let mut log = UndoLog::default();
        engine.run(&words, Some(&mut log));
        if engine.contents() == before {
            continue;
        }
        log.roll_back(&mut engine.all());
        assert_eq!(engine.contents(), before, "after taking back {words:?}");
        engine.run(&words, None);
        before = engine.contents();
        idle.remove(&words[0]);
        if idle.is_empty() {
            return;
        }
    }
    panic!("these never changed anything: {idle:?}");
}
