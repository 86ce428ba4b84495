//! What a script can see, and what the module that runs it can reach, as snapshots: nothing joins unnoticed.

use std::time::Duration;

use script::{
    Budget, CallFlags, Compile, Finishing, Host, HostCall, Instances, LogLevel, Outcome, RunInput, Runtime,
    RuntimeConfig, Script,
};
use wasmparser::{Export, ExternalKind, Import, Parser, Payload, TypeRef};

/// A host that is never asked.
struct NoHost;

impl Host for NoHost {
    fn call(&mut self, _: &[&[u8]], _: CallFlags, _: &mut Vec<u8>) -> HostCall {
        HostCall::Stop
    }

    fn finish<'a>(&'a mut self, _: &'a mut Vec<u8>) -> Finishing<'a> {
        unreachable!("this host never says later")
    }

    fn log(&mut self, _: LogLevel, _: &[u8]) {}
}

/// Names and types of everything below `_G` and below the metatables that can be reached, one line each.
const TREE: &str = "
    local lines, seen = {}, {}
    local function show(value)
        local kind = type(value)
        if kind == 'number' or kind == 'string' then return kind .. ' ' .. tostring(value) end
        return kind
    end
    local function walk(value, path)
        if type(value) == 'table' and seen[value] then
            lines[#lines + 1] = path .. ': ' .. seen[value]
            return
        end
        lines[#lines + 1] = path .. ': ' .. show(value)
        local meta = type(value) ~= 'string' and getmetatable(value)
        if meta then walk(meta, path .. ' metatable') end
        if type(value) ~= 'table' then return end
        seen[value] = path
        local names = {}
        for name in next, value do names[#names + 1] = name end
        table.sort(names, function(one, other) return tostring(one) < tostring(other) end)
        for _, name in ipairs(names) do walk(rawget(value, name), path .. '.' .. tostring(name)) end
    end
    walk(_G, '_G')
    walk(getmetatable(''), 'string metatable')
    table.sort(lines)
    return table.concat(lines, '\\n')";

/// What a script that walks the tree answers, or a function of a library that does.
async fn tree(function: bool) -> String {
    let config = RuntimeConfig {
        instances: Instances::Rewind,
        concurrency: 1,
        max_memory_bytes: 16 << 20,
        compile: Compile::Never,
    };
    let runtime = Runtime::new(config).await.unwrap();
    let budget = Budget {
        fuel: 1 << 32,
        compile_fuel: 1 << 32,
        time: Duration::from_secs(60),
        memory_bytes: 16 << 20,
        reply_bytes: 1 << 20,
        slice_fuel: 100_000,
    };
    let (keys, args): ([&[u8]; 1], [&[u8]; 2]) = ([b"key"], [b"one", b"two"]);
    let input = RunInput {
        name: "f",
        keys: &keys,
        args: &args,
        clock_seconds: 1.5,
        seed: 7,
        function,
        frames: false,
    }
    .encode();
    let script = if function {
        let source = format!("redis.register_function('f', function(keys, args) {TREE} end)");
        let library = Script::new(source.as_bytes());
        let registered = Outcome::Reply(b"*1\r\n*3\r\n$1\r\nf\r\n_\r\n:0\r\n".into());
        assert_eq!(runtime.load(&library, &budget, NoHost).await.0, registered);
        library
    } else {
        Script::new(TREE.as_bytes())
    };
    let (_, outcome, _) = runtime.run(&script, &input, &budget, NoHost).await;
    let Outcome::Reply(reply) = outcome else { panic!("{outcome:?}") };
    let text = String::from_utf8(reply).unwrap();
    let (_, lines) = text.split_once("\r\n").expect("a bulk string");
    lines.trim_end().to_owned()
}

#[tokio::test]
async fn what_a_script_sees() {
    insta::assert_snapshot!(tree(false).await);
}

/// The same but for what Redis' functions do not have either; held by comparison, so that the two stay together.
#[tokio::test]
async fn what_a_function_sees() {
    let (script, function) = (tree(false).await, tree(true).await);
    let missing: Vec<&str> =
        script.lines().filter(|line| !function.lines().any(|has| has == *line)).collect();
    let more: Vec<&str> = function.lines().filter(|line| !script.lines().any(|has| has == *line)).collect();
    insta::assert_snapshot!(format!("not there:\n{}\nmore:\n{}", missing.join("\n"), more.join("\n")));
}

/// The reference has a line for everything that a script sees, and for nothing else.
#[tokio::test]
async fn the_reference_names_what_a_script_sees() {
    let tree = tree(false).await;
    let lines = tree.lines().filter_map(|line| line.split_once(": ")?.0.strip_prefix("_G."));
    let is_given = |name: &str| {
        ["_G", "KEYS", "ARGV", guest_lua::api::ALIAS].contains(&name.split('.').next().unwrap_or_default())
    };
    let mut seen: Vec<&str> = lines.filter(|name| !is_given(name)).collect();
    let tables: Vec<&str> =
        tree.lines().filter_map(|line| line.strip_prefix("_G.")?.strip_suffix(": table")).collect();
    seen.retain(|name| !tables.contains(name));
    let named = |section: &guest_lua::api::Section| {
        let entries = section.entries.iter().map(|entry| entry.name);
        entries.chain(section.lua.iter().copied()).collect::<Vec<_>>()
    };
    let mut named: Vec<&str> = guest_lua::api::SECTIONS.iter().flat_map(named).collect();
    named.retain(|name| !guest_lua::api::WHILE_LOADING.contains(name));
    seen.sort_unstable();
    named.sort_unstable();
    assert_eq!(named, seen);
}

/// Read from the module itself: compiling it would take seconds.
#[test]
fn what_the_module_reaches() {
    let (mut types, mut functions, mut globals, mut memories) = (vec![], vec![], vec![], vec![]);
    let (mut imports, mut exports) = (vec![], vec![]);
    for payload in Parser::new(0).parse_all(guest_lua::LUA_WASM) {
        match payload.unwrap() {
            Payload::TypeSection(section) => {
                types.extend(section.into_iter_err_on_gc_types().map(Result::unwrap));
            }
            Payload::ImportSection(section) => imports.extend(section.into_imports().map(Result::unwrap)),
            Payload::FunctionSection(section) => functions.extend(section.into_iter().map(Result::unwrap)),
            Payload::MemorySection(section) => memories.extend(section.into_iter().map(Result::unwrap)),
            Payload::GlobalSection(section) => globals.extend(section.into_iter().map(|it| it.unwrap().ty)),
            Payload::ExportSection(section) => exports.extend(section.into_iter().map(Result::unwrap)),
            _ => {}
        }
    }
    let function = |ty: u32| format!("(type {})", types[ty as usize]);
    // Imports have the first indices of their kind: only functions are imported, so they are the first functions.
    let mut all_functions = vec![];
    let mut lines = vec![];
    for Import { module, name, ty } in imports {
        let TypeRef::Func(ty) = ty else { panic!("{module}.{name} is no function: {ty:?}") };
        all_functions.push(ty);
        lines.push(format!("import {module}.{name} {}", function(ty)));
    }
    all_functions.extend(functions);
    for Export { name, kind, index } in exports {
        let index = index as usize;
        let shown = match kind {
            ExternalKind::Func => function(all_functions[index]),
            ExternalKind::Global => {
                let global = globals[index];
                format!("{} {}", if global.mutable { "Var" } else { "Const" }, global.content_type)
            }
            ExternalKind::Memory => {
                let memory = memories[index];
                format!("memory of {} pages, at most {:?}", memory.initial, memory.maximum)
            }
            other => format!("{other:?}"),
        };
        lines.push(format!("export {name} {shown}"));
    }
    lines.sort();
    insta::assert_snapshot!(lines.join("\n"));
}
