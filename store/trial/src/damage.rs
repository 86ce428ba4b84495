//! A closed database is damaged in one place at a time: what is noticed, and what is not?

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use crate::check::{self, Outcome};
use crate::load::Random;

/// How many batches the database has.
const BATCHES: u64 = 400;

/// Nothing for so long is a hang: a whole check takes a tenth of a second.
const TIMEOUT: Duration = Duration::from_secs(3);

/// Damages copies in `cases` places per kind of file and kind of damage.
pub fn run(engine: &str, dir: &Path, seed: u64, cases: u64) -> io::Result<()> {
    let name = engine.replace('/', "-");
    let (whole, copy) = (dir.join(format!("whole-{name}")), dir.join(format!("copy-{name}")));
    // Not there the first time.
    let _ = fs::remove_dir_all(&whole);
    let text = whole.to_str().expect("our own paths are text");
    let words = ["write", engine, text, &seed.to_string(), &BATCHES.to_string()];
    let status = check::again(&words).env("PATH", "").stdout(Stdio::null()).status()?;
    if !status.success() {
        return Err(io::Error::other(format!("the writer ended with {status}")));
    }
    copy_dir(&whole, &copy)?;
    let Outcome::Whole(flushed) = check::outcome(engine, &copy, seed, TIMEOUT)? else {
        return Err(io::Error::other("the database is wrong before it is damaged"));
    };
    let mut files = Vec::new();
    list(&whole, Path::new(""), &mut files)?;
    let mut groups: BTreeMap<String, Vec<(PathBuf, u64)>> = BTreeMap::new();
    for (file, length) in files {
        groups.entry(group(&file)).or_default().push((file, length));
    }
    let mut random = Random(seed ^ 1);
    for (group, files) in groups {
        for kind in ["flip", "zero", "truncate", "remove"] {
            let mut counts: BTreeMap<&str, (u64, String)> = BTreeMap::new();
            for _ in 0..if kind == "remove" { files.len().min(4) as u64 } else { cases } {
                // Weighted by size, as damage by a disk is.
                let total: u64 = files.iter().map(|(_, length)| length).sum();
                let mut at = random.below(total);
                let (file, length) = files
                    .iter()
                    .find(|(_, length)| {
                        let here = at < *length;
                        at -= if here { 0 } else { *length };
                        here
                    })
                    .expect("below the sum");
                copy_dir(&whole, &copy)?;
                damage(&copy.join(file), kind, at, *length, &mut random)?;
                let outcome = check::outcome(engine, &copy, seed, TIMEOUT)?;
                let entry = counts.entry(outcome.class(flushed)).or_default();
                entry.0 += 1;
                if entry.1.is_empty() {
                    entry.1 = format!("{} at {at} of {length}: {outcome:?}", file.display());
                }
            }
            for (class, (count, example)) in counts {
                println!("damage {engine} | {group} | {kind} | {class} | {count} | {example}");
            }
        }
    }
    fs::remove_dir_all(&copy)?;
    fs::remove_dir_all(&whole)
}

/// The kind of a file: its folder and name without numbers.
fn group(file: &Path) -> String {
    let name = file.to_string_lossy();
    if name.starts_with("slabs/") || name.starts_with("blobs/") {
        return name[..6].to_owned();
    }
    name.split(['_', '.']).next().unwrap_or(&name).to_owned()
}

fn damage(file: &Path, kind: &str, at: u64, length: u64, random: &mut Random) -> io::Result<()> {
    if kind == "remove" {
        return fs::remove_file(file);
    }
    let mut bytes = fs::read(file)?;
    let here = at as usize;
    match kind {
        "flip" => bytes[here] ^= 1 << random.below(8),
        "zero" => {
            let start = here & !511;
            let end = (start + 512).min(length as usize);
            bytes[start..end].fill(0);
        }
        _ => bytes.truncate(here),
    }
    fs::write(file, bytes)
}

/// All files that have something in them, with their lengths.
fn list(root: &Path, inside: &Path, found: &mut Vec<(PathBuf, u64)>) -> io::Result<()> {
    let mut entries: Vec<_> = fs::read_dir(root.join(inside))?.collect::<Result<_, _>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let path = inside.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            list(root, &path, found)?;
        } else if entry.metadata()?.len() > 0 {
            found.push((path, entry.metadata()?.len()));
        }
    }
    Ok(())
}

fn copy_dir(from: &Path, to: &Path) -> io::Result<()> {
    // Not there the first time.
    let _ = fs::remove_dir_all(to);
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_dir(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}
