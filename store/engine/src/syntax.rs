//! What a call consists of, read from the `syntax` of its row: COMMAND DOCS tells it as a tree, people read it as the
//! manual writes it.
//!
//! Arguments stand in their order, each as
//!
//! | | |
//! | --- | --- |
//! | `name`, `name:int` | a value: a text, or of the type named; `key` is a key |
//! | `WORD`, `WORD!name` | this word, which is called as it is written, or otherwise |
//! | `WORD=name` | a value behind the word |
//! | `name(a \| b)`, `name(a b)` | one of these, or all of them; `WORD=` may stand before it too |
//!
//! and then what else is known of it: `#1` which key specification it belongs to, if not to the next; `@6.2.0` since when
//! it is there; `~2.8.12` since when it should not be used; `...` there may be several, each with the word before it if
//! `+` follows; `?` it may be missing.

/// One argument.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Argument<'a> {
    /// What it is called.
    pub name: String,
    /// What it is.
    pub kind: ArgumentKind<'a>,
    /// The word that it is, or that stands before it.
    pub token: Option<&'a str>,
    /// The number of the key specification that it belongs to.
    pub key_spec: Option<u8>,
    /// The first version that has it, if that is not the command's.
    pub since: Option<&'a str>,
    /// The first version that has something better.
    pub deprecated_since: Option<&'a str>,
    /// It may be missing.
    pub optional: bool,
    /// There may be several.
    pub multiple: bool,
    /// And its word stands before each of them.
    pub multiple_token: bool,
}

/// What an argument is.
#[derive(Debug, PartialEq, Eq)]
pub enum ArgumentKind<'a> {
    /// A value, with the name that its type has in COMMAND DOCS.
    Value(&'static str),
    /// Its word.
    Token,
    /// One of these.
    OneOf(Vec<Argument<'a>>),
    /// All of these.
    Block(Vec<Argument<'a>>),
}

impl Default for ArgumentKind<'_> {
    fn default() -> Self {
        ArgumentKind::Value("string")
    }
}

/// Types by their names here, and in COMMAND DOCS.
const TYPES: &[(&str, &str)] = &[
    ("string", "string"),
    ("int", "integer"),
    ("double", "double"),
    ("key", "key"),
    ("pattern", "pattern"),
    ("time", "unix-time"),
];

/// The arguments of a row.
pub fn parse(syntax: &str) -> Vec<Argument<'_>> {
    Parser { rest: syntax, next_key: 0 }.sequence().0
}

struct Parser<'a> {
    rest: &'a str,
    /// The number of the next key specification.
    next_key: u8,
}

impl<'a> Parser<'a> {
    /// Whether `mark` comes next, which is then left behind.
    fn takes(&mut self, mark: &str) -> bool {
        let rest = self.rest.strip_prefix(mark);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    /// As many characters as `belongs` likes, but `least` in any case.
    fn word(&mut self, least: usize, belongs: impl Fn(char) -> bool) -> &'a str {
        let mut letters = self.rest.char_indices().enumerate();
        let end = letters.find(|(number, (_, letter))| *number >= least && !belongs(*letter));
        let (word, rest) = self.rest.split_at(end.map_or(self.rest.len(), |(_, (at, _))| at));
        self.rest = rest;
        word
    }

    /// Everything up to a closing bracket, and whether it is one of several.
    fn sequence(&mut self) -> (Vec<Argument<'a>>, bool) {
        let (mut arguments, mut is_choice) = (Vec::new(), false);
        loop {
            while self.takes(" ") {}
            if self.rest.is_empty() || self.takes(")") {
                return (arguments, is_choice);
            }
            match self.takes("| ") {
                true => is_choice = true,
                false => arguments.push(self.argument()),
            }
        }
    }

    fn argument(&mut self) -> Argument<'a> {
        let head = self.word(1, |letter| letter.is_ascii_alphanumeric() || "-_:/=!".contains(letter));
        let mut argument = Argument::default();
        let value = match head.split_once('=').filter(|(token, _)| !token.is_empty()) {
            Some((token, value)) => {
                argument.token = Some(token);
                value
            }
            None => head,
        };
        if let Some((token, name)) = head.split_once('!') {
            (argument.token, argument.name, argument.kind) =
                (Some(token), name.to_owned(), ArgumentKind::Token);
        } else if self.takes("(") {
            argument.name = value.to_owned();
            let (inner, is_choice) = self.sequence();
            argument.kind = if is_choice { ArgumentKind::OneOf(inner) } else { ArgumentKind::Block(inner) };
        } else if !head.contains(|letter: char| letter.is_ascii_lowercase()) {
            (argument.token, argument.name, argument.kind) =
                (Some(head), head.to_ascii_lowercase(), ArgumentKind::Token);
        } else {
            let typed = value
                .rsplit_once(':')
                .and_then(|(name, kind)| Some((name, TYPES.iter().find(|(short, _)| *short == kind)?.1)));
            let plain = if value == "key" { "key" } else { "string" };
            let (name, kind) = typed.unwrap_or((value, plain));
            (argument.name, argument.kind) = (name.to_owned(), ArgumentKind::Value(kind));
        }
        self.suffixes(&mut argument);
        argument
    }

    fn suffixes(&mut self, argument: &mut Argument<'a>) {
        if argument.kind == ArgumentKind::Value("key") {
            argument.key_spec = Some(self.next_key);
        }
        if self.takes("#") {
            argument.key_spec = self.word(0, |letter| letter.is_ascii_digit()).parse().ok();
        }
        self.next_key = argument.key_spec.map_or(self.next_key, |number| number + 1);
        argument.since = self.version("@");
        argument.deprecated_since = self.version("~");
        argument.multiple = self.takes("...");
        argument.multiple_token = self.takes("+");
        argument.optional = self.takes("?");
    }

    /// A version behind `mark`. The dots behind its last digit are not part of it.
    fn version(&mut self, mark: &str) -> Option<&'a str> {
        if !self.takes(mark) {
            return None;
        }
        let end = self.rest.find(|letter: char| !letter.is_ascii_digit() && letter != '.');
        let version = self.rest[..end.unwrap_or(self.rest.len())].trim_end_matches('.');
        self.rest = &self.rest[version.len()..];
        Some(version)
    }
}

/// The arguments of a row as the manual writes them: `key value [NX | XX]`.
pub fn manual(syntax: &str) -> String {
    all_of(&parse(syntax))
}

fn all_of(arguments: &[Argument<'_>]) -> String {
    arguments.iter().map(Argument::manual).collect::<Vec<_>>().join(" ")
}

impl Argument<'_> {
    fn manual(&self) -> String {
        if self.optional { format!("[{}]", self.needed()) } else { self.needed() }
    }

    /// As if it could not be missing.
    fn needed(&self) -> String {
        let value = match &self.kind {
            ArgumentKind::Value(_) => self.name.clone(),
            ArgumentKind::Token => String::new(),
            ArgumentKind::Block(arguments) => all_of(arguments),
            ArgumentKind::OneOf(arguments) => {
                let choices: Vec<_> = arguments.iter().map(Argument::needed).collect();
                let choices = choices.join(" | ");
                // Alone in its brackets it needs no more of them.
                let bare = self.optional && self.token.is_none() && !self.multiple;
                if bare { choices } else { format!("<{choices}>") }
            }
        };
        let token = self.token.map(|token| if token.is_empty() { "\"\"" } else { token });
        let words: Vec<&str> =
            token.into_iter().chain(Some(&*value).filter(|value| !value.is_empty())).collect();
        let whole = words.join(" ");
        match (self.multiple, self.multiple_token) {
            (false, _) => whole,
            (true, false) => format!("{whole} [{value} ...]"),
            (true, true) => format!("{whole} [{whole} ...]"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command;

    #[test]
    fn the_manual_is_written_from_the_notation() {
        for (syntax, wanted) in [
            ("", ""),
            ("key field_value(field value)...", "key field value [field value ...]"),
            ("condition(NX | XX)@2.6.12?", "[NX | XX]"),
            ("unit(M | KM)", "<M | KM>"),
            ("STREAMS=streams(key... id...)", "STREAMS key [key ...] id [id ...]"),
            ("GET=pattern:pattern#1...+?", "[GET pattern [GET pattern ...]]"),
            ("WEIGHTS=weight:int...?", "[WEIGHTS weight [weight ...]]"),
            ("AGGREGATE=aggregate(SUM | MIN)?", "[AGGREGATE <SUM | MIN>]"),
            ("operator(=!equal | ~!approximately)? id(*!auto_id | id)", "[= | ~] <* | id>"),
            ("count(COUNT=count:int ANY@6.2.0?)?", "[COUNT count [ANY]]"),
            ("key_or_none(key | !none)", "<key | \"\">"),
            ("filter(ip:port~2.8.12 | TYPE=type@3.2.0...?)", "<ip:port | TYPE type [type ...]>"),
        ] {
            assert_eq!(manual(syntax), wanted, "{syntax}");
        }
    }

    #[test]
    fn an_argument_has_all_that_is_said_of_it() {
        let [first, second, third] = &parse("key ip:port:int~2.8.12 GET=pattern:pattern#7@6.2.0...+?")[..]
        else {
            panic!("three arguments");
        };
        assert_eq!(
            (&*first.name, &first.kind, first.key_spec),
            ("key", &ArgumentKind::Value("key"), Some(0))
        );
        assert_eq!((&*second.name, &second.kind), ("ip:port", &ArgumentKind::Value("integer")));
        assert_eq!((second.deprecated_since, second.key_spec), (Some("2.8.12"), None));
        let wanted = Argument {
            name: "pattern".to_owned(),
            kind: ArgumentKind::Value("pattern"),
            token: Some("GET"),
            key_spec: Some(7),
            since: Some("6.2.0"),
            deprecated_since: None,
            optional: true,
            multiple: true,
            multiple_token: true,
        };
        assert_eq!(*third, wanted);
    }

    #[test]
    fn the_syntax_of_every_row_is_read_to_its_end() {
        fn check(arguments: &[Argument<'_>], command: &str) {
            for argument in arguments {
                let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_:/".contains(letter);
                assert!(
                    !argument.name.is_empty() && argument.name.chars().all(plain),
                    "{command}: {argument:?}"
                );
                if let ArgumentKind::OneOf(inner) | ArgumentKind::Block(inner) = &argument.kind {
                    assert!(!inner.is_empty(), "{command}: {argument:?}");
                    check(inner, command);
                }
            }
        }
        for command in command::all().flat_map(|command| [command].into_iter().chain(command.subcommands)) {
            check(&parse(command.syntax), command.name);
        }
    }
}
