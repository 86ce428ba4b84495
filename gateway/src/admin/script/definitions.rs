//! What scripts can call, for editors: made from the tables of commands and of functions.

use std::fmt::Write as _;

use script::api::{self, Entry};
use store_engine::syntax::{Argument, ArgumentKind};
use store_engine::{Command, syntax};

use crate::admission::is_for_scripts;
use crate::commands::table::FAMILIES;
use crate::server::Registry;

/// A language that editors know types of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Language {
    /// Lua, with the annotations of the language server LuaLS.
    Lua,
    /// TypeScript, for scripts that TypeScriptToLua compiles.
    TypeScript,
}

impl Language {
    /// The language of this name.
    pub fn named(name: &str) -> Option<Language> {
        match name {
            "lua" => Some(Language::Lua),
            "typescript" => Some(Language::TypeScript),
            _ => None,
        }
    }
}

/// The tables of a script whose members are defined: those of Lua an editor knows.
const TABLES: [&str; 5] = ["redis", "cjson", "cmsgpack", "struct", "bit"];

/// The definitions, as the text of a file.
pub fn text(language: Language) -> String {
    match language {
        Language::Lua => lua(),
        Language::TypeScript => typescript(),
    }
}

/// A command that scripts may call.
struct Callable {
    /// In capital letters.
    name: String,
    /// What it takes and does, in a line.
    line: String,
    /// The names of the arguments that it always has.
    fixed: Vec<String>,
    /// A name for any number of other arguments.
    rest: Option<String>,
}

impl Callable {
    fn of(spec: &'static Command) -> Callable {
        let name = spec.name.to_uppercase();
        let call = format!("{name} {}", syntax::manual(spec.syntax));
        let line = format!("`{}` {}", call.trim_end(), spec.summary);
        let (fixed, rest) = arguments(spec);
        Callable { name, line, fixed, rest }
    }
}

/// The names of the arguments that a command always has, and one for all others. Arguments that may be missing are left out, so
/// that one behind these may have the place of one of them.
fn arguments(spec: &Command) -> (Vec<String>, Option<String>) {
    let (mut fixed, mut has_options) = (Vec::new(), false);
    let repeated = match spec.subcommands.is_empty() {
        true => collect(&syntax::parse(spec.syntax), &mut fixed, &mut has_options),
        false => Some("subcommand".to_owned()),
    };
    let arity = spec.arity.as_redis();
    fixed.truncate(arity.unsigned_abs().saturating_sub(1) as usize);
    let has_others = arity < 0 || has_options || repeated.is_some();
    (fixed, repeated.or_else(|| has_others.then(|| "options".to_owned())))
}

/// Collects arguments up to the first that may be repeated, and gives the name of that one.
fn collect(arguments: &[Argument<'_>], fixed: &mut Vec<String>, has_options: &mut bool) -> Option<String> {
    for argument in arguments {
        let name = identifier(&argument.name);
        if argument.multiple {
            let is_option = argument.optional && argument.token.is_some();
            return Some(if is_option { "options".to_owned() } else { name });
        }
        if argument.optional {
            *has_options = true;
            continue;
        }
        match &argument.kind {
            ArgumentKind::Token => {}
            _ => fixed.extend(argument.token.map(|word| identifier(&word.to_lowercase()))),
        }
        match &argument.kind {
            ArgumentKind::Value(_) | ArgumentKind::Token => fixed.push(name),
            ArgumentKind::Block(inner) => {
                let repeated = collect(inner, fixed, has_options);
                if repeated.is_some() {
                    return repeated;
                }
            }
            ArgumentKind::OneOf(choices) if choices.iter().all(is_single) => fixed.push(name),
            ArgumentKind::OneOf(_) => return Some(name),
        }
    }
    None
}

/// Whether it is one word of a call.
fn is_single(argument: &Argument<'_>) -> bool {
    match argument.kind {
        ArgumentKind::Value(_) => argument.token.is_none() && !argument.multiple,
        ArgumentKind::Token => !argument.multiple,
        _ => false,
    }
}

/// A name that is one in both languages.
fn identifier(name: &str) -> String {
    const KEYWORDS: [&str; 7] = ["and", "end", "function", "in", "not", "or", "repeat"];
    let name = name.replace(|letter: char| !letter.is_ascii_alphanumeric(), "_");
    if KEYWORDS.contains(&&*name) { name + "_" } else { name }
}

/// The commands that scripts may call, by name.
fn commands() -> Vec<Callable> {
    let registry = Registry::new(FAMILIES);
    let is_shown = |spec: &&'static Command| {
        registry.lookup(spec.name.as_bytes()).is_some_and(|row| is_for_scripts(row, spec))
    };
    let specs = registry.families().map(|(spec, _)| spec);
    let mut commands: Vec<_> = specs.filter(is_shown).map(Callable::of).collect();
    commands.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    commands
}

/// The members of a table, without its name.
fn members(table: &str) -> impl Iterator<Item = (&'static str, &'static Entry)> {
    let entries = api::SECTIONS.iter().flat_map(|section| section.entries);
    entries.filter_map(move |entry| Some((entry.name.strip_prefix(table)?.strip_prefix('.')?, entry)))
}

/// A parameter of a function.
struct Parameter<'a> {
    name: &'a str,
    is_optional: bool,
}

/// The parameters of a call such as `unpack(text[, offset])`, and whether any number of others may follow.
fn parameters(call: &str) -> (Vec<Parameter<'_>>, bool) {
    let inner = call.split_once('(').map_or("", |(_, rest)| rest.trim_end_matches(')'));
    let optional_from = inner.find('[').unwrap_or(inner.len());
    let words = inner.split([',', '[', ']', ' ']).filter(|word| !word.is_empty());
    let place = |word: &str| word.as_ptr() as usize - inner.as_ptr() as usize;
    let (more, named): (Vec<&str>, Vec<&str>) = words.partition(|word| *word == "...");
    let named = named.into_iter().map(|name| Parameter { name, is_optional: place(name) > optional_from });
    (named.collect(), !more.is_empty())
}

/// The type of a constant, by what the reference says of its value.
fn is_number(constant: &Entry) -> bool {
    constant.doc.starts_with(|first: char| first.is_ascii_digit()) || constant.name.ends_with("_NUM")
}

fn is_command(name: &str) -> bool {
    name == "command"
}

fn lua() -> String {
    let mut text = "\
---@meta
-- What scripts of Moonshard can call, for the Lua language server. Made by `moonshard script definitions lua`.

---@type string[]
KEYS = {}

---@type string[]
ARGV = {}

---@alias redis.Argument string|number

---@alias redis.Command string
"
    .to_owned();
    let commands = commands();
    for Callable { name, line, .. } in &commands {
        let _ = writeln!(text, "---| '\"{name}\"' # {line}");
    }
    for table in TABLES {
        let _ = write!(text, "\n---@class {table}lib\n{table} = {{}}\n");
        for (name, entry) in members(table) {
            let _ = writeln!(text, "\n---{}", entry.doc);
            if entry.call.is_empty() {
                let kind = if is_number(entry) { "number" } else { "any" };
                let _ = writeln!(text, "---@type {kind}\n{table}.{name} = nil");
                continue;
            }
            let (parameters, has_more) = parameters(entry.call);
            for Parameter { name, is_optional } in &parameters {
                let mark = if *is_optional { "?" } else { "" };
                let kind = if is_command(name) { "redis.Command" } else { "any" };
                let _ = writeln!(text, "---@param {name}{mark} {kind}");
            }
            if has_more {
                let calls = parameters.iter().any(|parameter| is_command(parameter.name));
                let _ = writeln!(text, "---@param ... {}", if calls { "redis.Argument" } else { "any" });
            }
            if parameters.iter().any(|parameter| is_command(parameter.name)) {
                commands.iter().for_each(|command| overload(command, &mut text));
            }
            let mut names: Vec<&str> = parameters.iter().map(|parameter| parameter.name).collect();
            names.extend(has_more.then_some("..."));
            let _ = writeln!(text, "---@return any\nfunction {table}.{name}({}) end", names.join(", "));
        }
    }
    let _ = write!(text, "\n---@type redislib\n{} = redis\n", api::ALIAS);
    text
}

/// Adds the arguments of a command to the function defined next.
fn overload(Callable { name, fixed, rest, .. }: &Callable, text: &mut String) {
    let _ = write!(text, "---@overload fun(command: \"{name}\"");
    for argument in fixed {
        let _ = write!(text, ", {argument}: redis.Argument");
    }
    text.push_str(if rest.is_some() { ", ...: redis.Argument): any\n" } else { "): any\n" });
}

/// The arguments of a command as a tuple.
fn tuple(Callable { fixed, rest, .. }: &Callable) -> String {
    let fixed = fixed.iter().map(|name| format!("{name}: RedisArgument"));
    let rest = rest.iter().map(|name| format!("...{name}: RedisArgument[]"));
    format!("[{}]", fixed.chain(rest).collect::<Vec<_>>().join(", "))
}

fn typescript() -> String {
    let mut text = "\
// What scripts of Moonshard can call, for TypeScriptToLua. Made by `moonshard script definitions typescript`.

declare const KEYS: string[];
declare const ARGV: string[];

type RedisArgument = string | number;

/** The commands that scripts may call, with their arguments, and with what they take and do. */
interface RedisCommands {
"
    .to_owned();
    for command in commands() {
        let (name, line) = (&command.name, command.line.replace("*/", "* /"));
        let _ = writeln!(text, "  /** {line} */\n  \"{name}\": {};", tuple(&command));
    }
    text.push_str(
        "}\n\ntype RedisCommand = keyof RedisCommands | (string & {});\n\n\
         /** The arguments of a command; any, if it is not written in capital letters. */\n\
         type RedisArguments<Command> =\n  \
         Command extends keyof RedisCommands ? RedisCommands[Command] : RedisArgument[];\n",
    );
    for table in TABLES {
        let _ = write!(text, "\ndeclare const {table}: {{\n");
        for (name, entry) in members(table) {
            let _ = writeln!(text, "  /** {} */", entry.doc);
            if entry.call.is_empty() {
                let kind = if is_number(entry) { "number" } else { "any" };
                let _ = writeln!(text, "  readonly {name}: {kind};");
                continue;
            }
            let (parameters, has_more) = parameters(entry.call);
            let calls = parameters.iter().any(|parameter| is_command(parameter.name));
            let shown = |Parameter { name, is_optional }: &Parameter<'_>| {
                let mark = if *is_optional { "?" } else { "" };
                format!("{name}{mark}: {}", if is_command(name) { "Command" } else { "any" })
            };
            // Quoted, as one of them is `new`. Without `this` TypeScriptToLua passes the table as the first argument.
            let mut all = vec!["this: void".to_owned()];
            all.extend(parameters.iter().map(shown));
            if has_more {
                all.push(format!("...others: {}", if calls { "RedisArguments<Command>" } else { "any[]" }));
            }
            let generic = if calls { "<Command extends RedisCommand>" } else { "" };
            let _ = writeln!(text, "  \"{name}\"{generic}({}): any;", all.join(", "));
        }
        text.push_str("};\n");
    }
    let _ = write!(text, "\ndeclare const {}: typeof redis;\n", api::ALIAS);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_read_from_the_reference() {
        let names = |call| {
            let (parameters, has_more) = parameters(call);
            let shown =
                parameters.iter().map(|it| format!("{}{}", it.name, if it.is_optional { "?" } else { "" }));
            (shown.collect::<Vec<_>>().join(" "), has_more)
        };
        assert_eq!(names("redis.call(command, ...)"), ("command".to_owned(), true));
        assert_eq!(names("cjson.new()"), (String::new(), false));
        assert_eq!(
            names("struct.unpack(format, text[, position])"),
            ("format text position?".to_owned(), false)
        );
        assert_eq!(names("x.y([convert[, ratio[, safe]]])"), ("convert? ratio? safe?".to_owned(), false));
    }

    #[test]
    fn arguments_are_those_of_the_command_table() {
        let commands = commands();
        let shown = |name: &str| {
            let command = commands.iter().find(|command| command.name == name).expect("a command");
            let rest = command.rest.iter().map(|rest| format!("...{rest}"));
            command.fixed.iter().cloned().chain(rest).collect::<Vec<_>>().join(" ")
        };
        for (name, wanted) in [
            ("GET", "key"),
            ("TIME", ""),
            ("SET", "key value ...options"),
            ("DEL", "...key"),
            ("SADD", "key ...member"),
            ("SORT", "key ...options"),
            ("LMOVE", "source destination wherefrom whereto"),
            ("OBJECT", "...subcommand"),
        ] {
            assert_eq!(shown(name), wanted, "{name}");
        }
        let registry = Registry::new(FAMILIES);
        for Callable { name, fixed, rest, .. } in &commands {
            let arity = registry.lookup(name.as_bytes()).expect("a command").spec().arity.as_redis();
            let least = arity.unsigned_abs() as usize - 1;
            assert!(fixed.len() == least || rest.is_some() && fixed.len() < least, "{name}: {fixed:?}");
            assert_eq!(rest.is_some(), arity < 0, "{name}: {rest:?}");
        }
    }

    #[test]
    fn definitions_name_commands_and_functions() {
        let lua = text(Language::Lua);
        assert!(lua.contains("---| '\"GET\"' # `GET key` "), "{lua}");
        assert!(lua.contains("---@param command redis.Command\n---@param ... redis.Argument\n"));
        assert!(lua.contains("\n---@overload fun(command: \"GET\", key: redis.Argument): any\n"), "{lua}");
        assert!(lua.contains("---@return any\nfunction redis.call(command, ...) end\n"));
        assert!(lua.len() < 256 << 10, "{}", lua.len());
        assert!(lua.contains("---@type number\nredis.LOG_DEBUG = nil\n"));
        assert!(!lua.contains("\"SUBSCRIBE\""), "scripts cannot call it");
        let typescript = text(Language::TypeScript);
        assert!(typescript.contains("  /** `GET key` "), "{typescript}");
        assert!(
            typescript.contains(
                "  \"call\"<Command extends RedisCommand>(this: void, command: Command, ...others: RedisArguments<Command>): any;\n"
            )
        );
        assert!(
            typescript.contains(
                "  \"GETRANGE\": [key: RedisArgument, start: RedisArgument, end_: RedisArgument];\n"
            )
        );
        assert!(typescript.contains("  \"unpack_one\"(this: void, text: any, offset?: any): any;\n"));
    }
}
