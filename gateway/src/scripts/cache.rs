//! The scripts that are known, by their SHA-1.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};
use script::{Footprint, Script};
use sha1::{Digest, Sha1};
use store_engine::CommandError;

use crate::config::Config;
use crate::scripts::header::Header;
use crate::scripts::options::Options;
use crate::telemetry::script_stats::Stats;

/// SHA-1 of a script's text.
pub type Sha = [u8; 20];

/// The digest of `text`.
pub fn sha_of(text: &[u8]) -> Sha {
    Sha1::digest(text).into()
}

/// [`sha_of`] of a text that may be long: others have their turn in between.
pub async fn sha_in_pieces(text: &[u8]) -> Sha {
    const PIECE_BYTES: usize = 1 << 20;
    if text.len() <= PIECE_BYTES {
        return sha_of(text);
    }
    let mut digest = Sha1::new();
    for piece in text.chunks(PIECE_BYTES) {
        digest.update(piece);
        tokio::task::yield_now().await;
    }
    digest.finalize().into()
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

impl Known {
    /// The same script in another state: not yet compiled, or with other flags.
    fn replaced(&self, script: Arc<Script>, options: Options) -> Arc<Known> {
        Arc::new(Known {
            sha: self.sha.clone(),
            script,
            header: self.header.clone(),
            options,
            stats: self.stats.clone(),
            shebang: self.shebang.clone(),
            pinned: AtomicBool::new(self.is_pinned()),
            used: AtomicU64::new(self.used.load(Ordering::Relaxed)),
        })
    }
}

/// The cache. EVALed scripts beyond its limits are dropped, least recently used first; SCRIPT LOADed ones stay, but their
/// images may be dropped, too, and new ones are refused where there is no room for their texts.
pub struct Scripts {
    config: Arc<Config>,
    /// Texts and images, also of scripts that are running and no longer in the cache.
    footprint: Arc<Footprint>,
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
    /// An empty cache. `script-cache-max` and `script-cache-max-bytes` are its limits.
    pub fn new(config: Arc<Config>) -> Scripts {
        Scripts {
            config,
            footprint: Arc::default(),
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
        // Runs add images.
        if self.footprint.bytes() > self.config.script_cache_max_bytes.get_usize() {
            self.free_bytes(&mut self.known.write());
        }
        Some(known)
    }

    /// The script with this digest and text, added if it is new. Errors are those of its header.
    pub fn get_or_add(&self, sha: Sha, text: &[u8]) -> Result<Arc<Known>, CommandError> {
        match self.get(&sha) {
            Some(known) => Ok(known),
            None => self.add(sha, text, None),
        }
    }

    /// A script with this text, without its first line, whose bytes count as those of the cache.
    pub fn new_script(&self, body: &[u8]) -> Arc<Script> {
        Arc::new(Script::counted(body, &self.footprint))
    }

    /// Adds a script that is new, and is `compiled` if that was done already.
    fn add(&self, sha: Sha, text: &[u8], compiled: Option<&Arc<Script>>) -> Result<Arc<Known>, CommandError> {
        let (header, body) = Header::parse(text)?;
        let flags = self.flags.lock();
        let added = Arc::new(Known {
            sha: spelled(&sha),
            script: compiled.map_or_else(|| self.new_script(&body), Arc::clone),
            shebang: text[..text.len() - body.len()].into(),
            options: header.options.over(flags.get(&sha).copied().unwrap_or_default()),
            header,
            stats: Arc::default(),
            pinned: AtomicBool::new(false),
            used: AtomicU64::new(self.clock.fetch_add(1, Ordering::Relaxed)),
        });
        let mut known = self.known.write();
        drop(flags);
        self.make_room(&mut known);
        // One that takes most of the room would cost all others theirs. It is run, and forgotten.
        if compiled.is_none() && text.len() > self.config.script_cache_max_bytes.get_usize() / 4 {
            return Ok(added);
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
            *known = known.replaced(known.script.clone(), known.header.options.over(said));
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

    /// Drops scripts that are not pinned beyond `script-cache-max`, least recently used first: a tenth of the limit at
    /// a time, so that a flood of new texts looks over the cache once per many insertions. Then [`Scripts::free_bytes`].
    fn make_room(&self, known: &mut ByDigest<Arc<Known>>) {
        let most = self.config.script_cache_max.get_usize();
        if known.len() >= most {
            let loose = by_age(known, |script| !script.is_pinned());
            if loose.len() >= most {
                let surplus = loose.len() - most + most.div_ceil(10);
                self.evict(known, loose.into_iter().take(surplus));
            }
        }
        if self.footprint.bytes() > self.config.script_cache_max_bytes.get_usize() {
            self.free_bytes(known);
        }
    }

    /// Drops scripts that are not pinned, then images of pinned ones, least recently used first, until a tenth of
    /// `script-cache-max-bytes` is free. What is running stays in memory until it ends.
    fn free_bytes(&self, known: &mut ByDigest<Arc<Known>>) {
        let wanted = self.config.script_cache_max_bytes.get_usize() / 10 * 9;
        let mut surplus = self.footprint.bytes().saturating_sub(wanted);
        let mut goes = |bytes: usize| {
            let goes = surplus > 0;
            surplus = surplus.saturating_sub(bytes);
            goes
        };
        let loose = by_age(known, |script| !script.is_pinned());
        let gone: Vec<Sha> = loose.into_iter().take_while(|sha| goes(known[sha].script.bytes())).collect();
        self.evict(known, gone.into_iter());
        let pinned = by_age(known, |script| script.is_pinned() && script.script.image_bytes() > 0);
        for sha in pinned {
            let Some(held) = known.get_mut(&sha) else { continue };
            if !goes(held.script.image_bytes()) {
                break;
            }
            *held = held.replaced(self.new_script(held.script.source()), held.options);
        }
    }

    fn evict(&self, known: &mut ByDigest<Arc<Known>>, gone: impl Iterator<Item = Sha>) {
        let count = gone.filter(|sha| known.remove(sha).is_some()).count();
        self.evicted.fetch_add(count as u64, Ordering::Relaxed);
    }

    /// An error if a script with this text cannot be kept by SCRIPT LOAD, since others were loaded whose texts take the
    /// room.
    pub fn has_room_for(&self, text: &[u8]) -> Result<(), CommandError> {
        let known = self.known.read();
        if known.get(&sha_of(text)).is_some_and(|held| held.is_pinned()) {
            return Ok(());
        }
        let pinned = known.values().filter(|script| script.is_pinned());
        let held: usize = pinned.map(|script| script.script.source().len()).sum();
        let most = self.config.script_cache_max_bytes.get_usize();
        if held + text.len() <= most {
            return Ok(());
        }
        Err(CommandError::owned(format!(
            "SCRIPTLIMIT cache: scripts of {held} bytes are loaded and this one has {} bytes; \
             the limit of {most} bytes is set by script-cache-max-bytes, SCRIPT FLUSH frees them",
            text.len()
        )))
    }

    /// Keeps the script with this text until [`Scripts::flush`]; `compiled` is it, if it is not known yet. While it was
    /// compiled it may have been forgotten, or SCRIPT FLAGS may have put another in its place.
    pub fn pin(&self, text: &[u8], compiled: &Arc<Script>) -> Result<Arc<Known>, CommandError> {
        let sha = sha_of(text);
        loop {
            let known = match self.get(&sha) {
                Some(known) => known,
                None => self.add(sha, text, Some(compiled))?,
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
        (self.known.read().len(), self.footprint.bytes())
    }

    /// Scripts dropped for room since the start.
    pub fn evicted(&self) -> u64 {
        self.evicted.load(Ordering::Relaxed)
    }
}

/// The digests of those scripts that are `wanted`, least recently used first.
fn by_age(known: &ByDigest<Arc<Known>>, wanted: impl Fn(&Known) -> bool) -> Vec<Sha> {
    let wanted = known.iter().filter(|(_, script)| wanted(script));
    let mut found: Vec<(u64, Sha)> =
        wanted.map(|(sha, script)| (script.used.load(Ordering::Relaxed), *sha)).collect();
    found.sort_unstable();
    found.into_iter().map(|(_, sha)| sha).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scripts() -> Scripts {
        Scripts::new(Arc::new(Config::defaults()))
    }

    #[test]
    fn texts_beyond_the_limit_of_bytes_are_dropped_or_refused() {
        let config = Arc::new(Config::defaults());
        config.script_cache_max_bytes.set(10_000);
        let scripts = Scripts::new(config);
        let text = |number: usize| format!("return {number} --{}", "x".repeat(1000)).into_bytes();
        let loaded = text(0);
        scripts.has_room_for(&loaded).unwrap();
        scripts.pin(&loaded, &scripts.new_script(&loaded)).unwrap();
        for number in 1..100 {
            scripts.get_or_add(sha_of(&text(number)), &text(number)).unwrap();
            assert!(scripts.usage().1 <= 10_000 + 1100);
        }
        assert!(scripts.get(&sha_of(&text(99))).is_some() && scripts.get(&sha_of(&loaded)).is_some());
        assert!(scripts.get(&sha_of(&text(1))).is_none() && scripts.evicted() > 80);
        // One that is much of the limit is not remembered.
        let large = [&b"return 1 --"[..], &[b'x'; 3000]].concat();
        scripts.get_or_add(sha_of(&large), &large).unwrap();
        assert!(scripts.get(&sha_of(&large)).is_none());
        for number in 100..108 {
            scripts.has_room_for(&text(number)).unwrap();
            scripts.pin(&text(number), &scripts.new_script(&text(number))).unwrap();
        }
        let error = scripts.has_room_for(&text(108)).unwrap_err();
        assert!(error.text().starts_with("SCRIPTLIMIT cache: scripts of "), "{}", error.text());
        scripts.has_room_for(&loaded).expect("it is there already");
        scripts.flush();
        assert_eq!(scripts.usage(), (0, 0));
    }

    #[test]
    fn what_is_loaded_stays_although_it_was_forgotten_in_the_meantime() {
        let (scripts, text) = (scripts(), b"return 1");
        let known = scripts.get_or_add(sha_of(text), text).unwrap();
        scripts.flush();
        let kept = scripts.pin(text, &known.script).unwrap();
        assert!(kept.is_pinned() && !known.is_pinned() && scripts.is_pinned(&sha_of(text)));
        assert!(Arc::ptr_eq(&kept.script, &known.script), "it is compiled once");
        let mut said = Options::default();
        said.set("fuel", "7").unwrap();
        scripts.add_flags(&sha_of(text), said).unwrap();
        assert!(scripts.is_pinned(&sha_of(text)), "another has taken its place");
        assert_eq!(scripts.pin(text, &known.script).unwrap().options.fuel, Some(7));
    }

    #[test]
    fn what_is_kept_elsewhere_no_longer_goes() {
        let scripts = scripts();
        for text in [&b"return 1"[..], b"return 2"] {
            scripts.pin(text, &Arc::new(Script::new(text))).unwrap();
        }
        scripts.get_or_add(sha_of(b"return 3"), b"return 3").unwrap();
        scripts.keep_only(&HashSet::from([sha_of(b"return 2")]));
        let left: Vec<_> = [&b"return 1"[..], b"return 2", b"return 3"]
            .map(|text| scripts.get(&sha_of(text)).is_some())
            .into();
        assert_eq!(left, [false, true, true]);
    }
}
