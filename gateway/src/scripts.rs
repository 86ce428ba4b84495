//! The scripts that are known, by their SHA-1.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};
use script::Script;
use sha1::{Digest, Sha1};
use store_engine::CommandError;

use crate::header::Header;
use crate::options::Options;
use crate::stats::Stats;

/// SHA-1 of a script's text.
pub type Sha = [u8; 20];

/// The digest of `text`.
pub fn sha_of(text: &[u8]) -> Sha {
    Sha1::digest(text).into()
}

/// The digest as clients spell it.
pub fn spelled(sha: &Sha) -> String {
    sha.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The digest that `hex` spells, in any case.
pub fn parse_sha(hex: &[u8]) -> Option<Sha> {
    if hex.len() != 40 {
        return None;
    }
    let mut sha = [0; 20];
    for (byte, pair) in sha.iter_mut().zip(hex.chunks_exact(2)) {
        let digit = |c: u8| char::from(c).to_digit(16);
        *byte = (digit(pair[0])? * 16 + digit(pair[1])?) as u8;
    }
    Some(sha)
}

/// A script with what its header says.
pub struct Known {
    /// Its digest as clients spell it.
    pub sha: String,
    /// Source and compiled image. The source lacks the shebang.
    pub script: Arc<Script>,
    /// What the header says.
    pub header: Header,
    /// The header before what SCRIPT FLAGS said.
    pub options: Options,
    /// What its runs did.
    pub stats: Arc<Stats>,
    /// The shebang's line.
    shebang: Box<[u8]>,
    /// SCRIPT LOADed: kept until SCRIPT FLUSH.
    pinned: AtomicBool,
    /// When it was last used, in lookups since the start.
    used: AtomicU64,
}

impl Known {
    /// The text as it was loaded.
    pub fn text(&self) -> Vec<u8> {
        [&*self.shebang, self.script.source()].concat()
    }

    /// Whether it stays until SCRIPT FLUSH.
    pub fn is_pinned(&self) -> bool {
        self.pinned.load(Ordering::Relaxed)
    }
}

/// The cache. EVALed scripts beyond its limit are dropped, least recently used first; SCRIPT LOADed ones stay.
pub struct Scripts {
    known: RwLock<ByDigest<Arc<Known>>>,
    /// What SCRIPT FLAGS said, also of scripts that are not there yet.
    flags: Mutex<ByDigest<Options>>,
    clock: AtomicU64,
    evicted: AtomicU64,
}

type ByDigest<T> = HashMap<Sha, T, foldhash::fast::RandomState>;

/// Most scripts that SCRIPT FLAGS may speak of.
const MOST_FLAGGED: usize = 10_000;

impl Scripts {
    /// An empty cache.
    pub fn new() -> Scripts {
        Scripts {
            known: RwLock::default(),
            flags: Mutex::default(),
            clock: AtomicU64::new(0),
            evicted: AtomicU64::new(0),
        }
    }

    /// The script with this digest.
    pub fn get(&self, sha: &Sha) -> Option<Arc<Known>> {
        let known = self.known.read().get(sha).cloned()?;
        known.used.store(self.clock.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        Some(known)
    }

    /// The script with this text, added if it is new; of those that are only EVALed `most` are kept. Errors are
    /// those of its header.
    pub fn get_or_add(&self, text: &[u8], most: usize) -> Result<Arc<Known>, CommandError> {
        let sha = sha_of(text);
        match self.get(&sha) {
            Some(known) => Ok(known),
            None => self.add(sha, text, None, most),
        }
    }

    /// Adds a script that is new, and is `compiled` if somebody has done that already.
    fn add(
        &self,
        sha: Sha,
        text: &[u8],
        compiled: Option<&Arc<Script>>,
        most: usize,
    ) -> Result<Arc<Known>, CommandError> {
        let (header, body) = Header::parse(text)?;
        let flags = self.flags.lock();
        let added = Arc::new(Known {
            sha: spelled(&sha),
            script: compiled.map_or_else(|| Arc::new(Script::new(&body)), Arc::clone),
            shebang: text[..text.len() - body.len()].into(),
            options: header.options.over(flags.get(&sha).copied().unwrap_or_default()),
            header,
            stats: Arc::default(),
            pinned: AtomicBool::new(false),
            used: AtomicU64::new(self.clock.fetch_add(1, Ordering::Relaxed)),
        });
        let mut known = self.known.write();
        drop(flags);
        if known.len() >= most {
            self.make_room(&mut known, most);
        }
        Ok(known.entry(sha).or_insert(added).clone())
    }

    /// SCRIPT FLAGS: adds to what was said of a script before, whether it is there or not.
    /// Returns all that was said of it.
    pub fn add_flags(&self, sha: &Sha, options: Options) -> Result<Options, CommandError> {
        let mut flags = self.flags.lock();
        if flags.len() >= MOST_FLAGGED && !flags.contains_key(sha) {
            return Err(CommandError::owned(format!(
                "ERR Flags are already stored for {MOST_FLAGGED} scripts, SCRIPT FLUSH removes them"
            )));
        }
        let said = flags.entry(*sha).or_default();
        *said = options.over(*said);
        let said = *said;
        if let Some(known) = self.known.write().get_mut(sha) {
            *known = Arc::new(Known {
                sha: known.sha.clone(),
                script: known.script.clone(),
                shebang: known.shebang.clone(),
                options: known.header.options.over(said),
                header: known.header.clone(),
                stats: known.stats.clone(),
                pinned: AtomicBool::new(known.pinned.load(Ordering::Relaxed)),
                used: AtomicU64::new(known.used.load(Ordering::Relaxed)),
            });
        }
        Ok(said)
    }

    /// What is said of a script, by its header and by SCRIPT FLAGS.
    pub fn options(&self, sha: &Sha) -> Options {
        match self.known.read().get(sha) {
            Some(known) => known.options,
            None => self.flags.lock().get(sha).copied().unwrap_or_default(),
        }
    }

    /// All scripts, by digest.
    pub fn all(&self) -> Vec<Arc<Known>> {
        let mut all: Vec<_> = self.known.read().values().cloned().collect();
        all.sort_unstable_by(|a, b| a.sha.cmp(&b.sha));
        all
    }

    /// Drops the least recently used of the scripts that are not pinned, a tenth of the limit at a time, so
    /// that a flood of new texts looks over the cache once per many insertions.
    fn make_room(&self, known: &mut ByDigest<Arc<Known>>, most: usize) {
        let mut loose: Vec<(u64, Sha)> = known
            .iter()
            .filter(|(_, script)| !script.pinned.load(Ordering::Relaxed))
            .map(|(sha, script)| (script.used.load(Ordering::Relaxed), *sha))
            .collect();
        if loose.len() < most {
            return;
        }
        let surplus = loose.len() - most + most.div_ceil(10);
        loose.sort_unstable();
        for (_, sha) in loose.iter().take(surplus) {
            known.remove(sha);
        }
        self.evicted.fetch_add(surplus.min(loose.len()) as u64, Ordering::Relaxed);
    }

    /// Keeps the script with this text until [`Scripts::flush`]; `compiled` is it, if it is not known yet. While it was
    /// compiled it may have been forgotten, or SCRIPT FLAGS may have put another in its place.
    pub fn pin(&self, text: &[u8], compiled: &Arc<Script>, most: usize) -> Result<Arc<Known>, CommandError> {
        let sha = sha_of(text);
        loop {
            let known = match self.get(&sha) {
                Some(known) => known,
                None => self.add(sha, text, Some(compiled), most)?,
            };
            let all = self.known.read();
            if all.get(&sha).is_some_and(|held| Arc::ptr_eq(held, &known)) {
                known.pinned.store(true, Ordering::Relaxed);
                return Ok(known);
            }
        }
    }

    /// Forgets a script that does not compile, as Redis does.
    pub fn forget(&self, known: &Arc<Known>) {
        let mut all = self.known.write();
        if let Some(sha) = parse_sha(known.sha.as_bytes())
            && all.get(&sha).is_some_and(|held| Arc::ptr_eq(held, known) && !held.is_pinned())
        {
            all.remove(&sha);
        }
    }

    /// Whether a script is to be kept.
    pub fn is_pinned(&self, sha: &Sha) -> bool {
        self.known.read().get(sha).is_some_and(|known| known.pinned.load(Ordering::Relaxed))
    }

    /// Forgets those of the scripts to be kept that are not among `kept`.
    pub fn keep_only(&self, kept: &HashSet<Sha>) {
        let goes = |sha: &Sha, known: &Known| known.pinned.load(Ordering::Relaxed) && !kept.contains(sha);
        self.known.write().retain(|sha, known| !goes(sha, known));
    }

    /// Forgets all scripts, and what SCRIPT FLAGS said.
    pub fn flush(&self) {
        self.flags.lock().clear();
        self.known.write().clear();
    }

    /// Number of scripts, and bytes of their texts and images.
    pub fn usage(&self) -> (usize, usize) {
        let known = self.known.read();
        (known.len(), known.values().map(|script| script.script.bytes()).sum())
    }

    /// Scripts dropped for room since the start.
    pub fn evicted(&self) -> u64 {
        self.evicted.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_loaded_stays_although_it_was_forgotten_in_the_meantime() {
        let (scripts, text) = (Scripts::new(), b"return 1");
        let known = scripts.get_or_add(text, 9).unwrap();
        scripts.flush();
        let kept = scripts.pin(text, &known.script, 9).unwrap();
        assert!(kept.is_pinned() && !known.is_pinned() && scripts.is_pinned(&sha_of(text)));
        assert!(Arc::ptr_eq(&kept.script, &known.script), "it is compiled once");
        let mut said = Options::default();
        said.set("fuel", "7").unwrap();
        scripts.add_flags(&sha_of(text), said).unwrap();
        assert!(scripts.is_pinned(&sha_of(text)), "another has taken its place");
        assert_eq!(scripts.pin(text, &known.script, 9).unwrap().options.fuel, Some(7));
    }

    #[test]
    fn what_is_kept_elsewhere_no_longer_goes() {
        let scripts = Scripts::new();
        for text in [&b"return 1"[..], b"return 2"] {
            scripts.pin(text, &Arc::new(Script::new(text)), 9).unwrap();
        }
        scripts.get_or_add(b"return 3", 9).unwrap();
        scripts.keep_only(&HashSet::from([sha_of(b"return 2")]));
        let left: Vec<_> = [&b"return 1"[..], b"return 2", b"return 3"]
            .map(|text| scripts.get(&sha_of(text)).is_some())
            .into();
        assert_eq!(left, [false, true, true]);
    }
}
