//! What a script can see, and what the module that runs it can reach, as snapshots: nothing joins unnoticed.

use std::time::Duration;

use script::{
    Budget, CallFlags, Finishing, Host, HostCall, Instances, LogLevel, Outcome, RunInput, Runtime,
    RuntimeConfig, Script,
};

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

#[tokio::test]
async fn what_a_script_sees() {
    let config = RuntimeConfig {
        instances: Instances::Rewind,
        concurrency: 1,
        fuel_slice: 100_000,
        max_memory_bytes: 16 << 20,
    };
    let runtime = Runtime::new(config).await.unwrap();
    let budget =
        Budget { fuel: 1 << 32, time: Duration::from_secs(60), memory_bytes: 16 << 20, reply_bytes: 1 << 20 };
    let input = RunInput { name: "f", keys: &[b"key"], args: &[b"one", b"two"], clock_seconds: 1.5, seed: 7 }
        .encode();
    let (_, outcome, _) = runtime.run(&Script::new(TREE.as_bytes()), &input, &budget, NoHost).await;
    let Outcome::Reply(reply) = outcome else { panic!("{outcome:?}") };
    let text = String::from_utf8(reply).unwrap();
    let (_, lines) = text.split_once("\r\n").expect("a bulk string");
    insta::assert_snapshot!(lines.trim_end());
}

#[test]
fn what_the_module_reaches() {
    let mut config = wasmtime::Config::new();
    config.wasm_exceptions(true);
    let module =
        wasmtime::Module::new(&wasmtime::Engine::new(&config).unwrap(), guest_lua::LUA_WASM).unwrap();
    let shown = |ty: wasmtime::ExternType| match ty {
        wasmtime::ExternType::Func(function) => format!("{function}"),
        wasmtime::ExternType::Global(global) => format!("{:?} {}", global.mutability(), global.content()),
        wasmtime::ExternType::Memory(memory) => {
            format!("memory of {} pages, at most {:?}", memory.minimum(), memory.maximum())
        }
        other => format!("{other:?}"),
    };
    let imports = module
        .imports()
        .map(|import| format!("import {}.{} {}", import.module(), import.name(), shown(import.ty())));
    let exports = module.exports().map(|export| format!("export {} {}", export.name(), shown(export.ty())));
    let mut lines: Vec<String> = imports.chain(exports).collect();
    lines.sort();
    insta::assert_snapshot!(lines.join("\n"));
}
