//! A set of rules that allows calls by itself: which commands, which keys, which channels.

use std::collections::BTreeMap;

use store_engine::{Args, glob};

use super::commands::{Allowed, CATEGORIES, Commands, Id, Needs, category};
use crate::registry::info::need;

/// What is wrong with a rule, in Redis' words.
pub type Wrong = &'static str;

/// A rule that means nothing.
pub const SYNTAX: Wrong = "Syntax error";
/// A name that is none.
pub const UNKNOWN: Wrong = "Unknown command or category name in ACL";
const ALL_KEYS: Wrong = "Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and does not \
                         have any effect. Try 'resetkeys' to start with an empty list of patterns";
const ALL_CHANNELS: Wrong = "Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid and \
                             does not have any effect. Try 'resetchannels' to start with an empty list of \
                             channels";
const OF_SUBCOMMAND: Wrong = "Allowing first-arg of a subcommand is not supported";

/// Keys that may be read, written or both.
#[derive(Clone, PartialEq, Eq)]
struct Keys {
    /// Of [`need`].
    access: u8,
    pattern: Box<[u8]>,
}

impl Keys {
    fn shown(&self) -> Vec<u8> {
        let kind: &[u8] = match self.access {
            need::READ => b"%R~",
            need::WRITE => b"%W~",
            _ => b"~",
        };
        [kind, &self.pattern].concat()
    }
}

/// The rules.
#[derive(Clone)]
pub struct Selector {
    allowed: Allowed,
    /// Nothing is taken from `+@all`: no command has to be looked up.
    all_commands: bool,
    /// They began with `+@all`: commands that come with a later version are allowed.
    future: bool,
    /// First arguments with which a command is allowed that is not.
    first_args: BTreeMap<Id, Vec<Box<[u8]>>>,
    all_keys: bool,
    keys: Vec<Keys>,
    all_channels: bool,
    channels: Vec<Box<[u8]>>,
}

/// What is not allowed, from the least to the most specific; the number is the argument's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Denied {
    /// The command.
    Command,
    /// A key.
    Key(usize),
    /// A channel.
    Channel(usize),
}

/// Whether `op` is one of these words.
pub fn is_word(op: &[u8], words: &[&str]) -> bool {
    words.iter().any(|word| op.eq_ignore_ascii_case(word.as_bytes()))
}

/// Whether a name or pattern would fall apart in a list.
pub fn has_spaces(text: &[u8]) -> bool {
    text.iter().any(|byte| byte.is_ascii_whitespace() || matches!(byte, 0 | 11))
}

impl Selector {
    /// Nothing is allowed, but for all channels if that is the default.
    pub fn new(commands: &Commands, all_channels: bool) -> Selector {
        Selector {
            allowed: Allowed::every(commands, false),
            all_commands: false,
            future: false,
            first_args: BTreeMap::new(),
            all_keys: false,
            keys: Vec::new(),
            all_channels,
            channels: Vec::new(),
        }
    }

    /// Applies a rule.
    pub fn apply(&mut self, commands: &Commands, op: &[u8]) -> Result<(), Wrong> {
        match op {
            _ if is_word(op, &["allkeys", "~*"]) => self.set_all_keys(true),
            _ if is_word(op, &["resetkeys"]) => self.set_all_keys(false),
            _ if is_word(op, &["allchannels", "&*"]) => self.set_all_channels(true),
            _ if is_word(op, &["resetchannels"]) => self.set_all_channels(false),
            _ if is_word(op, &["allcommands", "+@all"]) => self.set_all_commands(commands, true),
            _ if is_word(op, &["nocommands", "-@all"]) => self.set_all_commands(commands, false),
            [b'~', pattern @ ..] => self.add_keys(need::READ | need::WRITE, pattern)?,
            [b'%', rest @ ..] => {
                let end = rest.iter().position(|byte| *byte == b'~');
                let (letters, pattern) = rest.split_at(end.unwrap_or(rest.len()));
                let mut access = 0;
                for letter in letters {
                    let bit = match letter.to_ascii_uppercase() {
                        b'R' => need::READ,
                        b'W' => need::WRITE,
                        _ => return Err(if self.all_keys { ALL_KEYS } else { SYNTAX }),
                    };
                    if access & bit != 0 {
                        return Err(if self.all_keys { ALL_KEYS } else { SYNTAX });
                    }
                    access |= bit;
                }
                if access == 0 {
                    return Err(if self.all_keys { ALL_KEYS } else { SYNTAX });
                }
                self.add_keys(access, pattern.get(1..).unwrap_or_default())?;
            }
            [b'&', pattern @ ..] => self.add_channel(pattern)?,
            [sign @ (b'+' | b'-'), b'@', name @ ..] => {
                let category = category(name).ok_or(UNKNOWN)?;
                self.allowed.set_category(commands, category, *sign == b'+');
                for id in commands.of_category(category) {
                    self.first_args.remove(id);
                }
                self.all_commands &= *sign == b'+';
            }
            [b'+', name @ ..] => self.allow(commands, name)?,
            [b'-', name @ ..] => {
                let id = commands.find(name).ok_or(UNKNOWN)?;
                self.set_command(commands, id, false);
            }
            _ => return Err(SYNTAX),
        }
        Ok(())
    }

    fn set_all_keys(&mut self, all: bool) {
        self.all_keys = all;
        self.keys.clear();
    }

    fn set_all_channels(&mut self, all: bool) {
        self.all_channels = all;
        self.channels.clear();
    }

    fn set_all_commands(&mut self, commands: &Commands, all: bool) {
        self.allowed = Allowed::every(commands, all);
        (self.all_commands, self.future) = (all, all);
        self.first_args.clear();
    }

    fn set_command(&mut self, commands: &Commands, id: Id, allowed: bool) {
        self.allowed.set_whole(commands, id, allowed);
        self.first_args.remove(&id);
        self.all_commands &= allowed;
    }

    fn add_keys(&mut self, access: u8, pattern: &[u8]) -> Result<(), Wrong> {
        if self.all_keys {
            return Err(ALL_KEYS);
        }
        if has_spaces(pattern) {
            return Err(SYNTAX);
        }
        match self.keys.iter_mut().find(|keys| *keys.pattern == *pattern) {
            Some(keys) => keys.access |= access,
            None => self.keys.push(Keys { access, pattern: pattern.into() }),
        }
        Ok(())
    }

    fn add_channel(&mut self, pattern: &[u8]) -> Result<(), Wrong> {
        if self.all_channels {
            return Err(ALL_CHANNELS);
        }
        if has_spaces(pattern) {
            return Err(SYNTAX);
        }
        if !self.channels.iter().any(|known| **known == *pattern) {
            self.channels.push(pattern.into());
        }
        Ok(())
    }

    /// `+command`, `+command|subcommand` or `+command|first-argument`.
    fn allow(&mut self, commands: &Commands, name: &[u8]) -> Result<(), Wrong> {
        let Some(bar) = name.iter().rposition(|byte| *byte == b'|') else {
            let id = commands.find(name).ok_or(UNKNOWN)?;
            self.set_command(commands, id, true);
            return Ok(());
        };
        let (outer, word) = (commands.find(&name[..bar]).ok_or(UNKNOWN)?, &name[bar + 1..]);
        if commands.entry(outer).is_inner {
            return Err(OF_SUBCOMMAND);
        }
        // Redis takes words with spaces, and cannot read its own list of them.
        if word.is_empty() || has_spaces(word) {
            return Err(SYNTAX);
        }
        if !commands.entry(outer).subcommands.is_empty() {
            let id = commands.find(name).ok_or(UNKNOWN)?;
            self.set_command(commands, id, true);
            return Ok(());
        }
        let words = self.first_args.entry(outer).or_default();
        if !words.iter().any(|known| known.eq_ignore_ascii_case(word)) {
            words.push(word.into());
        }
        Ok(())
    }

    /// Whether nothing can be refused.
    pub fn allows_everything(&self) -> bool {
        self.all_commands && self.all_keys && self.all_channels
    }

    /// Whether all channels are allowed.
    pub fn allows_all_channels(&self) -> bool {
        self.all_channels
    }

    /// The patterns of channels.
    pub fn channels(&self) -> impl Iterator<Item = &[u8]> {
        self.channels.iter().map(|pattern| &**pattern)
    }

    /// Whether every key may be read.
    pub fn reads_all_keys(&self) -> bool {
        let is_all = |keys: &Keys| keys.access & need::READ != 0 && *keys.pattern == *b"*";
        self.all_keys || self.keys.iter().any(is_all)
    }

    /// Checks a call of command `id`; `keys` are found when they are first needed.
    pub fn check(
        &self,
        commands: &Commands,
        id: Id,
        args: Args<'_>,
        keys: &mut Option<Needs>,
    ) -> Result<(), Denied> {
        let entry = commands.entry(id);
        if !self.all_commands && !entry.for_everyone && !self.allowed.has(id) {
            let word = args.get(if entry.is_inner { 2 } else { 1 });
            let words = self.first_args.get(&id);
            let is_allowed = word
                .zip(words)
                .is_some_and(|(word, words)| words.iter().any(|known| known.eq_ignore_ascii_case(word)));
            if !is_allowed {
                return Err(Denied::Command);
            }
        }
        if !self.all_keys {
            let keys = keys.get_or_insert_with(|| entry.keys(args));
            let denied = keys.iter().find(|(at, needs)| !self.allows_key(args[*at], *needs));
            if let Some((at, _)) = denied {
                return Err(Denied::Key(*at));
            }
        }
        if !self.all_channels
            && let Some((mut channels, is_pattern)) = entry.channels(args)
            && let Some(at) = channels.find(|at| !allows_channel(self.channels(), args[*at], is_pattern))
        {
            return Err(Denied::Channel(at));
        }
        Ok(())
    }

    fn allows_key(&self, key: &[u8], needs: u8) -> bool {
        self.keys.iter().any(|keys| keys.access & needs == needs && glob::matches(&keys.pattern, key))
    }

    /// The rules about commands, as they could be given. The shortest is not looked for: as in Redis 7.0, categories
    /// are taken as long as one has more in common with what is allowed than not, and single commands make up
    /// for the rest.
    pub fn show_commands(&self, commands: &Commands) -> Vec<u8> {
        let adds = !self.future;
        let mut shown = if adds { b"-@all".to_vec() } else { b"+@all".to_vec() };
        let mut described = Allowed::every(commands, !adds);
        let mut left = self.allowed.clone();
        let mut taken = 0;
        loop {
            let mut best: Option<(usize, usize, usize)> = None;
            for at in (0..CATEGORIES.len()).filter(|at| taken & (1 << at) == 0) {
                let (on, off) = left.count(commands, at);
                let (differ, agree) = if adds { (off, on) } else { (on, off) };
                let is_better =
                    best.is_none_or(|(_, least, most)| differ < least || (differ == least && agree > most));
                if agree > differ && is_better {
                    best = Some((at, differ, agree));
                }
            }
            let Some((at, ..)) = best else { break };
            taken |= 1 << at;
            described.set_category(commands, at, adds);
            left.set_category(commands, at, !adds);
            shown.extend_from_slice(if adds { b" +@" } else { b" -@" });
            shown.extend_from_slice(CATEGORIES[at].as_bytes());
        }
        for (id, entry) in commands.all() {
            let is_allowed = self.allowed.has(id);
            if is_allowed != described.has(id) {
                described.set_whole(commands, id, is_allowed);
                shown.extend_from_slice(if is_allowed { b" +" } else { b" -" });
                shown.extend_from_slice(entry.name.as_bytes());
            }
            let words = self.first_args.get(&id).filter(|_| !is_allowed);
            for word in words.into_iter().flatten() {
                shown.extend_from_slice(&[b" +", entry.name.as_bytes(), b"|", word].concat());
            }
        }
        shown
    }

    /// The patterns of keys, as they could be given.
    pub fn show_keys(&self) -> Vec<u8> {
        if self.all_keys {
            return b"~*".to_vec();
        }
        let mut shown: Vec<_> = self.keys.iter().map(Keys::shown).collect();
        // Beside others this would be a rule that goes with none; Redis cannot read its own list of them.
        if shown.len() > 1 {
            shown.iter_mut().filter(|rule| **rule == b"~*").for_each(|rule| *rule = b"%RW~*".to_vec());
        }
        shown.join(&b' ')
    }

    /// The patterns of channels, as they could be given.
    pub fn show_channels(&self) -> Vec<u8> {
        if self.all_channels {
            return b"&*".to_vec();
        }
        self.channels().map(|pattern| [b"&", pattern].concat()).collect::<Vec<_>>().join(&b' ')
    }

    /// All rules, as they could be given.
    pub fn show(&self, commands: &Commands) -> Vec<u8> {
        let mut parts = Vec::new();
        let keys = self.show_keys();
        if !keys.is_empty() {
            parts.push(keys);
        }
        if !self.all_channels {
            parts.push(b"resetchannels".to_vec());
        }
        let channels = self.show_channels();
        if !channels.is_empty() {
            parts.push(channels);
        }
        parts.push(self.show_commands(commands));
        parts.join(&b' ')
    }
}

/// Whether one of these patterns allows a channel; a pattern of PSUBSCRIBE has to be among them as it is.
pub fn allows_channel<'a>(
    mut patterns: impl Iterator<Item = &'a [u8]>,
    channel: &[u8],
    is_pattern: bool,
) -> bool {
    patterns.any(|known| if is_pattern { known == channel } else { glob::matches(known, channel) })
}
