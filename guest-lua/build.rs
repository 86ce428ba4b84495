//! Builds `lua.wasm` with `zig cc` out of crate `lua-src`'s Lua 5.1.5 and our C, and writes `abi.h` from `src/abi.rs`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, panic, sync::Mutex};

mod edits;

/// One translation unit for all of Lua: the interpreter loop inlines what it calls.
const LUA_FILES: &[&str] = &[
    "lapi", "lcode", "ldebug", "ldo", "ldump", "lfunc", "lgc", "llex", "lmem", "lobject", "lopcodes",
    "lparser", "lstate", "lstring", "ltable", "ltm", "lundump", "lvm", "lzio", "lauxlib", "lbaselib",
    "lmathlib", "lstrlib", "ltablib",
];

/// Native exceptions for setjmp/longjmp; no stack protector or fortify, which would only pull in libc.
const CC_FLAGS: &[&str] = &[
    "-target",
    "wasm32-wasi",
    "-O2",
    "-fwasm-exceptions",
    "-mllvm",
    "-wasm-enable-sjlj",
    "-mllvm",
    "-wasm-use-legacy-eh=false",
    "-mcpu=generic+exception_handling+bulk_memory+tail_call+reference_types+multivalue+nontrapping_fptoint+sign_ext",
    "-fno-math-errno",
    "-fno-strict-aliasing",
    "-fno-stack-protector",
    "-U_FORTIFY_SOURCE",
    "-fno-sanitize=all",
    "-DNDEBUG",
    "-fvisibility=hidden",
    "-Wall",
];

fn main() {
    println!("cargo:rerun-if-changed=c");
    println!("cargo:rerun-if-changed=edits.rs");
    println!("cargo:rerun-if-changed=src/abi.rs");
    println!("cargo:rerun-if-env-changed=MOONSHARD_ZIG");
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap());
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap());
    let lua = out.join("lua");
    copy_lua(&lua_sources(), &lua);
    fs::write(out.join("abi.h"), abi_header(&fs::read_to_string(root.join("src/abi.rs")).unwrap())).unwrap();

    let mut ours: Vec<PathBuf> = fs::read_dir(root.join("c"))
        .unwrap()
        .map(|e| e.unwrap().path())
        .filter(|p| p.extension().is_some_and(|x| x == "c"))
        .collect();
    ours.sort();
    let zig = find_zig(&root);
    let mut cc = zig_command(&zig, &out);
    cc.arg("cc").args(CC_FLAGS).args(["-mexec-model=reactor", "-s"]);
    // zig always puts the stack first, below the data
    cc.args(["-Wl,--no-entry", "-Wl,--gc-sections", "-Wl,--export=__stack_pointer"]);
    // the host puts the entry of compiled scripts into it
    cc.arg("-Wl,--export-table");
    cc.arg(format!("-Wl,-z,stack-size={}", abi_value(&root, "STACK_SIZE")));
    // room for a short script, so that it need not grow memory
    cc.arg("-Wl,--initial-memory=196608");
    for include in [&lua, &out, &root.join("c")] {
        cc.arg("-I").arg(include);
    }
    // Ours first: what alloc.c aligns is to begin a page, and what others write is to follow on it.
    for file in &ours {
        let name = file.file_stem().unwrap().to_str().unwrap();
        cc.arg(file).arg(format!("-DGUEST_HAS_{}", name.to_uppercase()));
    }
    cc.arg(lua.join("all.c"));
    cc.arg("-o").arg(out.join("lua.wasm"));
    let done = cc.output().unwrap_or_else(|e| panic!("cannot start {zig:?}: {e}"));
    let text = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "zig cc failed: {cc:?}\n{text}");
    for line in text.lines().filter(|l| l.contains("warning:")) {
        println!("cargo:warning={line}");
    }
}

/// The folder with Lua's C files. The crate does not tell where it lies; the place of a panic inside it does.
fn lua_sources() -> PathBuf {
    static PLACE: Mutex<Option<PathBuf>> = Mutex::new(None);
    let old = panic::take_hook();
    panic::set_hook(Box::new(|info| {
        *PLACE.lock().unwrap() = info.location().map(|l| PathBuf::from(l.file()))
    }));
    let result = panic::catch_unwind(|| lua_src::Build::new().target("no-such-target").build(lua_src::Lua51));
    panic::set_hook(old);
    assert!(result.is_err(), "lua-src built Lua for a target that does not exist");
    let file = PLACE.lock().unwrap().take().expect("place of lua-src");
    let dir = file.parent().and_then(Path::parent).expect("lua-src/src").join("lua-5.1.5");
    assert!(
        dir.join("lapi.c").is_file(),
        "no Lua sources in {} (found through {})",
        dir.display(),
        file.display()
    );
    dir
}

/// Copies Lua's files and applies our edits; each pattern must occur exactly once.
fn copy_lua(from: &Path, to: &Path) {
    let _ = fs::remove_dir_all(to);
    fs::create_dir_all(to).unwrap();
    let mut used = 0;
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let mut text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        for (_, pattern, new) in edits::EDITS.iter().filter(|edit| edit.0 == name) {
            let found = text.matches(pattern).count();
            assert!(found == 1, "{name}: found {found} times, must be once: {pattern:?}");
            text = text.replacen(pattern, new, 1);
            used += 1;
        }
        fs::write(to.join(&name), text).unwrap();
    }
    assert_eq!(used, edits::EDITS.len(), "an edit names a file that Lua does not have");
    // stdio.h must come before ldebug.h, which has a macro `getline`
    let mut all = "#include <stdio.h>\n#pragma clang diagnostic ignored \"-Weverything\"\n".to_owned();
    all.extend(LUA_FILES.iter().map(|f| format!("#include \"{f}.c\"\n")));
    fs::write(to.join("all.c"), all).unwrap();
}

/// `(name, value)` of a line `pub const NAME: u32 = VALUE;`.
fn abi_line(line: &str) -> Option<(&str, &str)> {
    line.strip_prefix("pub const ")?.strip_suffix(';')?.split_once(": u32 = ")
}

fn abi_header(source: &str) -> String {
    let lines =
        source.lines().filter_map(abi_line).map(|(name, value)| format!("#define {name} ({value})\n"));
    format!("/* written by build.rs from src/abi.rs */\n{}", lines.collect::<String>())
}

fn abi_value(root: &Path, wanted: &str) -> String {
    let source = fs::read_to_string(root.join("src/abi.rs")).unwrap();
    source
        .lines()
        .filter_map(abi_line)
        .find(|(name, _)| *name == wanted)
        .expect("constant of abi.rs")
        .1
        .to_owned()
}

/// The words that start zig: MOONSHARD_ZIG, the workspace's .venv, `zig` 0.17 on PATH, or the `ziglang` package of python3.
fn find_zig(root: &Path) -> Vec<String> {
    if let Ok(words) = env::var("MOONSHARD_ZIG") {
        return words.split(' ').filter(|w| !w.is_empty()).map(str::to_owned).collect();
    }
    let python = root.parent().unwrap().join(".venv/bin/python").to_string_lossy().into_owned();
    let module = |python: &str| vec![python.to_owned(), "-m".into(), "ziglang".into()];
    for words in [module(&python), vec!["zig".to_owned()], module("python3")] {
        let version = Command::new(&words[0]).args(&words[1..]).arg("version").output();
        if version.is_ok_and(|o| o.status.success() && o.stdout.starts_with(b"0.17.")) {
            return words;
        }
    }
    panic!(
        "no zig 0.17 for the Lua guest: run `make` (it installs `ziglang` into .venv) or set MOONSHARD_ZIG"
    );
}

/// zig keeps its caches inside OUT_DIR: nothing is written elsewhere, and `cargo clean` removes it.
fn zig_command(zig: &[String], out: &Path) -> Command {
    let mut command = Command::new(&zig[0]);
    command
        .args(&zig[1..])
        .env("ZIG_GLOBAL_CACHE_DIR", out.join("zig"))
        .env("ZIG_LOCAL_CACHE_DIR", out.join("zig"));
    command
}
