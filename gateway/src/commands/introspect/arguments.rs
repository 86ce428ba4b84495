//! COMMAND DOCS: the arguments of a command as a tree.

use store_engine::Reply;
use store_engine::syntax::{Argument, ArgumentKind};

/// Writes a list of arguments.
pub fn write(arguments: &[Argument<'_>], out: &mut Reply) {
    out.array(arguments.len());
    arguments.iter().for_each(|argument| one(argument, out));
}

fn one(argument: &Argument<'_>, out: &mut Reply) {
    let (kind, inner) = match &argument.kind {
        ArgumentKind::Value(kind) => (*kind, None),
        ArgumentKind::Token => ("pure-token", None),
        ArgumentKind::OneOf(inner) => ("oneof", Some(inner)),
        ArgumentKind::Block(inner) => ("block", Some(inner)),
    };
    let flags = [
        (argument.optional, "optional"),
        (argument.multiple, "multiple"),
        (argument.multiple_token, "multiple_token"),
    ];
    let flags: Vec<&str> = flags.iter().filter_map(|(is, name)| is.then_some(*name)).collect();
    let texts = [
        ("token", argument.token),
        ("since", argument.since),
        ("deprecated_since", argument.deprecated_since),
    ];
    let texts: Vec<(&str, &str)> = texts.into_iter().filter_map(|(name, text)| Some((name, text?))).collect();
    let fields = 2 + texts.len();
    let others = [argument.key_spec.is_some(), !flags.is_empty(), inner.is_some()];
    out.map(fields + others.iter().filter(|is_there| **is_there).count());
    for (name, text) in [("name", &*argument.name), ("type", kind)] {
        out.bulk(name.as_bytes());
        out.bulk(text.as_bytes());
    }
    if let Some(number) = argument.key_spec {
        out.bulk(b"key_spec_index");
        out.integer(number.into());
    }
    for (name, text) in texts {
        out.bulk(name.as_bytes());
        out.bulk(text.as_bytes());
    }
    if !flags.is_empty() {
        out.bulk(b"flags");
        out.set(flags.len());
        flags.iter().for_each(|flag| out.status(flag));
    }
    if let Some(inner) = inner {
        out.bulk(b"arguments");
        write(inner, out);
    }
}
