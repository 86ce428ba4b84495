//! JSON documents, as RedisJSON 2 has them: its replies and the texts of its errors. Where it says nothing, as of values that two
//! parts of a path select, valkey-json is followed; of numbers that overflow, RedisJSON 8.

mod array;
mod common;
mod read;
#[cfg(test)]
mod tests;
mod write;

use crate::Args;
use crate::cost::{Cost, Size};
use crate::spec::{Access, Arity, Command, Group, KeyPart, flags};
use crate::steps::BYTES_PER_STEP;
use crate::value::json::Path;

/// The rows of this family.
pub static COMMANDS: &[Command] = &[
    Command {
        name: "json.arrappend",
        arity: Arity::AtLeast(4),
        flags: flags::DENY_OOM,
        summary: "Appends JSON values to the arrays at a path.",
        syntax: "key path value...",
        run: array::append,
        ..WRITES
    },
    Command {
        name: "json.arrindex",
        arity: Arity::AtLeast(4),
        summary: "Returns the index of the first occurrence of a JSON scalar or other value in the arrays at a path.",
        syntax: "key path value range(start:int stop:int?)?",
        run: read::array_index,
        ..READS
    },
    Command {
        name: "json.arrinsert",
        arity: Arity::AtLeast(5),
        flags: flags::DENY_OOM,
        summary: "Inserts JSON values before an index of the arrays at a path.",
        syntax: "key path index:int value...",
        run: array::insert,
        ..WRITES
    },
    Command {
        name: "json.arrlen",
        summary: "Returns the length of the arrays at a path.",
        run: read::array_len,
        ..LOOKS
    },
    Command {
        name: "json.arrpop",
        summary: "Removes and returns the element at an index of the arrays at a path.",
        syntax: "key path_index(path index:int?)?",
        run: array::pop,
        ..WRITES
    },
    Command {
        name: "json.arrtrim",
        arity: Arity::Exactly(5),
        summary: "Trims the arrays at a path to a range of their elements.",
        syntax: "key path start:int stop:int",
        run: array::trim,
        ..WRITES
    },
    Command {
        name: "json.clear",
        since: "2.0.0",
        summary: "Empties the arrays and objects at a path and sets the numbers there to 0.",
        run: write::clear,
        ..WRITES
    },
    Command {
        name: "json.debug",
        arity: Arity::AtLeast(2),
        keys: KeyPart::NONE,
        summary: "A container for debugging commands.",
        complexity: "Depends on subcommand.",
        syntax: "",
        subcommands: DEBUG,
        help: "MEMORY <key> [<path>]\n    Return the bytes of memory that the values at a path take.",
        ..READS
    },
    Command { name: "json.del", summary: "Deletes the values at a path.", run: write::delete, ..WRITES },
    Command { name: "json.forget", summary: "Deletes the values at a path.", run: write::delete, ..WRITES },
    Command {
        name: "json.get",
        summary: "Returns the values at one or more paths as JSON text.",
        syntax: "key INDENT=indent? NEWLINE=newline? SPACE=space? path...?",
        run: read::get,
        ..READS
    },
    Command {
        name: "json.merge",
        since: "2.6.0",
        arity: Arity::Exactly(4),
        flags: flags::DENY_OOM,
        summary: "Merges a JSON value into the values at a path, as RFC 7396 says.",
        syntax: "key path value",
        run: write::merge,
        ..WRITES
    },
    Command {
        name: "json.mget",
        arity: Arity::AtLeast(3),
        keys: &[KeyPart::Range { first: 1, last: -2, step: 1, access: Access::Read }],
        summary: "Returns the values at a path of several documents.",
        complexity: "O(M*N) where M is the number of keys and N is the size of a document.",
        syntax: "key... path",
        run: read::get_many,
        ..READS
    },
    Command {
        name: "json.mset",
        since: "2.6.0",
        arity: Arity::AtLeast(4),
        keys: &[KeyPart::Range { first: 1, last: -1, step: 3, access: Access::Write }],
        flags: flags::DENY_OOM,
        summary: "Sets the values at paths of one or more documents. A document is created at its root.",
        complexity: "O(K*(M+N)) where K is the number of keys, M is the size of a document and N is the size of a new value.",
        syntax: "triplet(key path value)...",
        run: write::set_many,
        ..WRITES
    },
    Command {
        name: "json.numincrby",
        arity: Arity::Exactly(4),
        summary: "Increments the numbers at a path.",
        syntax: "key path increment:double",
        run: write::increment,
        ..CHANGES
    },
    Command {
        name: "json.nummultby",
        arity: Arity::Exactly(4),
        summary: "Multiplies the numbers at a path.",
        syntax: "key path factor:double",
        run: write::multiply,
        ..CHANGES
    },
    Command {
        name: "json.objkeys",
        summary: "Returns the names of the members of the objects at a path.",
        run: read::object_keys,
        ..READS
    },
    Command {
        name: "json.objlen",
        summary: "Returns the number of members of the objects at a path.",
        run: read::object_len,
        ..LOOKS
    },
    Command {
        name: "json.resp",
        summary: "Returns the values at a path in the form of the Redis serialization protocol.",
        run: read::resp,
        ..READS
    },
    Command {
        name: "json.set",
        arity: Arity::AtLeast(4),
        flags: flags::DENY_OOM,
        summary: "Sets the values at a path. A document is created at its root.",
        complexity: "O(M+N) where M is the size of the document and N is the size of the new value.",
        syntax: "key path value condition(NX | XX)?",
        run: write::set,
        ..WRITES
    },
    Command {
        name: "json.strappend",
        arity: Arity::AtLeast(3),
        flags: flags::DENY_OOM,
        summary: "Appends to the strings at a path.",
        syntax: "key path? value",
        cost: Cost::Values(1),
        run: write::append_string,
        ..CHANGES
    },
    Command {
        name: "json.strlen",
        summary: "Returns the length of the strings at a path.",
        run: read::string_len,
        ..LOOKS
    },
    Command {
        name: "json.toggle",
        since: "2.0.0",
        arity: Arity::Exactly(3),
        summary: "Toggles the booleans at a path.",
        syntax: "key path",
        run: write::toggle,
        ..CHANGES
    },
    Command {
        name: "json.type",
        summary: "Returns the types of the values at a path.",
        run: read::type_of,
        ..LOOKS
    },
];

static DEBUG: &[Command] = &[
    Command {
        name: "help",
        arity: Arity::Exactly(2),
        keys: KeyPart::NONE,
        routing: crate::Routing::Anywhere,
        summary: "Returns helpful text about the different subcommands.",
        complexity: "O(1)",
        syntax: "",
        run: read::debug_help,
        ..READS
    },
    Command {
        name: "memory",
        arity: Arity::AtLeast(3),
        keys: &[KeyPart::one(2, Access::Read)],
        summary: "Returns the bytes of memory that the values at a path take.",
        run: read::debug_memory,
        ..READS
    },
];

/// Commands that read whole values.
const READS: Command = Command {
    group: Group::Json,
    arity: Arity::AtLeast(2),
    complexity: "O(N) where N is the size of the document.",
    syntax: "key path?",
    cost: Cost::Values(1),
    ..Command::BASE
};
/// Commands that write or free whole values.
const WRITES: Command = Command {
    keys: KeyPart::FIRST_WRITE,
    access: Access::Write,
    cost: Cost::Arguments(|args, size| steps_to_change(args, size) + steps_to_parse(args)),
    ..READS
};
/// Commands that read a little of each value at a path.
const LOOKS: Command = Command {
    complexity: "O(1) for a path to a single value, otherwise O(N) where N is the size of the document.",
    cost: Cost::Arguments(steps_to_find),
    ..READS
};
/// The same of commands that write.
const CHANGES: Command = Command { keys: KeyPart::FIRST_WRITE, access: Access::Write, ..LOOKS };

/// About how many steps it takes to read JSON text in the arguments: there is a value for some bytes at most.
fn steps_to_parse(args: Args<'_>) -> u64 {
    const BYTES_PER_VALUE: usize = 4;
    args.rest(3).iter().map(|arg| (arg.len() / BYTES_PER_VALUE + arg.len() / BYTES_PER_STEP) as u64).sum()
}

/// About how many steps it takes to change values at the path of the call. What is replaced, or moved since it lies behind, is
/// only counted, which takes a fraction of a step for each value.
fn steps_to_change(args: Args<'_>, size: Size) -> u64 {
    const VALUES_PER_STEP: u64 = 16;
    match size.steps(size.elements) {
        0 => 0,
        steps => (steps / VALUES_PER_STEP).max(steps_to_find(args, size)),
    }
}

/// About how many steps it takes to find the values at the path of the call.
fn steps_to_find(args: Args<'_>, size: Size) -> u64 {
    let path = args.get(2).map(Path::parse);
    let is_static = path.is_none_or(|path| path.is_ok_and(|path| path.is_static()));
    if is_static { 1 } else { size.steps(size.elements) }
}
