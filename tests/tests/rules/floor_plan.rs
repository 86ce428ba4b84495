//! Who may import whom. The picture is data here; what it is compared with is `cargo metadata` and the sources.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::imports::{self, Module};

/// Our crates, lowest first, each with those it may depend on.
const CRATES: &[(&str, &[&str])] = &[
    ("store-engine", &[]),
    ("guest-lua", &[]),
    ("proto", &["store-engine"]),
    ("proto-codegen", &[]),
    ("tls", &[]),
    ("resp", &["store-engine"]),
    ("consensus", &["store-engine", "proto"]),
    ("store", &["store-engine", "consensus", "proto", "tls"]),
    ("script", &["store-engine", "guest-lua"]),
    ("gateway", &["store-engine", "store", "proto", "tls", "resp", "script"]),
    ("tests", &["store-engine", "guest-lua", "proto", "tls", "resp", "store", "script", "gateway"]),
];

/// Crates of others that only some places may know: the crate (with what begins with its name and a dash), the
/// packages that may depend on it, and the sources that may name it.
const CONFINED: &[(&str, &[&str], &[&str])] = &[
    ("wasmtime", &["script"], &["gateway/script/"]),
    (
        "tonic",
        &["proto", "proto-codegen", "store", "gateway", "tests"],
        &[
            "proto/",
            "store/src/client",
            "store/src/server",
            "gateway/src/process/dial.rs",
            "store/fuzz/",
            "gateway/src/net/grpc",
            "gateway/src/admin/health.rs",
            "gateway/src/export/otel",
            "tests/tests/it/grpc",
            "tests/tests/it/otel",
            "tests/tests/it/skew.rs",
            "tests/examples/",
        ],
    ),
    (
        "opentelemetry",
        &["gateway", "store", "tests"],
        &["gateway/src/export/otel", "store/src/spans", "tests/tests/it/otel"],
    ),
    ("axum", &["gateway"], &["gateway/src/net/http"]),
    ("raft", &["consensus"], &["store/consensus/"]),
    ("protobuf", &["consensus"], &["store/consensus/"]),
    (
        "hyper",
        &["store", "gateway", "tests"],
        &[
            "store/src/client/way.rs",
            "gateway/src/process/dial.rs",
            "gateway/src/export/otel",
            "gateway/src/net/http",
            "gateway/src/net/grpc",
            "gateway/src/net/traced.rs",
            "tests/src/http",
            "tests/tests/it/otel",
        ],
    ),
    (
        "rust-embed",
        &["gateway"],
        &[
            "gateway/src/net/http/book.rs",
            "gateway/src/net/http/console.rs",
            "gateway/src/net/http/embedded.rs",
        ],
    ),
    ("sled", &["store"], &["store/src/journal/sled.rs", "store/trial/"]),
    ("rustls", &["tls", "tests"], &["proto/tls/", "tests/"]),
    (
        "tokio",
        &["script", "tls", "store", "gateway", "tests"],
        &["gateway/", "proto/tls/", "store/src/", "store/fuzz/", "store/tests/", "tests/"],
    ),
    ("clap", &["gateway"], &["gateway/src/admin/cli"]),
];

/// What a pure crate does not name: clock, socket, disk, threads.
const IMPURE: &[&str] = &["std::time", "std::net", "std::fs", "std::thread", "std::env", "std::process"];

/// The folders of the gateway from top to bottom. One may import from those below it.
const GATEWAY: &[&str] = &[
    "app",
    "admin",
    "net",
    "export",
    "follow",
    "commands",
    "scripting",
    "admission",
    "server",
    "codes",
    "session",
    "acl",
    "scripts",
    "registry",
    "process",
    "telemetry",
    "config",
];

/// Where the sources of a crate lie that has more than a few files.
const LAYERED: &[&str] = &[
    "gateway/src",
    "gateway/resp/src",
    "gateway/script/src",
    "guest-lua/src",
    "proto/src",
    "proto/tls/src",
    "store/src",
    "store/consensus/src",
    "store/engine/src",
    "tests/src",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").to_owned()
}

fn metadata() -> Value {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(root())
        .output()
        .expect("cargo starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// Each package with the names of what it depends on, for building and testing too.
fn dependencies() -> Vec<(String, Vec<String>)> {
    let name = |value: &Value| value["name"].as_str().expect("a name").to_owned();
    let metadata = metadata();
    let packages = metadata["packages"].as_array().expect("packages");
    let of = |package: &Value| package["dependencies"].as_array().expect("a list").iter().map(name).collect();
    packages.iter().map(|package| (name(package), of(package))).collect()
}

/// All Rust sources below `dir` with their paths from the root.
fn sources(dir: &str) -> Vec<(String, String)> {
    fn walk(dir: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(dir).expect("a folder").map(|entry| entry.expect("an entry").path()) {
            let name = entry.file_name().unwrap_or_default().to_string_lossy();
            if entry.is_dir() && name != "target" && name != "node_modules" && !name.starts_with('.') {
                walk(&entry, found);
            } else if entry.extension().is_some_and(|extension| extension == "rs") {
                found.push(entry.clone());
            }
        }
    }
    let mut found = Vec::new();
    walk(&root().join(dir), &mut found);
    let read = |path: PathBuf| {
        let name = path.strip_prefix(root()).expect("inside").to_string_lossy().into_owned();
        (name, code(&fs::read_to_string(&path).expect("text")))
    };
    found.into_iter().map(read).collect()
}

/// A source without its comments, which may speak of what they like.
fn code(text: &str) -> String {
    let mut code = String::new();
    for line in text.lines() {
        code.push_str(line.find("//").map_or(line, |at| &line[..at]));
        code.push('\n');
    }
    code
}

/// Whether `code` has `crate_name::` as a path of its own, or `use crate_name;`.
fn names_crate(code: &str, crate_name: &str) -> bool {
    let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    code.match_indices(crate_name).any(|(at, _)| {
        let before = code[..at].bytes().next_back();
        let after = &code[at + crate_name.len()..];
        let tail = after.trim_start_matches(|c: char| c.is_ascii_lowercase() || c == '_');
        !before.is_some_and(|byte| word(byte) || byte == b':' || byte == b'.' || byte == b'"')
            && (after.is_empty() || !word(after.as_bytes()[0]) || after.starts_with('_'))
            && tail.starts_with("::")
    })
}

#[test]
fn crates_depend_only_downward() {
    let dependencies = dependencies();
    for (package, dependencies) in &dependencies {
        let (_, allowed) = CRATES.iter().find(|(name, _)| name == package).unwrap_or_else(|| {
            panic!("crate {package} has no place in the floor plan: decide what it may import")
        });
        for dependency in dependencies {
            let ours = CRATES.iter().any(|(name, _)| name == dependency);
            assert!(
                !ours || allowed.contains(&dependency.as_str()),
                "{package} may not depend on {dependency}"
            );
        }
    }
}

#[test]
fn crates_of_others_stay_where_they_belong() {
    let mut wrong = Vec::new();
    for (package, dependencies) in &dependencies() {
        for dependency in dependencies {
            for (confined, packages, _) in CONFINED {
                let family = dependency == confined || dependency.starts_with(&format!("{confined}-"));
                if family && !packages.contains(&package.as_str()) {
                    wrong.push(format!("{package} may not depend on {dependency}"));
                }
            }
        }
    }
    for (path, code) in sources("") {
        for (confined, _, places) in CONFINED {
            if names_crate(&code, confined) && !places.iter().any(|place| path.starts_with(place)) {
                wrong.push(format!("{path} may not name {confined}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_engine_is_pure() {
    // Values are freed in the background wherever they are replaced, and no result depends on that.
    let frees = |path: &str, word: &str| path == "store/engine/src/discard.rs" && word == "std::thread";
    for (path, code) in sources("store/engine/src") {
        for word in IMPURE.iter().filter(|word| !frees(&path, word)) {
            assert!(!code.contains(word), "{path} names {word}: clock and randomness come in as values");
        }
    }
}

#[test]
fn a_replica_is_pure() {
    // How many seeds the simulation tries is a setting of the environment.
    let simulates = |path: &str| path.starts_with("store/consensus/src/simulation");
    for (path, code) in sources("store/consensus/src").into_iter().filter(|(path, _)| !simulates(path)) {
        for word in IMPURE {
            assert!(!code.contains(word), "{path} names {word}: time comes in as a value");
        }
    }
}

/// The files below a folder of sources with their imports.
fn imports_of(dir: &str) -> BTreeMap<Module, BTreeSet<Module>> {
    let inside = |(path, code): (String, String)| {
        (path.strip_prefix(dir).expect("inside").trim_start_matches('/').to_owned(), code)
    };
    imports::of_crate(&sources(dir).into_iter().map(inside).collect::<Vec<_>>())
}

#[test]
fn no_files_import_each_other_in_a_circle() {
    let mut wrong = Vec::new();
    for dir in LAYERED {
        for circle in imports::circles(&imports_of(dir)) {
            let files: Vec<String> = circle.iter().map(|module| module.join("/")).collect();
            wrong.push(format!("{dir}: {}", files.join(", ")));
        }
    }
    assert!(wrong.is_empty(), "files that import each other:\n{}", wrong.join("\n"));
}

#[test]
fn the_gateway_imports_only_downward() {
    let edges = imports_of("gateway/src");
    let dir = |module: &Module| module.first().cloned();
    let dirs: BTreeSet<String> = edges.keys().filter_map(dir).collect();
    let planned: BTreeSet<String> = GATEWAY.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(dirs, planned, "each folder of the gateway has a place in the floor plan, and only these");
    let row =
        |module: &Module| GATEWAY.iter().position(|name| module.first().is_some_and(|first| first == name));
    let mut wrong = Vec::new();
    for (from, imports) in &edges {
        for to in imports {
            // `main` stands above all, and nothing lies in it that others need.
            if row(from).is_some_and(|here| row(to).is_none_or(|there| there < here)) {
                wrong.push(format!("{} imports {}, which is above it", from.join("/"), to.join("/")));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_scanners_see() {
    for (code, wanted) in [
        ("use sonic::Status;", true),
        ("x: sonic::Status", true),
        ("sonic_health::server", true),
        ("mod sonic;", false),
        ("supersonic::x", false),
        ("crate::sonic::x", false),
    ] {
        assert_eq!(names_crate(code, "sonic"), wanted, "{code}");
    }
}
