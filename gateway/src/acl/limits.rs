//! How much a user may use: rules `limit:NAME=VALUE` beside those of Redis, which knows no word with a colon.

use super::selector::{Wrong, is_word};
use crate::config::parse_bytes;
use crate::scripts::options::ScriptMode;

/// What begins a rule of these.
const PREFIX: &str = "limit:";
/// The value that takes a limit away.
const NONE: &str = "none";

/// A name that is none of a limit.
pub const UNKNOWN: Wrong = "Unknown limit. The limits are commands-per-second, fuel-per-second, scripts-at-once, \
                        script-memory, script-timeout-ms, script-modes and undeclared-keys";
const NO_NUMBER: Wrong = "A limit must be a whole number of at least 1, or none";
const NO_SIZE: Wrong = "This limit must be a size of at least 1mb, such as 64mb, or none";
const NO_MODES: Wrong =
    "This limit must be atomic, read-only or async, several of them with commas between, or none";
const NO_RULE: Wrong = "This limit must be widen or reject, or none";

/// The bit of a mode in the number that stands for several.
fn bit_of(mode: ScriptMode) -> u64 {
    1 << mode as u64
}

/// What can be limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Calls in a second.
    CommandsPerSecond,
    /// Fuel of scripts in a second.
    FuelPerSecond,
    /// Scripts that run at the same time.
    ScriptsAtOnce,
    /// Memory of a script, in bytes.
    ScriptMemory,
    /// Time of a script.
    ScriptTimeoutMs,
    /// How scripts are run.
    ScriptModes,
    /// Keys that scripts do not declare.
    UndeclaredKeys,
}

impl Limit {
    /// All of them, in the order in which they are shown and counted.
    pub const ALL: [Limit; 7] = [
        Limit::CommandsPerSecond,
        Limit::FuelPerSecond,
        Limit::ScriptsAtOnce,
        Limit::ScriptMemory,
        Limit::ScriptTimeoutMs,
        Limit::ScriptModes,
        Limit::UndeclaredKeys,
    ];

    /// The rule up to its value.
    pub fn rule(self) -> &'static str {
        match self {
            Limit::CommandsPerSecond => "limit:commands-per-second",
            Limit::FuelPerSecond => "limit:fuel-per-second",
            Limit::ScriptsAtOnce => "limit:scripts-at-once",
            Limit::ScriptMemory => "limit:script-memory",
            Limit::ScriptTimeoutMs => "limit:script-timeout-ms",
            Limit::ScriptModes => "limit:script-modes",
            Limit::UndeclaredKeys => "limit:undeclared-keys",
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        &self.rule()[PREFIX.len()..]
    }

    /// The number that stands for a value; 0 is none.
    fn parse(self, text: &str) -> Result<u64, Wrong> {
        if text.eq_ignore_ascii_case(NONE) {
            return Ok(0);
        }
        let bit = |word: &str| {
            let mode = ScriptMode::ALL.into_iter().find(|mode| word.eq_ignore_ascii_case(mode.word()));
            mode.map(bit_of)
        };
        match self {
            Limit::ScriptMemory => {
                let size = parse_bytes(text).and_then(|size| u64::try_from(size).ok());
                size.filter(|size| *size >= 1 << 20).ok_or(NO_SIZE)
            }
            Limit::ScriptModes => {
                text.split(',').try_fold(0, |bits, word| Some(bits | bit(word)?)).ok_or(NO_MODES)
            }
            Limit::UndeclaredKeys if text.eq_ignore_ascii_case("widen") => Ok(0),
            Limit::UndeclaredKeys if text.eq_ignore_ascii_case("reject") => Ok(1),
            Limit::UndeclaredKeys => Err(NO_RULE),
            _ => text.parse().ok().filter(|number| *number > 0).ok_or(NO_NUMBER),
        }
    }

    fn show(self, value: u64) -> String {
        match self {
            Limit::ScriptModes => {
                let modes = ScriptMode::ALL.into_iter().filter(|mode| value & bit_of(*mode) != 0);
                modes.map(ScriptMode::word).collect::<Vec<_>>().join(",")
            }
            Limit::UndeclaredKeys => "reject".to_owned(),
            _ => value.to_string(),
        }
    }
}

/// The limits of a user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UserLimits([u64; Limit::ALL.len()]);

impl UserLimits {
    /// Whether `rule` is about limits.
    pub fn is_rule(rule: &[u8]) -> bool {
        rule.get(..PREFIX.len()).is_some_and(|start| is_word(start, &[PREFIX]))
    }

    /// Applies a rule.
    pub fn apply(&mut self, rule: &[u8]) -> Result<(), Wrong> {
        let text = rule.get(PREFIX.len()..).and_then(|rest| std::str::from_utf8(rest).ok()).ok_or(UNKNOWN)?;
        let (name, value) = text.split_once('=').ok_or(UNKNOWN)?;
        let named = |limit: &Limit| name.eq_ignore_ascii_case(limit.name());
        let limit = Limit::ALL.into_iter().find(named).ok_or(UNKNOWN)?;
        self.0[limit as usize] = limit.parse(value)?;
        Ok(())
    }

    /// A limit, if there is one.
    pub fn get(&self, limit: Limit) -> Option<u64> {
        Some(self.0[limit as usize]).filter(|value| *value > 0)
    }

    /// Whether there is none.
    pub fn are_none(&self) -> bool {
        *self == UserLimits::default()
    }

    /// Whether scripts may be run in this mode. Whoever may run atomic ones may run those that only read.
    pub fn allow_mode(&self, mode: ScriptMode) -> bool {
        let allowed = self.0[Limit::ScriptModes as usize];
        let also = if mode == ScriptMode::ReadOnly { bit_of(ScriptMode::Atomic) } else { 0 };
        allowed == 0 || allowed & (bit_of(mode) | also) != 0
    }

    /// What a limit is, in the words of its rule.
    pub fn shown(&self, limit: Limit) -> Option<String> {
        self.get(limit).map(|value| limit.show(value))
    }

    /// The rules that make them.
    pub fn rules(&self) -> impl Iterator<Item = String> {
        let rule = |limit: Limit| Some(format!("{}={}", limit.rule(), self.shown(limit)?));
        Limit::ALL.into_iter().filter_map(rule)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(rules: &[&str]) -> Result<UserLimits, Wrong> {
        let mut limits = UserLimits::default();
        rules.iter().try_for_each(|rule| limits.apply(rule.as_bytes())).map(|()| limits)
    }

    #[test]
    fn what_is_shown_means_the_same() {
        for (rules, shown) in [
            (&["limit:commands-per-second=5"][..], "limit:commands-per-second=5"),
            (&["LIMIT:Script-Memory=8mb"], "limit:script-memory=8388608"),
            (&["limit:script-modes=ASYNC,atomic"], "limit:script-modes=atomic,async"),
            (&["limit:undeclared-keys=reject"], "limit:undeclared-keys=reject"),
            (&["limit:undeclared-keys=reject", "limit:undeclared-keys=widen"], ""),
            (&["limit:scripts-at-once=1", "limit:scripts-at-once=none"], ""),
            (
                &["limit:script-timeout-ms=9", "limit:fuel-per-second=18446744073709551615"],
                "limit:fuel-per-second=18446744073709551615 limit:script-timeout-ms=9",
            ),
        ] {
            let made = limits(rules).expect("right rules");
            let words: Vec<String> = made.rules().collect();
            assert_eq!(words.join(" "), shown, "{rules:?}");
            assert_eq!(limits(&words.iter().map(String::as_str).collect::<Vec<_>>()), Ok(made));
            assert_eq!(made.are_none(), shown.is_empty());
        }
    }

    #[test]
    fn wrong_rules_say_what_is_right() {
        for (rule, wanted) in [
            ("limit:", UNKNOWN),
            ("limit:scripts-at-once", UNKNOWN),
            ("limit:memory=1mb", UNKNOWN),
            ("limit:commands-per-second=0", NO_NUMBER),
            ("limit:commands-per-second=-1", NO_NUMBER),
            ("limit:fuel-per-second=18446744073709551616", NO_NUMBER),
            ("limit:script-timeout-ms=", NO_NUMBER),
            ("limit:script-memory=1kb", NO_SIZE),
            ("limit:script-modes=atomic,", NO_MODES),
            ("limit:script-modes=", NO_MODES),
            ("limit:undeclared-keys=allow", NO_RULE),
        ] {
            assert_eq!(limits(&[rule]), Err(wanted), "{rule}");
            assert!(UserLimits::is_rule(rule.as_bytes()));
        }
        assert!(
            !UserLimits::is_rule(b"limits")
                && !UserLimits::is_rule(b"lim")
                && !UserLimits::is_rule(b"~limit:")
        );
    }

    #[test]
    fn modes_are_those_of_scripts() {
        let allowed =
            |rule: &str| ScriptMode::ALL.map(|mode| limits(&[rule]).expect("right").allow_mode(mode));
        assert_eq!(allowed("limit:script-modes=none"), [true; 3]);
        assert_eq!(allowed("limit:script-modes=atomic"), [true, true, false]);
        assert_eq!(allowed("limit:script-modes=read-only"), [false, true, false]);
        assert_eq!(allowed("limit:script-modes=async"), [false, false, true]);
    }
}
