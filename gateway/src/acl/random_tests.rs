//! Random rules, right and wrong, among them malformed selectors (CVE-2024-31227, CVE-2024-51741): nothing panics, and what
//! is shown of a user makes the same user again.

use std::sync::LazyLock;

use proptest::collection::vec;
use proptest::prelude::*;
use store_engine::Args;

use super::commands::{CATEGORIES, Commands};
use super::file::parse_rules;
use super::selector::Denied;
use super::user::{RuleContext, User, merged};

static COMMANDS: LazyLock<Commands> =
    LazyLock::new(|| Commands::new(store_engine::command::all().map(|row| (row, Vec::new()))));

/// Bytes that mean something to rules and patterns stand beside all others.
fn text() -> impl Strategy<Value = Vec<u8>> {
    let exporting = prop::sample::select(&br#"()"'\ |~%&@*?[]^-RWabk:="#[..]);
    vec(prop_oneof![9 => exporting, 1 => any::<u8>()], 0..8)
}

/// A rule, as one that selectors know.
fn plain() -> impl Strategy<Value = Vec<u8>> {
    const WORDS: &[&str] = &[
        "allkeys",
        "resetkeys",
        "~*",
        "&*",
        "allchannels",
        "resetchannels",
        "allcommands",
        "+@all",
        "-@all",
        "NoCommands",
        "~k*",
        "%R~k*",
        "%W~k*",
        "&c*",
        "+get|k",
        "+GET|K",
        "-get",
    ];
    let sign = || prop::sample::select(&["+", "-"][..]);
    let name =
        || prop::sample::select(&["get", "set", "object", "object|encoding", "xgroup|create", "sort"][..]);
    let join = |parts: &[&[u8]]| parts.concat();
    prop_oneof![
        4 => prop::sample::select(WORDS).prop_map(|word| word.as_bytes().to_vec()),
        4 => (sign(), prop::sample::select(&CATEGORIES[..]))
            .prop_map(move |(sign, name)| join(&[sign.as_bytes(), b"@", name.as_bytes()])),
        4 => (sign(), name()).prop_map(move |(sign, name)| join(&[sign.as_bytes(), name.as_bytes()])),
        2 => (name(), text()).prop_map(move |(name, word)| join(&[b"+", name.as_bytes(), b"|", &word])),
        4 => (prop::sample::select(&["~", "&", "%R~", "%w~", "%RW~", "%"][..]), text())
            .prop_map(move |(kind, pattern)| join(&[kind.as_bytes(), &pattern])),
        1 => text(),
    ]
}

fn rule() -> impl Strategy<Value = Vec<u8>> {
    const WORDS: &[&str] = &[
        "on",
        "off",
        "nopass",
        "resetpass",
        "reset",
        "clearselectors",
        "sanitize-payload",
        ">a",
        ">b",
        "<a",
        "skip-sanitize-payload",
        "#",
        "limit:scripts-at-once=3",
        "limit:script-memory=2mb",
        "limit:script-modes=async,atomic",
        "limit:undeclared-keys=reject",
        "(",
        ")",
    ];
    let selector = |rules: Vec<Vec<u8>>| [b"(", &*rules.join(&b' '), b")"].concat();
    prop_oneof![
        6 => plain(),
        3 => vec(plain(), 0..4).prop_map(selector),
        2 => prop::sample::select(WORDS).prop_map(|word| word.as_bytes().to_vec()),
        1 => text().prop_map(|text| [b"limit:", &*text].concat()),
        1 => text().prop_map(|text| [b"(", &*text, b")"].concat()),
    ]
}

/// Whether all these calls are judged alike, with keys and channels of these names among others.
fn judgements(commands: &Commands, user: &User, names: &[Vec<u8>]) -> Vec<Result<(), Denied>> {
    let others = [&b"k"[..], b"K", b"c", b"", b"a b"].map(<[u8]>::to_vec);
    let mut all = Vec::new();
    for (id, entry) in commands.all() {
        for name in names.iter().chain(&others) {
            let words = entry.name.split('|').map(str::as_bytes);
            let call: Vec<&[u8]> = words.chain([&**name; 3]).collect();
            all.push(user.check(commands, id, Args::new(&call)));
        }
    }
    all
}

proptest! {
    #[test]
    fn what_is_shown_makes_the_same_user(
        rules in vec(rule(), 0..10),
        names in vec(text(), 0..4),
        all_channels in any::<bool>(),
    ) {
        let commands = &*COMMANDS;
        let known = RuleContext { commands, all_channels };
        let mut user = User::new(known);
        for rule in &rules {
            let before = user.clone();
            if user.apply(known, rule).is_err() {
                prop_assert_eq!(user.show(commands), before.show(commands), "a wrong rule has changed the user");
            }
        }
        let shown = user.show(commands);
        // By ACL SETUSER, and from a file.
        let given = merged(shown.split(|byte| *byte == b' ')).expect("closed parentheses");
        let mut again = User::new(known);
        prop_assert_eq!(again.apply_all(known, &given), Ok(()), "{}", shown.escape_ascii());
        let read = parse_rules(shown.split(|byte| *byte == b' '), known);
        prop_assert!(read.is_ok(), "{}", shown.escape_ascii());
        for same in [again, read.expect("it was looked at")] {
            prop_assert_eq!(same.show(commands).escape_ascii().to_string(), shown.escape_ascii().to_string());
            prop_assert_eq!(judgements(commands, &same, &names), judgements(commands, &user, &names));
            prop_assert_eq!(same.lets_in(b"a"), user.lets_in(b"a"));
        }
    }

    #[test]
    fn any_arguments_become_rules_or_an_error(args in vec(rule(), 0..6)) {
        match merged(args.iter().map(Vec::as_slice)) {
            Ok(rules) => {
                let opening = args.iter().filter(|arg| arg.starts_with(b"(") && !arg.ends_with(b")"));
                // Of several that are open all but the last are forgotten.
                if opening.count() < 2 {
                    prop_assert_eq!(rules.join(&b' '), args.join(&b' '));
                }
                let given = args.join(&b' ');
                for rule in rules.iter().filter(|rule| !rule.is_empty()) {
                    prop_assert!(given.windows(rule.len()).any(|part| part == &**rule));
                }
            }
            Err(first) => prop_assert!(args.contains(&first)),
        }
    }
}
