//! Programs, and what is found in them.

use super::outline;
use super::outline::{Argument, Call, Global, Member};

fn globals(text: &str) -> String {
    let outline = outline(text.as_bytes()).unwrap_or_else(|error| panic!("{text}: {error}"));
    let shown = |global: &Global| {
        let Global { name, line, is_write } = global;
        format!("{name}:{line}{}", if *is_write { "=" } else { "" })
    };
    outline.globals.iter().map(shown).collect::<Vec<_>>().join(" ")
}

fn calls(text: &str) -> String {
    let outline = outline(text.as_bytes()).unwrap_or_else(|error| panic!("{text}: {error}"));
    let shown = |call: &Call| {
        let arg = |arg: &Argument| match arg {
            Argument::Literal(text) => text.escape_ascii().to_string(),
            Argument::Built { from_keys: true } => "built from KEYS".to_owned(),
            Argument::Built { from_keys: false } => "built".to_owned(),
            Argument::Other => "?".to_owned(),
        };
        let args: Vec<String> = call.args.iter().map(arg).collect();
        let open = if call.is_open { "..." } else { "" };
        let Member { table, name, line } = &call.function;
        format!("{table}.{name}:{line}({}{open})", args.join(","))
    };
    outline.calls.iter().map(shown).collect::<Vec<_>>().join(" ")
}

#[test]
fn scopes_are_those_of_lua() {
    for (text, wanted) in [
        ("local a = a return a", "a:1"),
        ("local a do local b = a end return b", "b:1"),
        ("x = 1\ny.z = 2", "x:1= y:2"),
        ("local x x = 1", ""),
        ("for i = 1, n do local t = i end return i", "n:1 i:1"),
        ("for k, v in pairs(t) do f(k, v) end", "pairs:1 t:1 f:1"),
        ("repeat local done = f() until done return done", "f:1 done:1"),
        ("while a do b() end", "a:1 b:1"),
        ("if a then local x elseif x then b() else c() end", "a:1 x:1 b:1 c:1"),
        ("function f(a, ...) return a, b, ... end", "f:1= b:1"),
        ("local function f() return f() end", ""),
        ("local f = function(x) return f end", "f:1"),
        ("function t.a:m() return self end", "t:1"),
        ("return {a = b, [c] = d, e; f()}", "b:1 c:1 d:1 e:1 f:1"),
        ("local s = ('x'):rep(n) .. #m .. -o return not p", "n:1 m:1 o:1 p:1"),
        ("a.b.c[d](e){f}'g':h(i)", "a:1 d:1 e:1 f:1 i:1"),
        ("a, b[c] = d, e", "b:1 c:1 d:1 e:1 a:1="),
        ("local t = {} ; t.x = (y) return;", "y:1"),
    ] {
        assert_eq!(globals(text), wanted, "{text}");
    }
}

#[test]
fn calls_have_their_arguments() {
    for (text, wanted) in [
        ("redis.call('GET', KEYS[1])", "redis.call:1(GET,?)"),
        ("return\nredis.pcall('SET', 'a', 5)", "redis.pcall:2(SET,a,5)"),
        ("redis.call('DEL', unpack(KEYS))", "redis.call:1(DEL,?...)"),
        ("redis.call('DEL', (unpack(KEYS)))", "redis.call:1(DEL,?)"),
        ("local function f(...) redis.call(...) end", "redis.call:1(?...)"),
        ("redis.call'PING'", "redis.call:1(PING)"),
        ("local call = redis.call\ncall('GET', 'a')", "redis.call:2(GET,a)"),
        ("local call = redis.call call = f call('GET')", ""),
        ("local redis = t redis.call('GET')", ""),
        ("redis.call('G' .. 'ET', 'a' .. b)", "redis.call:1(built,?)"),
        ("local k = 'a' redis.call('GET', k)", "redis.call:1(GET,a)"),
        ("local k = 'a' local l = k local function f() redis.call('GET', l) end", "redis.call:1(GET,a)"),
        ("redis.call('GET', ARGV[1] .. ':' .. 1)", "redis.call:1(GET,built)"),
        ("local k = 'a:' .. ARGV[1] redis.call('GET', k .. ':b')", "redis.call:1(GET,built)"),
        ("local k = KEYS[1] redis.call('GET', 'a' .. k)", "redis.call:1(GET,built from KEYS)"),
        // Elements of KEYS and ARGV are names that the client has passed.
        ("local k = ARGV[1] redis.call('GET', k)", "redis.call:1(GET,?)"),
        // What is assigned elsewhere may be the value.
        ("local k = 'a' if b then k = KEYS[1] end redis.call('GET', k)", "redis.call:1(GET,?)"),
        ("local k = 'a' local f = function() redis.call('GET', k) end k = b f()", "redis.call:1(GET,?)"),
        ("local k = 'a' local l = 'b' .. k redis.call('GET', l) k = c", "redis.call:1(GET,?)"),
        ("local KEYS = t redis.call('GET', 'a' .. KEYS[1])", "redis.call:1(GET,?)"),
        ("redis.call('GET', ARGV[1] or 'a' .. 'b')", "redis.call:1(GET,?)"),
        ("redis.call('GET', 'a' .. #ARGV[1], 'a' .. -1)", "redis.call:1(GET,?,?)"),
        ("return redis.call('GET', redis.call('GET', 'a'))", "redis.call:1(GET,a) redis.call:1(GET,?...)"),
    ] {
        assert_eq!(calls(text), wanted, "{text}");
    }
}

#[test]
fn what_is_not_lua_is_refused() {
    let deep = format!("return {}1{}", "(".repeat(100_000), ")".repeat(100_000));
    let blocks = "do ".repeat(100_000);
    let tables = format!("return {}", "{".repeat(100_000));
    let calls = format!("return {}", "f{".repeat(100_000));
    let functions = "return function() ".repeat(100_000);
    for text in [
        "x",
        "local",
        "end",
        "if a",
        "f(",
        "a = ",
        "for in",
        "return return",
        "x = }",
        &deep,
        &blocks,
        &tables,
        &calls,
        &functions,
    ] {
        assert!(outline(text.as_bytes()).is_err(), "{:.20}", text);
    }
}
