//! What scripts can call, for editors: made from the tables of commands and of functions.

use std::fmt::Write as _;

use script::api::{self, Entry};
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

/// The commands that scripts may call: their names in capital letters, and what they take and do, in a line.
fn commands() -> Vec<(String, String)> {
    let registry = Registry::new(FAMILIES);
    let is_shown = |spec: &&'static Command| {
        registry.lookup(spec.name.as_bytes()).is_some_and(|row| is_for_scripts(row, spec))
    };
    let line = |spec: &'static Command| {
        let name = spec.name.to_uppercase();
        let call = format!("{name} {}", syntax::manual(spec.syntax));
        let line = format!("`{}` {}", call.trim_end(), spec.summary);
        (name, line)
    };
    let specs = registry.families().map(|(spec, _)| spec);
    let mut commands: Vec<_> = specs.filter(is_shown).map(line).collect();
    commands.sort_unstable();
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
    for (name, line) in commands() {
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
            let mut names: Vec<&str> = parameters.iter().map(|parameter| parameter.name).collect();
            names.extend(has_more.then_some("..."));
            let _ = writeln!(text, "---@return any\nfunction {table}.{name}({}) end", names.join(", "));
        }
    }
    let _ = write!(text, "\n---@type redislib\n{} = redis\n", api::ALIAS);
    text
}

fn typescript() -> String {
    let mut text = "\
// What scripts of Moonshard can call, for TypeScriptToLua. Made by `moonshard script definitions typescript`.

declare const KEYS: string[];
declare const ARGV: string[];

type RedisArgument = string | number;

/** The commands that scripts may call, with what they take and do. */
interface RedisCommands {
"
    .to_owned();
    for (name, line) in commands() {
        let _ = writeln!(text, "  /** {} */\n  \"{name}\": true;", line.replace("*/", "* /"));
    }
    text.push_str("}\n\ntype RedisCommand = keyof RedisCommands | (string & {});\n");
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
                format!("{name}{mark}: {}", if is_command(name) { "RedisCommand" } else { "any" })
            };
            // Quoted, as one of them is `new`. Without `this` TypeScriptToLua passes the table as the first argument.
            let mut all = vec!["this: void".to_owned()];
            all.extend(parameters.iter().map(shown));
            if has_more {
                all.push(format!("...others: {}[]", if calls { "RedisArgument" } else { "any" }));
            }
            let _ = writeln!(text, "  \"{name}\"({}): any;", all.join(", "));
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
    fn definitions_name_commands_and_functions() {
        let lua = text(Language::Lua);
        assert!(lua.contains("---| '\"GET\"' # `GET key` "), "{lua}");
        assert!(lua.contains("---@param command redis.Command\n---@param ... redis.Argument\n---@return any\nfunction redis.call(command, ...) end\n"));
        assert!(lua.contains("---@type number\nredis.LOG_DEBUG = nil\n"));
        assert!(!lua.contains("\"SUBSCRIBE\""), "scripts cannot call it");
        let typescript = text(Language::TypeScript);
        assert!(typescript.contains("  /** `GET key` "), "{typescript}");
        assert!(
            typescript.contains(
                "  \"call\"(this: void, command: RedisCommand, ...others: RedisArgument[]): any;\n"
            )
        );
        assert!(typescript.contains("  \"unpack_one\"(this: void, text: any, offset?: any): any;\n"));
    }
}
