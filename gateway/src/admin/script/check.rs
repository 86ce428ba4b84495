//! `moonshard script check`: mistakes that can be found without running a script.

use std::collections::HashSet;
use std::fmt;
use std::path::{Path, PathBuf};

use ::script::api;
use store_engine::Args;

use super::error::ToolError;
use super::local::{self, Engine};
use super::lua::{self, Argument, Call, Outline};
use super::show::print;
use super::task::read;
use super::testing::{HELPERS, is_test_file};
use crate::admission::{is_for_scripts, parse};
use crate::commands;
use crate::config::UndeclaredKeys;
use crate::scripts::functions;
use crate::scripts::header::Header;
use crate::server::Registry;

/// How bad a mistake is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    /// The script fails when it comes there.
    Error,
    /// The script works, but could be better.
    Warning,
}

/// A mistake.
#[derive(Debug, PartialEq, Eq)]
struct Finding {
    line: u32,
    level: Level,
    text: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = if self.level == Level::Error { "error" } else { "warning" };
        write!(f, "{}: {level}: {}", self.line, self.text)
    }
}

/// What kind of program a file has.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Script,
    /// A library of functions, which has neither `KEYS` nor `ARGV`.
    Library,
    /// Tests, which may use what only clients may use.
    Tests,
}

/// Prints the mistakes in scripts. Whether there is no error among them.
pub async fn run(files: &[PathBuf]) -> Result<bool, ToolError> {
    let server = Engine::start().await?.server()?;
    let client = local::client(&server);
    let mut is_well = true;
    for file in files {
        let text = read(file)?;
        let mut found = match commands::script::check(&server, &client.session, &text).await {
            Ok(_) => findings(&text, file, &server.registry),
            Err(error) => vec![not_compiled(error.text())],
        };
        found.sort_by_key(|finding| finding.line);
        is_well &= found.iter().all(|finding| finding.level == Level::Warning);
        for finding in found {
            print(&format!("{}:{finding}\n", file.display()))?;
        }
    }
    Ok(is_well)
}

/// The error of a script that does not compile, or whose header is wrong.
fn not_compiled(error: &str) -> Finding {
    let at = error.split_once("user_script:").and_then(|(_, at)| at.split_once(": "));
    let (line, text) = match at.and_then(|(line, text)| Some((line.parse().ok()?, text))) {
        Some((line, text)) => (line, text),
        None => (1, error.strip_prefix("ERR ").unwrap_or(error)),
    };
    Finding { line, level: Level::Error, text: text.to_owned() }
}

/// The mistakes in a script that compiles.
fn findings(text: &[u8], file: &Path, registry: &Registry) -> Vec<Finding> {
    let (header, body) = Header::parse(text).unwrap_or_else(|_| (Header::default(), text.into()));
    let widens = header.options.undeclared() == Some(UndeclaredKeys::Widen);
    let outline = match lua::outline(&body) {
        Ok(outline) => outline,
        Err(error) => return vec![Finding { line: error.line, level: Level::Error, text: error.text }],
    };
    let registers = |call: &Call| is_redis(call) && call.function.name == "register_function";
    let kind = match outline.calls.iter().any(registers) {
        _ if is_test_file(file) => Kind::Tests,
        true => Kind::Library,
        false => Kind::Script,
    };
    let mut found = Vec::new();
    if kind == Kind::Library
        && let Err(error) = functions::Outline::parse(text)
    {
        found.push(not_compiled(error.text()));
    }
    undeclared(&outline, kind, &mut found);
    for call in &outline.calls {
        unknown_function(call, &mut found);
        if is_redis(call) && matches!(&*call.function.name, "call" | "pcall" | "acall" | "apcall") {
            wrong_call(call, kind, registry, &mut found);
            if kind != Kind::Tests && !widens {
                undeclared_keys(call, registry, &mut found);
            }
        }
    }
    found
}

fn is_redis(call: &Call) -> bool {
    matches!(&*call.function.table, "redis" | api::ALIAS)
}

/// The names of the reference: `table.member`, or a global function.
fn known_names() -> impl Iterator<Item = &'static str> {
    api::SECTIONS
        .iter()
        .flat_map(|section| section.entries.iter().map(|entry| entry.name).chain(section.lua.iter().copied()))
}

fn undeclared(outline: &Outline, kind: Kind, found: &mut Vec<Finding>) {
    let tables = known_names().map(|name| name.split('.').next().unwrap_or(name));
    let mut known: HashSet<&str> = tables.chain([api::ALIAS, "_G"]).collect();
    match kind {
        Kind::Script => known.extend(["KEYS", "ARGV"]),
        Kind::Library => {}
        Kind::Tests => {
            known.extend(HELPERS);
            // What a file of tests assigns becomes a local variable.
            known.extend(outline.globals.iter().filter(|global| global.is_write).map(|global| &*global.name));
        }
    }
    for global in &outline.globals {
        let name = &global.name;
        let text = match (global.is_write, known.contains(&**name)) {
            (true, _) if kind != Kind::Tests => {
                format!("'{name}' is a global variable, which scripts cannot assign; declare it with local")
            }
            (false, false) => format!("'{name}' is not declared"),
            _ => continue,
        };
        found.push(Finding { line: global.line, level: Level::Error, text });
    }
}

/// A call of a member that a table of the reference does not have.
fn unknown_function(call: &Call, found: &mut Vec<Finding>) {
    let table = if is_redis(call) { "redis" } else { &*call.function.table };
    let mut members =
        known_names().filter_map(|name| name.split_once('.')).filter(|(of, _)| *of == table).peekable();
    if members.peek().is_some() && members.all(|(_, member)| member != call.function.name) {
        let (table, name) = (&call.function.table, &call.function.name);
        let text = format!("there is no function {table}.{name}");
        found.push(Finding { line: call.function.line, level: Level::Error, text });
    }
}

/// Most arguments that `...` is taken for.
const MOST_OPEN: usize = 16;

/// A call of a command whose name is a literal.
fn wrong_call(call: &Call, kind: Kind, registry: &Registry, found: &mut Vec<Finding>) {
    let mut add = |text| found.push(Finding { line: call.function.line, level: Level::Error, text });
    let Some(args) = arguments(call, registry) else { return };
    let parsed = match parse(registry, Args::new(&args), false) {
        Ok(parsed) => parsed,
        Err(error) => {
            let text = error.text();
            let text = text.split_once(", with args").map_or(text, |(text, _)| text);
            return add(text.strip_prefix("ERR ").unwrap_or(text).to_owned());
        }
    };
    if kind != Kind::Tests && !is_for_scripts(parsed.row, parsed.spec()) {
        let name = String::from_utf8_lossy(args[0]).to_uppercase();
        add(format!("{name} is not allowed in scripts"));
    }
}

/// The arguments of a call of a command whose name is a literal, empty where they are not known. Nothing if it remains open
/// which subcommand is called.
fn arguments<'c>(call: &'c Call, registry: &Registry) -> Option<Vec<&'c [u8]>> {
    let name = call.args.first()?.literal()?;
    let mut args: Vec<&[u8]> = vec![name];
    args.extend(call.args[1..].iter().map(|arg| arg.literal().unwrap_or_default()));
    let is_container = registry.lookup(name).is_some_and(|row| !row.spec().subcommands.is_empty());
    if is_container && call.args.get(1).is_some_and(|arg| arg.literal().is_none()) {
        return None;
    }
    if call.is_open {
        // The last argument stands for none, or for more.
        args.pop();
        let fits = |args: &[&[u8]]| parse(registry, Args::new(args), false).is_ok();
        for _ in 0..MOST_OPEN {
            if fits(&args) {
                break;
            }
            args.push(b"");
        }
    }
    Some(args)
}

/// Keys of a call that a client cannot have declared, unless it knows what the script does.
fn undeclared_keys(call: &Call, registry: &Registry, found: &mut Vec<Finding>) {
    let Some(args) = arguments(call, registry) else { return };
    let Ok(parsed) = parse(registry, Args::new(&args), false) else { return };
    for (at, _) in parsed.keys() {
        let text = match call.args.get(*at) {
            Some(Argument::Literal(key)) => {
                let key = String::from_utf8_lossy(key);
                format!("the key '{key}' is a literal; declare it in KEYS")
            }
            Some(Argument::Built { from_keys: false }) => {
                "a key is built of literals and ARGV; declare it in KEYS".to_owned()
            }
            Some(Argument::Built { from_keys: true }) => {
                "a key is built of an element of KEYS, which Redis Cluster does not allow; declare it in KEYS"
                    .to_owned()
            }
            _ => continue,
        };
        found.push(Finding { line: call.function.line, level: Level::Warning, text });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found_in(file: &str, text: &str) -> String {
        let mut found = findings(text.as_bytes(), Path::new(file), &local::registry());
        found.sort_by_key(|finding| finding.line);
        found.iter().map(|finding| format!("{finding}\n")).collect()
    }

    #[test]
    fn mistakes_are_found() {
        let script = "#!lua flags=no-writes
            local n = redis.call('GTE', KEYS[1])
            total = n + totl
            server.pcall('get')
            redis.call('SET', 'counter', n)
            redis.call('DEL', 'a', KEYS[1], 'b')
            local user = 'user:' .. ARGV[1] redis.call('GET', user) redis.call('SET', KEYS[1] .. ':copy', 1)
            redis.call('CONFIG', 'GTE', 'a')
            redis.call('SUBSCRIBE', 'a')
            redis.cal('GET', KEYS[1])
            return string.reverse(os.time())";
        insta::assert_snapshot!(found_in("a.lua", script), @r"
        2: error: unknown command 'GTE'
        3: error: 'totl' is not declared
        3: error: 'total' is a global variable, which scripts cannot assign; declare it with local
        4: error: wrong number of arguments for 'get' command
        5: warning: the key 'counter' is a literal; declare it in KEYS
        6: warning: the key 'a' is a literal; declare it in KEYS
        6: warning: the key 'b' is a literal; declare it in KEYS
        7: warning: a key is built of literals and ARGV; declare it in KEYS
        7: warning: a key is built of an element of KEYS, which Redis Cluster does not allow; declare it in KEYS
        8: error: unknown subcommand 'GTE'. Try CONFIG HELP.
        9: error: SUBSCRIBE is not allowed in scripts
        10: error: there is no function redis.cal
        11: error: there is no function os.time
        ");
    }

    #[test]
    fn what_is_right_is_not_reported() {
        let script = "local call, name = redis.call, tostring(ARGV[1])
            local function all(...) return call('MGET', ...) end
            call(name, 'a') call('DEL', unpack(KEYS)) call('SET', KEYS[1], unpack(ARGV))
            call('OBJECT', name, KEYS[1]) call('GET', 'user:' .. name) call('TIME')
            call('ZUNIONSTORE', KEYS[1], 2, KEYS[2], KEYS[3])
            call('CONFIG', 'HELP')
            return cjson.encode(all('x', 'y')), bit.band(1, 2), server.sha1hex(''), _G, math.pi";
        assert_eq!(found_in("a.lua", script), "");
    }

    #[test]
    fn scripts_that_declare_it_have_other_keys() {
        let body = "local k = 'a' redis.call('GET', k) redis.call('GET', 'a:' .. KEYS[1])";
        assert_eq!(found_in("a.lua", body).lines().count(), 2);
        for header in ["#!lua flags=allow-undeclared-keys\n", "#!lua undeclared-keys=widen\n"] {
            assert_eq!(found_in("a.lua", &format!("{header}{body}")), "", "{header}");
        }
    }

    #[test]
    fn libraries_and_tests_have_other_globals() {
        let library = "#!lua name=a\nredis.register_function('f', function(keys) return KEYS[1] end)";
        assert_eq!(found_in("a.lua", library), "2: error: 'KEYS' is not declared\n");
        assert!(found_in("a.lua", &library[13..]).starts_with("1: error: Missing library metadata\n"));
        let tests =
            "function test_a() helper() assert_equal(1, run('a.lua')) redis.call('FLUSHALL') other() end
            helper = function() redis.call('EVAL', 'return 1', 0) redis.call('SET', 'a', 1) end";
        assert_eq!(found_in("a_test.lua", tests), "1: error: 'other' is not declared\n");
    }

    #[test]
    fn errors_of_the_compiler_have_their_line() {
        let finding =
            not_compiled("ERR Error compiling script (new function): user_script:3: '=' expected near 'x'");
        assert_eq!(finding.to_string(), "3: error: '=' expected near 'x'");
        let finding = not_compiled("ERR Unexpected flag in script shebang: fast");
        assert_eq!(finding.to_string(), "1: error: Unexpected flag in script shebang: fast");
    }
}
