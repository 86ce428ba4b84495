//! Users as lines of a file, in Redis' form: `user NAME RULE …`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write as _;
use std::path::Path;

use super::commands::Commands;
use super::selector::has_spaces;
use super::user::{Known, User, merged};
use crate::config::file::replace;

/// Users by name.
pub type Users = BTreeMap<Box<[u8]>, User>;

/// Reads a file. An error tells of every wrong line, as Redis does.
pub fn load(path: &Path, known: Known<'_>) -> Result<Users, String> {
    let name = path.display();
    let text = fs::read(path).map_err(|error| {
        let why = error.to_string();
        let why = why.split(" (os error").next().unwrap_or_default();
        format!("Error loading ACLs, opening file '{name}': {why}")
    })?;
    parse(&name.to_string(), &text, known)
}

fn parse(name: &str, text: &[u8], known: Known<'_>) -> Result<Users, String> {
    let mut users = Users::new();
    let mut seen = BTreeSet::new();
    let mut errors = String::new();
    for (at, line) in text.split(|byte| *byte == b'\n').enumerate() {
        let (line, number) = (line.trim_ascii(), at + 1);
        if line.is_empty() {
            continue;
        }
        match parse_line(line, known, &mut seen) {
            Ok((name, user)) => _ = users.insert(name, user),
            Err(Wrong::Twice(user)) => {
                errors.push_str(&format!("WARNING: Duplicate user '{user}' found on line {number}. "));
            }
            Err(Wrong::Line(why)) => errors.push_str(&format!("{name}:{number}{why}")),
        }
    }
    if !errors.is_empty() {
        errors.push_str(
            "WARNING: ACL errors detected, no change to the previously active ACL rules was performed",
        );
        return Err(errors);
    }
    Ok(users)
}

enum Wrong {
    /// The user was there before.
    Twice(String),
    /// What stands behind the line's number.
    Line(String),
}

/// `seen` are the names that stood before, also before wrong rules.
fn parse_line(
    line: &[u8],
    known: Known<'_>,
    seen: &mut BTreeSet<Box<[u8]>>,
) -> Result<(Box<[u8]>, User), Wrong> {
    let mut words = line.split(|byte| *byte == b' ');
    let (Some(b"user"), Some(name)) = (words.next(), words.next()) else {
        return Err(Wrong::Line(" should start with user keyword followed by the username. ".into()));
    };
    let shown = String::from_utf8_lossy(name).into_owned();
    if has_spaces(name) {
        return Err(Wrong::Line(format!(": username '{shown}' contains invalid characters. ")));
    }
    if !seen.insert(name.into()) {
        return Err(Wrong::Twice(shown));
    }
    let user = parse_rules(words, known).map_err(|why| Wrong::Line(format!(": {why}")))?;
    Ok((name.into(), user))
}

/// A user of its rules.
pub fn parse_rules<'a>(words: impl Iterator<Item = &'a [u8]>, known: Known<'_>) -> Result<User, String> {
    let words = words.map(<[u8]>::trim_ascii);
    let rules = merged(words).map_err(|_| "Unmatched parenthesis in selector definition.".to_owned())?;
    let mut user = User::new(known);
    let mut errors = String::new();
    let mut told = false;
    for rule in &rules {
        let Err(why) = user.apply(known, rule) else { continue };
        // A name that is not known is no secret, other rules may be one.
        if why.starts_with("Unknown") {
            let rule = String::from_utf8_lossy(rule);
            errors.push_str(&format!("Error in applying operation '{rule}': {why}. "));
        } else if !std::mem::replace(&mut told, true) {
            errors.push_str(&format!("{why}. "));
        }
    }
    if errors.is_empty() { Ok(user) } else { Err(errors) }
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
