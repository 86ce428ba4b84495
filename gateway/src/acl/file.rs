//! Users as lines of a file, in Redis' form: `user NAME RULE …`.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::{fmt, fs};

use super::commands::Commands;
use super::limits;
use super::selector::{self, has_spaces};
use super::user::{RuleContext, User, merged};
use crate::config::atomic_file::replace;

/// Users by name.
pub type Users = BTreeMap<Box<[u8]>, User>;

/// Why a file of users is not used.
#[derive(Debug)]
pub enum FileError {
    /// It cannot be read.
    Unreadable(PathBuf, io::Error),
    /// Some of its lines are wrong.
    Lines(PathBuf, Vec<WrongLine>),
}

/// As Redis reports it: each wrong line.
impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FileError::Unreadable(path, error) => {
                let why = error.to_string();
                let why = why.split(" (os error").next().unwrap_or_default();
                write!(f, "Error loading ACLs, opening file '{}': {why}", path.display())
            }
            FileError::Lines(path, lines) => {
                let path = path.display();
                for WrongLine { number, wrong } in lines {
                    match wrong {
                        LineError::NoUser => {
                            write!(
                                f,
                                "{path}:{number} should start with user keyword followed by the username. "
                            )?;
                        }
                        LineError::Name(name) => {
                            write!(f, "{path}:{number}: username '{name}' contains invalid characters. ")?;
                        }
                        LineError::Twice(name) => {
                            write!(f, "WARNING: Duplicate user '{name}' found on line {number}. ")?;
                        }
                        LineError::Rules(error) => write!(f, "{path}:{number}: {error}")?,
                    }
                }
                f.write_str(
                    "WARNING: ACL errors detected, no change to the previously active ACL rules was performed",
                )
            }
        }
    }
}

/// A line that makes no user.
#[derive(Debug)]
pub struct WrongLine {
    number: usize,
    wrong: LineError,
}

#[derive(Debug)]
enum LineError {
    /// It names no user.
    NoUser,
    /// No user may have this name.
    Name(String),
    /// The user was there before.
    Twice(String),
    /// Its rules.
    Rules(RulesError),
}

/// Why rules make no user.
#[derive(Debug, PartialEq, Eq)]
pub enum RulesError {
    /// A parenthesis has no partner.
    Unmatched,
    /// These rules are wrong, each for this reason.
    Invalid(Vec<(Vec<u8>, selector::Wrong)>),
}

impl fmt::Display for RulesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RulesError::Invalid(rules) = self else {
            return f.write_str("Unmatched parenthesis in selector definition.");
        };
        let mut reported = false;
        for (rule, why) in rules {
            // A name that is not known is no secret, other rules may be one.
            if [selector::UNKNOWN, limits::UNKNOWN].contains(why) {
                let rule = String::from_utf8_lossy(rule);
                write!(f, "Error in applying operation '{rule}': {why}. ")?;
            } else if !std::mem::replace(&mut reported, true) {
                write!(f, "{why}. ")?;
            }
        }
        Ok(())
    }
}

/// Reads a file.
pub fn load(path: &Path, known: RuleContext<'_>) -> Result<Users, FileError> {
    let text = fs::read(path).map_err(|error| FileError::Unreadable(path.to_owned(), error))?;
    parse(&text, known).map_err(|lines| FileError::Lines(path.to_owned(), lines))
}

fn parse(text: &[u8], known: RuleContext<'_>) -> Result<Users, Vec<WrongLine>> {
    let mut users = Users::new();
    let mut seen = BTreeSet::new();
    let mut errors = Vec::new();
    for (at, line) in text.split(|byte| *byte == b'\n').enumerate() {
        let line = line.trim_ascii();
        if line.is_empty() {
            continue;
        }
        match parse_line(line, known, &mut seen) {
            Ok((name, user)) => _ = users.insert(name, user),
            Err(wrong) => errors.push(WrongLine { number: at + 1, wrong }),
        }
    }
    if errors.is_empty() { Ok(users) } else { Err(errors) }
}

/// `seen` are the names that stood before, also before wrong rules.
fn parse_line(
    line: &[u8],
    known: RuleContext<'_>,
    seen: &mut BTreeSet<Box<[u8]>>,
) -> Result<(Box<[u8]>, User), LineError> {
    let mut words = line.split(|byte| *byte == b' ');
    let (Some(b"user"), Some(name)) = (words.next(), words.next()) else {
        return Err(LineError::NoUser);
    };
    let shown = String::from_utf8_lossy(name).into_owned();
    if has_spaces(name) {
        return Err(LineError::Name(shown));
    }
    if !seen.insert(name.into()) {
        return Err(LineError::Twice(shown));
    }
    let user = parse_rules(words, known).map_err(LineError::Rules)?;
    Ok((name.into(), user))
}

/// A user of its rules.
pub fn parse_rules<'a>(
    words: impl Iterator<Item = &'a [u8]>,
    known: RuleContext<'_>,
) -> Result<User, RulesError> {
    let words = words.map(<[u8]>::trim_ascii);
    let rules = merged(words).map_err(|_| RulesError::Unmatched)?;
    let mut user = User::new(known);
    let mut errors = Vec::new();
    for rule in rules {
        if let Err(why) = user.apply(known, &rule) {
            errors.push((rule, why));
        }
    }
    if errors.is_empty() { Ok(user) } else { Err(RulesError::Invalid(errors)) }
}

/// Writes users into a file, in the place of what it has.
pub fn save<'a>(
    path: &Path,
    commands: &Commands,
    users: impl Iterator<Item = (&'a [u8], &'a User)>,
) -> std::io::Result<()> {
    let mut text = Vec::new();
    for (name, user) in users {
        text.extend_from_slice(&[b"user ", name, b" ", &*user.show(commands), b"\n"].concat());
    }
    replace(path, |out| out.write_all(&text))
}
