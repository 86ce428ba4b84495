//! Groups of replicas whose time, messages, disks and failures come from a seed, so that what a seed shows once it shows
//! again. After each step the rules of Raft are checked, and those that clients count on.
//!
//! `MOONSHARD_SIMULATION_SEEDS` is how many seeds are tried, `MOONSHARD_SIMULATION_SEED` the first one.

mod disk;
mod machine;
mod rules;
mod service;
mod world;

use machine::Bug;
use world::World;

/// Tries a seed; an error says which rule was broken.
fn run(seed: u64, bug: Option<Bug>) -> Result<World, String> {
    let mut world = World::new(seed, bug);
    world.run()?;
    Ok(world)
}

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

#[test]
fn no_seed_breaks_a_rule() {
    let (mut acknowledged, mut elections, mut restarts, mut reads) = (0, 0, 0, 0);
    let (mut copies, mut changes, mut folds, mut losses) = (0, 0, 0, 0);
    let (first, seeds) = (setting("MOONSHARD_SIMULATION_SEED"), setting("MOONSHARD_SIMULATION_SEEDS"));
    let (first, seeds) = (first.unwrap_or(0), seeds.unwrap_or(60));
    for seed in first..first + seeds {
        let world = run(seed, None).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        acknowledged += world.acknowledged();
        elections += world.elections();
        restarts += world.restarts;
        reads += world.reads;
        copies += world.copies;
        changes += world.changes;
        folds += world.folds;
        losses += world.losses;
    }
    if seeds < 60 {
        return;
    }
    // Rules that are never put to the test hold, too.
    assert!(acknowledged > 100 * seeds && reads > 100 * seeds, "{acknowledged} writes, {reads} reads");
    assert!(copies > seeds && changes > 2 * seeds, "{copies} copies, {changes} changes of members");
    assert!(losses > seeds, "{losses} lost disks");
    assert!(folds > 2 * seeds, "{folds} folds of what was not committed yet");
    assert!(elections > 2 * seeds && restarts > seeds, "{elections} elections, {restarts} restarts");
}

#[test]
fn each_bug_that_is_put_in_is_found() {
    for bug in Bug::ALL {
        let found = (0..500).find_map(|seed| Some((seed, run(seed, Some(bug)).err()?)));
        println!("{bug:?}: {found:?}");
        assert!(found.is_some(), "{bug:?} is not found by 500 seeds");
    }
}
