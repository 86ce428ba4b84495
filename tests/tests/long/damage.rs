//! Bits flip, ends are cut off, blocks become zeros and files vanish in a folder that nobody uses at the time. The
//! server starts with all that it had, or says what is wrong where; it never goes on with anything else.
//!
//! `MOONSHARD_DAMAGE_SEED` chooses other places, `MOONSHARD_DAMAGE_PLACES` more than the bounded number of `make test`.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

use tests::contents::{self, Contents};
use tests::generate::Chance;
use tests::temp_dir::TempDir;
use tests::workload::{self, PLAYERS};
use tests::{TestServer, notation, permits, wait_until};

/// Steps of each player, before and after everything is folded.
const STEPS: u64 = 150;

/// What a file suffers.
#[derive(Clone, Copy, Debug)]
enum Damage {
    Flip,
    Cut,
    Zeros,
    Gone,
}

fn setting(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}: a number")))
}

fn flags(dir: &TempDir) -> [&str; 4] {
    ["--data-dir", dir.text(), "--durability", "sync"]
}

/// A folder with a checkpoint and a journal, and what it holds.
fn made() -> (TempDir, Contents) {
    let dir = TempDir::new("whole");
    let server = TestServer::start(&[&flags(&dir)[..], &workload::FLAGS].concat());
    for part in 0..2 {
        for player in 0..PLAYERS {
            let mut client = server.client();
            if player == 0 {
                client.call(["SELECT", &workload::OWN_DATABASES[0].to_string()]);
            }
            let steps = part * STEPS + 1..=(part + 1) * STEPS;
            let requests: Vec<_> = steps.flat_map(|number| workload::step(1, player, number)).collect();
            client.pipeline(&requests);
        }
        if part == 0 {
            assert_eq!(notation::reply(&server.client().run("SAVE")), "+OK");
        }
    }
    let mut found = Contents::new();
    wait_until("what lives shortly has gone", || {
        found = contents::read(&mut server.client());
        !found.keys().any(|(_, key)| key.windows(6).any(|part| part == b":short"))
    });
    wait_until("all is kept", || server.info("journal_durable") == server.info("journal_newest"));
    assert!(server.info("aof_current_size") > 0 && server.info("journal_checkpoint") > 0);
    server.kill();
    (dir, found)
}

fn inflict(damage: Damage, file: &Path, chance: &mut Chance) -> String {
    let length = fs::metadata(file).expect("a file").len();
    let at = chance.below(length as usize) as u64;
    let open = OpenOptions::new().read(true).write(true).open(file).expect("a file");
    match damage {
        Damage::Flip => {
            let mut byte = [0];
            open.read_exact_at(&mut byte, at).expect("inside");
            byte[0] ^= 1 << chance.below(8);
            open.write_all_at(&byte, at).expect("inside");
        }
        Damage::Cut => open.set_len(at).expect("a file"),
        Damage::Zeros => {
            let zeros = vec![0; 512.min((length - at) as usize)];
            open.write_all_at(&zeros, at).expect("inside");
        }
        Damage::Gone => fs::remove_file(file).expect("a file"),
    }
    format!("{damage:?} at {at} of {length} of {}", file.display())
}

/// Whether the server starts with a damaged folder. Then it has everything, and writes on or says why not.
fn survives(dir: &TempDir, what: &str, expected: &Contents) -> bool {
    let server = match TestServer::try_start(&flags(dir), "") {
        Ok(server) => server,
        Err(log) => {
            let named = log.contains(dir.text());
            let reported = log.contains(" is damaged: ") || log.contains(" has lost data: ");
            assert!(named && reported, "{what}: the refusal says too little: {log}");
            return false;
        }
    };
    let differing = contents::difference(&contents::read(&mut server.client()), expected);
    assert!(differing.is_empty(), "{what}: {:#?}", differing.values());
    let set = notation::reply(&server.client().run("SET probe 1"));
    if set != "+OK" {
        assert!(set.starts_with("-MISCONF ") && set.contains(dir.text()), "{what}: {set}");
        return true;
    }
    server.kill();
    let server = TestServer::start(&flags(dir));
    let mut found = contents::read(&mut server.client());
    assert!(found.remove(&(0, b"probe".to_vec())).is_some(), "{what}: the probe is lost");
    let differing = contents::difference(&found, expected);
    assert!(differing.is_empty(), "{what}, after another start: {:#?}", differing.values());
    true
}

#[test]
fn a_damaged_folder_is_whole_or_refused() {
    let _permit = permits::disk();
    let seed = setting("MOONSHARD_DAMAGE_SEED").unwrap_or(1);
    let places = setting("MOONSHARD_DAMAGE_PLACES").unwrap_or(35) as usize;
    let (dir, expected) = made();
    let mut files = dir.files();
    files.retain(|file| fs::metadata(file).expect("a file").len() > 0);
    let mut chance = Chance::new(seed);
    let (mut survived, mut refused) = (0, 0);
    for number in 0..places {
        // Each in turn, as most of the bytes are in few of them.
        let file = &files[number % files.len()];
        let copy = dir.copy("damaged");
        let damage = chance.pick(&[Damage::Flip, Damage::Flip, Damage::Cut, Damage::Zeros, Damage::Gone]);
        let inside = file.strip_prefix(dir.path()).expect("below it");
        let what = inflict(damage, &copy.path().join(inside), &mut chance);
        let what = format!("seed {seed}, place {number}: {what}");
        if survives(&copy, &what, &expected) { survived += 1 } else { refused += 1 }
    }
    println!("{} files: {survived} times all was there, {refused} times it was refused", files.len());
    assert!(survived > 0 && refused > 0, "{survived} {refused}");
}
