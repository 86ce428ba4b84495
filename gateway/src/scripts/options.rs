//! How a script wants to be run: flags and values, said by its header, by SCRIPT FLAGS, or by the configuration.

use std::time::Duration;

use script::Budget;

use crate::config::{Choice, Config, SCRIPT_FLAGS, parse_bytes};

pub use crate::config::{OnError, UndeclaredKeys};

/// Flags, a bit each, in the order of [`SCRIPT_FLAGS`].
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Flags(pub u64);

impl Flags {
    /// It may not write.
    pub const NO_WRITES: Flags = Flags(1);
    /// Each call is a command of its own: nothing is locked and nothing undone.
    pub const DISABLE_ATOMICITY: Flags = Flags(1 << 5);
    /// The keys it does not declare are locked when it comes to them; Dragonfly's word for
    /// [`UndeclaredKeys::Widen`].
    pub const ALLOW_UNDECLARED_KEYS: Flags = Flags(1 << 6);

    /// It is rolled back when it has ended, and reports what it would have changed.
    pub const DRY_RUN: Flags = Flags(1 << 8);

    /// It is traced always, and not only as often as all requests are.
    pub const TRACE: Flags = Flags(1 << 9);

    /// It may run when memory is full.
    pub const ALLOW_OOM: Flags = Flags(1 << 1);

    /// Whether a script with these may run when memory is full: it does not write, or is allowed to.
    pub fn spares_memory(self) -> bool {
        self.has(Flags::ALLOW_OOM) || self.has(Flags::NO_WRITES)
    }

    /// Whether all of `flags` are set.
    pub fn has(self, flags: Flags) -> bool {
        self.0 & flags.0 == flags.0
    }

    /// The flag of this name.
    pub fn named(name: &str) -> Option<Flags> {
        SCRIPT_FLAGS.split('|').position(|flag| flag == name).map(|at| Flags(1 << at))
    }

    /// The names of all that are set.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        SCRIPT_FLAGS
            .split('|')
            .enumerate()
            .filter(move |(at, _)| self.0 & (1 << at) != 0)
            .map(|(_, name)| name)
    }
}

/// How a script is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScriptMode {
    /// No other client sees a state between.
    Atomic,
    /// The same, and it writes nothing.
    ReadOnly,
    /// Each of its calls is a command of its own.
    Async,
}

impl ScriptMode {
    /// All of them.
    pub const ALL: [ScriptMode; 3] = [ScriptMode::Atomic, ScriptMode::ReadOnly, ScriptMode::Async];

    /// Its word.
    pub const fn word(self) -> &'static str {
        match self {
            ScriptMode::Atomic => "atomic",
            ScriptMode::ReadOnly => "read-only",
            ScriptMode::Async => "async",
        }
    }
}

/// What a source says. What it does not say is left to the source below.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Options {
    /// Flags; those of all sources count.
    pub flags: Flags,
    /// `fuel=N`
    pub fuel: Option<u64>,
    /// `timeout=N`, in milliseconds.
    pub timeout_ms: Option<u64>,
    /// `memory=SIZE`, in bytes.
    pub memory_bytes: Option<u64>,
    /// `on-error=keep|rollback`
    pub on_error: Option<OnError>,
    /// `undeclared-keys=widen|reject`
    pub undeclared_keys: Option<UndeclaredKeys>,
}

/// A word that is no option.
#[derive(Debug, PartialEq, Eq)]
pub enum BadOption {
    /// There is no such flag.
    Flag(String),
    /// There is no such key.
    Key(String),
    /// The key cannot have this value: the word, and what was expected.
    Value(String, &'static str),
}

impl Options {
    /// How a script is run; `read_only` if it may not write.
    pub fn mode(&self, read_only: bool) -> ScriptMode {
        match (self.flags.has(Flags::DISABLE_ATOMICITY), read_only) {
            (true, _) => ScriptMode::Async,
            (_, true) => ScriptMode::ReadOnly,
            (_, false) => ScriptMode::Atomic,
        }
    }

    /// The same without giving up atomicity, as it is run in a transaction.
    pub fn within_exec(mut self) -> Options {
        self.flags.0 &= !Flags::DISABLE_ATOMICITY.0;
        self
    }

    /// This source before `lower`.
    pub fn over(self, lower: Options) -> Options {
        Options {
            flags: Flags(self.flags.0 | lower.flags.0),
            fuel: self.fuel.or(lower.fuel),
            timeout_ms: self.timeout_ms.or(lower.timeout_ms),
            memory_bytes: self.memory_bytes.or(lower.memory_bytes),
            on_error: self.on_error.or(lower.on_error),
            undeclared_keys: match lower.undeclared_keys {
                // Dragonfly's flag says it as well as a value.
                Some(_) => self.undeclared().or(lower.undeclared_keys),
                None => self.undeclared_keys,
            },
        }
    }

    /// How a script is run whose header and flags say this: with the configuration's word where they are silent.
    pub fn or_configured(self, config: &Config) -> Options {
        let flags = Flags(self.flags.0 | config.default_script_flags.get());
        let widens = flags.has(Flags::ALLOW_UNDECLARED_KEYS);
        let usual = if widens { UndeclaredKeys::Widen } else { config.undeclared_keys.get() };
        Options {
            flags,
            on_error: self.on_error.or(Some(config.script_on_error.get())),
            undeclared_keys: self.undeclared().or(Some(usual)),
            ..self
        }
    }

    /// What is said of keys that are not declared.
    pub fn undeclared(&self) -> Option<UndeclaredKeys> {
        let allowed = self.flags.has(Flags::ALLOW_UNDECLARED_KEYS).then_some(UndeclaredKeys::Widen);
        self.undeclared_keys.or(allowed)
    }

    /// Adds the flag called `name`.
    pub fn add_flag(&mut self, name: &str) -> Result<(), BadOption> {
        let flag = Flags::named(name).ok_or_else(|| BadOption::Flag(name.to_owned()))?;
        self.flags.0 |= flag.0;
        Ok(())
    }

    /// Sets `key=value`; `flags=a,b` too.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), BadOption> {
        const NUMBER: &str = "a whole number of at least 1";
        let bad = |expected| BadOption::Value(format!("{key}={value}"), expected);
        let number = || value.parse().ok().filter(|number: &u64| *number > 0).ok_or_else(|| bad(NUMBER));
        match key {
            "flags" => {
                for flag in value.split([',', ';']).filter(|flag| !flag.is_empty()) {
                    self.add_flag(flag)?;
                }
            }
            "fuel" => self.fuel = Some(number()?),
            "timeout" => self.timeout_ms = Some(number()?),
            "memory" => {
                let size = parse_bytes(value).and_then(|size| u64::try_from(size).ok());
                let size = size.filter(|size| *size >= 1 << 20);
                self.memory_bytes = Some(size.ok_or_else(|| bad("a size of at least 1mb"))?);
            }
            "on-error" => {
                self.on_error = Some(OnError::named(value).ok_or_else(|| bad("keep or rollback"))?);
            }
            "undeclared-keys" => {
                let keys = UndeclaredKeys::named(value);
                self.undeclared_keys = Some(keys.ok_or_else(|| bad("widen or reject"))?);
            }
            _ => return Err(BadOption::Key(format!("{key}={value}"))),
        }
        Ok(())
    }

    /// The options as words that a header may hold.
    pub fn words(&self) -> Vec<String> {
        let mut words: Vec<String> = self.flags.names().map(str::to_owned).collect();
        let numbers = [("fuel", self.fuel), ("timeout", self.timeout_ms), ("memory", self.memory_bytes)];
        words.extend(numbers.iter().filter_map(|(key, value)| Some(format!("{key}={}", (*value)?))));
        words.extend(self.on_error.map(|on_error| format!("on-error={}", on_error.word())));
        words.extend(self.undeclared_keys.map(|keys| format!("undeclared-keys={}", keys.word())));
        words
    }
}

impl Config {
    /// What a script may use that says nothing about it.
    pub fn budget(&self) -> Budget {
        Budget {
            fuel: self.script_fuel.get(),
            compile_fuel: self.script_fuel.get(),
            time: Duration::from_millis(self.script_timeout_ms.get()),
            memory_bytes: self.script_memory.get_usize(),
            reply_bytes: self.script_reply_max.get_usize(),
            slice_fuel: self.script_fuel_slice.get(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_places_in_the_list() {
        for (name, flag) in [
            ("no-writes", Flags::NO_WRITES),
            ("disable-atomicity", Flags::DISABLE_ATOMICITY),
            ("allow-undeclared-keys", Flags::ALLOW_UNDECLARED_KEYS),
            ("dry-run", Flags::DRY_RUN),
            ("trace", Flags::TRACE),
        ] {
            assert_eq!(Flags::named(name), Some(flag));
        }
    }

    #[test]
    fn the_upper_source_wins_key_by_key_and_flags_add_up() {
        let mut upper = Options::default();
        upper.set("fuel", "5").unwrap();
        upper.set("flags", "no-writes").unwrap();
        let mut lower = Options::default();
        lower.set("fuel", "6").unwrap();
        lower.set("timeout", "7").unwrap();
        lower.set("flags", "disable-atomicity;allow-oom").unwrap();
        let words = upper.over(lower).words();
        assert_eq!(words, ["no-writes", "allow-oom", "disable-atomicity", "fuel=5", "timeout=7"]);
    }

    #[test]
    fn wrong_words_are_named() {
        let mut options = Options::default();
        assert_eq!(options.set("flags", "a"), Err(BadOption::Flag("a".into())));
        assert_eq!(options.set("colour", "red"), Err(BadOption::Key("colour=red".into())));
        for (key, value) in
            [("fuel", "0"), ("fuel", "-1"), ("timeout", "x"), ("memory", "1kb"), ("on-error", "")]
        {
            assert!(matches!(options.set(key, value), Err(BadOption::Value(..))), "{key}={value}");
        }
        assert_eq!(options, Options::default());
    }
}
