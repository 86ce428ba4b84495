//! What is known of a user: how it is let in, and what it may do.

use sha2::{Digest, Sha256};
use store_engine::Args;
use subtle::{Choice, ConstantTimeEq};

use super::commands::{Commands, Id};
use super::limits::UserLimits;
use super::selector::{Denied, SYNTAX, Selector, Wrong, is_word};

/// SHA-256 of a password.
type Hash = [u8; 32];

const BAD_HASH: Wrong =
    "The password hash must be exactly 64 characters and contain only lowercase hexadecimal characters";
const NO_PASSWORD: Wrong = "The password you are trying to remove from the user does not exist";

/// The rules of one user.
#[derive(Clone)]
pub struct User {
    is_on: bool,
    any_password: bool,
    /// Whether `sanitize-payload` or `skip-sanitize-payload` was said. Payloads are always checked.
    sanitize: Option<bool>,
    passwords: Vec<Hash>,
    /// The first one is the user's own, the others stand in parentheses.
    selectors: Vec<Selector>,
    limits: UserLimits,
}

/// What rules are applied to and shown with.
#[derive(Clone, Copy)]
pub struct RuleContext<'a> {
    /// All commands.
    pub commands: &'a Commands,
    /// Whether new users and selectors begin with all channels.
    pub all_channels: bool,
}

fn hash(password: &[u8]) -> Hash {
    Sha256::digest(password).into()
}

fn parse_hash(text: &[u8]) -> Option<Hash> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let text: &[u8; 64] = text.try_into().ok()?;
    let mut hash = Hash::default();
    for (byte, pair) in hash.iter_mut().zip(text.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(hash)
}

/// Bytes as hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl User {
    /// A new one, who may do nothing.
    pub fn new(known: RuleContext<'_>) -> User {
        User {
            is_on: false,
            any_password: false,
            sanitize: None,
            passwords: Vec::new(),
            selectors: vec![Selector::new(known.commands, known.all_channels)],
            limits: UserLimits::default(),
        }
    }

    /// `default` without any configuration: it may do everything, without a password.
    pub fn unlimited(known: RuleContext<'_>) -> User {
        let mut user = User::new(known);
        for op in ["+@all", "~*", "&*", "on", "nopass"] {
            user.apply(known, op.as_bytes()).expect("these rules are right");
        }
        user
    }

    /// Applies a rule.
    pub fn apply(&mut self, known: RuleContext<'_>, op: &[u8]) -> Result<(), Wrong> {
        match op {
            b"" => {}
            _ if is_word(op, &["on"]) => self.is_on = true,
            _ if is_word(op, &["off"]) => self.is_on = false,
            _ if is_word(op, &["sanitize-payload"]) => self.sanitize = Some(true),
            _ if is_word(op, &["skip-sanitize-payload"]) => self.sanitize = Some(false),
            _ if is_word(op, &["nopass"]) => {
                self.any_password = true;
                self.passwords.clear();
            }
            _ if is_word(op, &["resetpass"]) => {
                self.any_password = false;
                self.passwords.clear();
            }
            _ if is_word(op, &["reset"]) => {
                *self = User { sanitize: Some(true), ..User::new(known) };
            }
            _ if is_word(op, &["clearselectors"]) => self.selectors.truncate(1),
            [b'>', password @ ..] => self.add(hash(password)),
            [b'#', text @ ..] => self.add(parse_hash(text).ok_or(BAD_HASH)?),
            [b'<', password @ ..] => self.remove(hash(password))?,
            [b'!', text @ ..] => self.remove(parse_hash(text).ok_or(BAD_HASH)?)?,
            [b'(', rules @ .., b')'] => {
                let mut selector = Selector::new(known.commands, known.all_channels);
                for op in resp::split_words(rules).ok_or(SYNTAX)? {
                    selector.apply(known.commands, &op)?;
                }
                self.selectors.push(selector);
            }
            _ if UserLimits::is_rule(op) => self.limits.apply(op)?,
            _ => self.selectors[0].apply(known.commands, op)?,
        }
        Ok(())
    }

    /// Applies rules, in the order they stand; `Err` says which is wrong, and why.
    pub fn apply_all(&mut self, known: RuleContext<'_>, ops: &[Vec<u8>]) -> Result<(), (Vec<u8>, Wrong)> {
        ops.iter().try_for_each(|op| self.apply(known, op).map_err(|wrong| (op.clone(), wrong)))
    }

    fn add(&mut self, password: Hash) {
        if !self.passwords.contains(&password) {
            self.passwords.push(password);
        }
        self.any_password = false;
    }

    fn remove(&mut self, password: Hash) -> Result<(), Wrong> {
        let at = self.passwords.iter().position(|known| *known == password).ok_or(NO_PASSWORD)?;
        self.passwords.remove(at);
        Ok(())
    }

    /// Whether this password is the user's. How long that takes does not show what is wrong.
    pub fn lets_in(&self, password: &[u8]) -> bool {
        let said = hash(password);
        let known = self.passwords.iter().fold(Choice::from(0), |any, known| any | known.ct_eq(&said));
        self.is_on && (self.any_password || bool::from(known))
    }

    /// Whether no password is needed.
    pub fn is_open(&self) -> bool {
        self.is_on && self.any_password
    }

    /// Whether any password is taken, or would be if the user were on.
    pub fn takes_any_password(&self) -> bool {
        self.any_password
    }

    /// Whether nothing can be refused.
    pub fn is_unlimited(&self) -> bool {
        self.may_do_everything() && self.limits.are_none()
    }

    /// Whether it may do everything, if not as often as it likes.
    pub fn may_do_everything(&self) -> bool {
        self.selectors.iter().any(Selector::allows_everything)
    }

    /// How much it may use.
    pub fn limits(&self) -> &UserLimits {
        &self.limits
    }

    /// Its selectors, its own first.
    pub fn selectors(&self) -> &[Selector] {
        &self.selectors
    }

    /// Checks a call. Of the reasons of several selectors the most specific is returned.
    pub fn check(&self, commands: &Commands, id: Id, args: Args<'_>) -> Result<(), Denied> {
        let mut keys = None;
        let mut denied = Denied::Command;
        for selector in &self.selectors {
            match selector.check(commands, id, args, &mut keys) {
                Ok(()) => return Ok(()),
                Err(other) => denied = denied.max(other),
            }
        }
        Err(denied)
    }

    /// Whether it may make this call with a selector that can read every key.
    pub fn reads_all_keys(&self, commands: &Commands, id: Id, args: Args<'_>) -> bool {
        let mut keys = None;
        let allows = |selector: &Selector| selector.check(commands, id, args, &mut keys).is_ok();
        self.selectors.iter().filter(|selector| selector.reads_all_keys()).any(allows)
    }

    /// The patterns of all selectors that channels are checked against; nothing: all are allowed.
    pub fn channels(&self) -> Option<Vec<&[u8]>> {
        let all = self.selectors.iter().any(Selector::allows_all_channels);
        (!all).then(|| self.selectors.iter().flat_map(Selector::channels).collect())
    }

    /// The words about how it is let in.
    pub fn flags(&self) -> Vec<&'static str> {
        let mut flags = vec![if self.is_on { "on" } else { "off" }];
        if self.any_password {
            flags.push("nopass");
        }
        flags.extend(self.sanitize.map(|is| if is { "sanitize-payload" } else { "skip-sanitize-payload" }));
        flags
    }

    /// Its passwords, as hexadecimal digits of their hashes.
    pub fn passwords(&self) -> impl ExactSizeIterator<Item = String> {
        self.passwords.iter().map(|password| hex(password))
    }

    /// All rules, as they could be given to a new user.
    pub fn show(&self, commands: &Commands) -> Vec<u8> {
        let mut parts: Vec<Vec<u8>> = self.flags().iter().map(|flag| flag.as_bytes().to_vec()).collect();
        parts.extend(self.passwords().map(|password| format!("#{password}").into_bytes()));
        let (own, others) = self.selectors.split_first().expect("there is one from the beginning");
        parts.push(own.show(commands));
        parts.extend(others.iter().map(|other| [b"(", &*quoted(&other.show(commands)), b")"].concat()));
        parts.extend(self.limits.rules().map(String::into_bytes));
        parts.join(&b' ')
    }
}

/// Rules as they stand in parentheses, where quotes mean something and a closing parenthesis ends a selector.
fn quoted(rules: &[u8]) -> Vec<u8> {
    let word = |word: &[u8]| {
        if !word.contains(&b'"') && !word.contains(&b'\'') && !word.ends_with(b")") {
            return word.to_vec();
        }
        let escaped = word.iter().flat_map(|byte| {
            let escape = matches!(byte, b'"' | b'\\').then_some(b'\\');
            escape.into_iter().chain([*byte])
        });
        [b'"'].into_iter().chain(escaped).chain([b'"']).collect()
    };
    rules.split(|byte| *byte == b' ').map(word).collect::<Vec<_>>().join(&b' ')
}

/// Puts selectors together that are spread over several arguments. An error is the argument that one begins with
/// that has no end.
pub fn merged<'a>(args: impl IntoIterator<Item = &'a [u8]>) -> Result<Vec<Vec<u8>>, Vec<u8>> {
    let mut merged = Vec::new();
    let mut open: Option<(&[u8], Vec<u8>)> = None;
    for arg in args {
        match &mut open {
            // Redis begins anew with each, and forgets one that was open.
            _ if arg.starts_with(b"(") && !arg.ends_with(b")") => {
                open = Some((arg, arg.to_vec()));
                continue;
            }
            Some((_, selector)) => {
                selector.push(b' ');
                selector.extend_from_slice(arg);
            }
            None => merged.push(arg.to_vec()),
        }
        if arg.ends_with(b")") {
            merged.extend(open.take().map(|(_, selector)| selector));
        }
    }
    match open {
        Some((first, _)) => Err(first.to_vec()),
        None => Ok(merged),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commands() -> Commands {
        Commands::new(store_engine::command::all().map(|row| (row, Vec::new())))
    }

    fn user(commands: &Commands, rules: &str) -> User {
        let known = RuleContext { commands, all_channels: false };
        let mut user = User::new(known);
        let rules = merged(rules.split(' ').map(str::as_bytes)).expect("closed parentheses");
        user.apply_all(known, &rules).map_err(|(_, wrong)| wrong).expect("right rules");
        user
    }

    fn may(commands: &Commands, user: &User, line: &str) -> Result<(), Denied> {
        let items: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        let id = commands.find(items[0]).expect("a command");
        user.check(commands, id, Args::new(&items))
    }

    #[test]
    fn keys_are_read_or_written() {
        let commands = commands();
        let user = user(&commands, "+@all %R~r* %W~w* (+getdel ~x)");
        for (line, wanted) in [
            ("get r", Ok(())),
            ("get w", Err(Denied::Key(1))),
            ("set w 1", Ok(())),
            ("set r 1", Err(Denied::Key(1))),
            ("set w 1 GET", Err(Denied::Key(1))),
            ("exists r w", Ok(())),
            ("exists r y", Err(Denied::Key(2))),
            ("copy r w", Ok(())),
            ("copy w w", Err(Denied::Key(1))),
            ("copy r r", Err(Denied::Key(2))),
            ("getdel x", Ok(())),
            ("get x", Err(Denied::Key(1))),
            ("zunionstore w 2 r w", Err(Denied::Key(4))),
            ("zunionstore w 1 r", Ok(())),
            ("bitfield r get u8 0", Ok(())),
            ("bitfield r set u8 0 1", Err(Denied::Key(1))),
        ] {
            assert_eq!(may(&commands, &user, line), wanted, "{line}");
        }
    }

    #[test]
    fn what_is_shown_means_the_same() {
        let commands = commands();
        let known = RuleContext { commands: &commands, all_channels: false };
        for rules in [
            "on >a >b nopass",
            "+@all -@dangerous +keys",
            "+@read +@write -get",
            "-@all +set|x +get +GET|Y +object|encoding",
            "~a %R~b %W~b %R~c &d resetchannels &e (+@list ~f) (%W~g)",
            "allkeys allchannels skip-sanitize-payload",
            "%RW~* ~k*",
            "+@all -object +object|freq",
            "+@all limit:commands-per-second=5 (+get ~f) limit:script-modes=atomic,async",
        ] {
            let user = user(&commands, rules);
            let shown = user.show(&commands);
            let again = super::super::file::parse_rules(shown.split(|byte| *byte == b' '), known);
            assert_eq!(again.expect("right rules").show(&commands), shown, "{rules}");
        }
    }

    #[test]
    fn passwords_are_digests_of_64_digits() {
        let commands = commands();
        let known = RuleContext { commands: &commands, all_channels: false };
        let mut user = User::new(known);
        let digest = hex(&hash(b"pw"));
        for (rule, wanted) in [
            (format!("#{}", digest.to_uppercase()), Err(BAD_HASH)),
            (format!("#{}", &digest[1..]), Err(BAD_HASH)),
            (format!("#{digest}"), Ok(())),
            ("<other".to_owned(), Err(NO_PASSWORD)),
        ] {
            assert_eq!(user.apply(known, rule.as_bytes()), wanted, "{rule}");
        }
        assert!(!user.lets_in(b"pw"), "it is off");
        user.apply(known, b"on").expect("a right rule");
        assert_eq!([b"pw", b"pq"].map(|said| user.lets_in(said)), [true, false]);
        user.apply(known, b"nopass").expect("a right rule");
        assert!(user.lets_in(b"anything") && user.is_open());
    }

    #[test]
    fn selectors_are_put_together() {
        let merged = |line: &str| {
            let parts = merged(line.split(' ').map(str::as_bytes));
            let text = |part: Vec<u8>| String::from_utf8(part).expect("text");
            parts.map(|parts| parts.into_iter().map(text).collect::<Vec<_>>().join(",")).map_err(text)
        };
        assert_eq!(merged("on (a b) (c) (d e"), Err("(d".to_owned()));
        assert_eq!(merged("on (a b) (c) x)"), Ok("on,(a b),(c),x)".to_owned()));
        assert_eq!(merged("(a x (b c)"), Ok("(b c)".to_owned()));
    }
}
