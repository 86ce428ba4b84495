//! Rules of the house that a compiler does not know.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

/// A file longer than this wants to be two.
const MOST_LINES: usize = 700;

/// What is checked: our sources, wherever they are.
const SOURCES: &[&str] = &["rs", "c", "h", "py", "go", "ts", "svelte", "proto"];

/// Words that promise work instead of doing it. Spelled in halves, since this file is checked too.
const UNFINISHED: &[&str] = &[
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
    concat!("unimpl", "emented!"),
    concat!("to", "do!("),
    concat!("db", "g!("),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").to_owned()
}

/// Every file of the project with one of these extensions, generated and fetched ones left out.
fn files(extensions: &[&str]) -> Vec<PathBuf> {
    fn walk(dir: &Path, extensions: &[&str], found: &mut Vec<PathBuf>) {
        for path in fs::read_dir(dir).expect("a folder").map(|entry| entry.expect("an entry").path()) {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let foreign = ["target", "node_modules", "generated", "dist", "data"].contains(&&*name);
            if path.is_dir() && !foreign && !name.starts_with('.') {
                walk(&path, extensions, found);
            } else if path.extension().is_some_and(|is| extensions.iter().any(|wanted| is == *wanted)) {
                found.push(path.clone());
            }
        }
    }
    let mut found = Vec::new();
    walk(&root(), extensions, &mut found);
    found.sort();
    found
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn shown(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}

fn hold(wrong: Vec<String>) {
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}

#[test]
fn files_are_short() {
    let lines = |path: &PathBuf| text(path).lines().count();
    let long = files(SOURCES).into_iter().filter(|path| lines(path) > MOST_LINES);
    hold(
        long.map(|path| format!("{}: {} lines, at most {MOST_LINES}", shown(&path), lines(&path))).collect(),
    );
}

#[test]
fn nothing_is_left_unfinished() {
    let mut wrong = Vec::new();
    for path in files(SOURCES) {
        for (number, line) in text(&path).lines().enumerate() {
            for word in UNFINISHED.iter().filter(|word| line.contains(**word)) {
                wrong.push(format!("{}:{}: {word}", shown(&path), number + 1));
            }
        }
    }
    hold(wrong);
}

#[test]
fn every_source_is_compiled() {
    let all: BTreeSet<PathBuf> = files(&["rs"]).into_iter().collect();
    let mut reached = BTreeSet::new();
    let mut next: Vec<PathBuf> = all.iter().filter(|path| is_root(path)).cloned().collect();
    while let Some(path) = next.pop() {
        if reached.insert(path.clone()) {
            next.extend(children(&path).into_iter().filter(|child| all.contains(child)));
        }
    }
    hold(all.difference(&reached).map(|path| format!("{}: no module names it", shown(path))).collect());
}

/// Whether cargo compiles this file without being told by another.
fn is_root(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let dir = path.parent().unwrap_or(path);
    let package = |dir: &Path| dir.parent().is_some_and(|package| package.join("Cargo.toml").is_file());
    let kind = dir.file_name().unwrap_or_default().to_string_lossy();
    match &*kind {
        "src" if package(dir) => name == "lib.rs" || name == "main.rs",
        "bin" => dir.parent().is_some_and(package),
        "tests" | "benches" | "examples" | "fuzz_targets" => package(dir),
        _ if name == "build.rs" => dir.join("Cargo.toml").is_file(),
        // A program of tests that has a folder for its modules.
        _ => {
            name == "main.rs" && dir.parent().is_some_and(|tests| tests.ends_with("tests") && package(tests))
        }
    }
}

/// The files that a file's `mod x;`, `#[path]` and `include!` may mean.
fn children(path: &Path) -> Vec<PathBuf> {
    let dir = path.parent().expect("a file is in a folder");
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let beside = is_root(path) || stem == "mod";
    let inner = if beside { dir.to_owned() } else { dir.join(&*stem) };
    let mut found = Vec::new();
    for line in text(path).lines().map(str::trim) {
        let declared = line.strip_suffix(';').map(|line| line.trim_start_matches("pub(crate) "));
        let declared = declared.map(|line| line.trim_start_matches("pub(super) ").trim_start_matches("pub "));
        if let Some(name) = declared.and_then(|line| line.strip_prefix("mod ")) {
            found.push(inner.join(format!("{name}.rs")));
            found.push(inner.join(name).join("mod.rs"));
        }
        for start in ["include!(\"", "#[path = \""] {
            if let Some((_, rest)) = line.split_once(start) {
                found.push(dir.join(rest.split('"').next().unwrap_or_default()));
            }
        }
    }
    found
}

#[test]
fn the_readme_tells_how_to_start_and_how_to_test() {
    let readme = text(&root().join("README.md"));
    for command in ["make run", "make test"] {
        assert!(readme.contains(command), "README.md does not mention {command}");
        let target = format!("{}:", command.trim_start_matches("make "));
        let makefile = text(&root().join("Makefile"));
        assert!(makefile.lines().any(|line| line.starts_with(&target)), "Makefile has no {target}");
    }
}

#[test]
fn every_parameter_is_read_by_somebody() {
    // Whichever file a row stands in.
    let of_config = |path: &&PathBuf| shown(path).starts_with("gateway/src/config");
    let table: String = files(&["rs"]).iter().filter(of_config).map(|path| text(path)).collect();
    let reader = |path: &PathBuf| {
        let path = shown(path);
        path.starts_with("gateway/src/")
            && !["config", "cli.rs"].iter().any(|own| path[12..].starts_with(own))
    };
    let gateway: String = files(&["rs"]).iter().filter(|path| reader(path)).map(|path| text(path)).collect();
    let fields: Vec<&str> = table
        .match_indices("|c| &c.")
        .map(|(at, start)| table[at + start.len()..].split([')', '.']).next().unwrap_or_default())
        .collect();
    let rows = table.matches(" live: true,").count() + table.matches(" live: false,").count();
    assert!(fields.len() >= rows && rows > 50, "{rows} rows of PARAMETERS name {} fields", fields.len());
    let read = |field: &str| {
        // Those that have a typed reader.
        let name = match field {
            "latency_tracking_info_percentiles" => "percentiles()",
            "maxmemory_clients" => "limit_of_clients()",
            "replicaof" => "primary()",
            _ => field,
        };
        gateway.contains(&format!(".{name}"))
    };
    let unread = fields.iter().filter(|field| !read(field));
    hold(unread.map(|field| format!("parameter {field} can be set, but nothing reads it")).collect());
}

#[test]
fn every_crate_takes_the_lints_of_the_workspace() {
    let manifests = files(&["toml"]).into_iter().filter(|path| path.ends_with("Cargo.toml"));
    // A crate that is a workspace of its own, as fuzz targets are, has nothing to take them from.
    let member = |path: &PathBuf| text(path).contains("[package]") && !text(path).contains("[workspace]");
    let crates = manifests.filter(member);
    let lax = crates.filter(|path| !text(path).contains("[lints]\nworkspace = true"));
    hold(lax.map(|path| format!("{}: no [lints] workspace = true", shown(&path))).collect());
}

#[test]
fn examples_in_comments_are_run() {
    let manifests = files(&["toml"]).into_iter().filter(|path| path.ends_with("Cargo.toml"));
    let untested = manifests.filter(|path| text(path).contains("doctest = false"));
    let sources: Vec<PathBuf> =
        untested.map(|path| path.parent().expect("a manifest is in a folder").join("src")).collect();
    let is_example = |line: &str| {
        let comment = line.trim_start().strip_prefix("///").or(line.trim_start().strip_prefix("//!"));
        comment.is_some_and(|text| text.trim() == "```" || text.trim() == "```rust")
    };
    let mut wrong = Vec::new();
    for path in files(&["rs"]).iter().filter(|path| sources.iter().any(|source| path.starts_with(source))) {
        let text = text(path);
        let fences = text.lines().filter(|line| line.trim_start_matches(['/', '!', ' ']).starts_with("```"));
        // The second of each two is an end.
        if fences.step_by(2).any(is_example) {
            wrong.push(format!("{}: an example, but `doctest = false` in Cargo.toml", shown(path)));
        }
    }
    hold(wrong);
}

/// Words that no identifier has: the field has a term for each, such as report, listener, checkpoint or participant.
const NOT_IN_NAMES: &[&str] = &[
    "anew",
    "anybody",
    "bereaved",
    "burning",
    "chores",
    "deeds",
    "dirt",
    "door",
    "doubts",
    "face",
    "glance",
    "guests",
    "horizon",
    "keeper",
    "lack",
    "lender",
    "newcomers",
    "nudge",
    "outlet",
    "parked",
    "pulse",
    "recall",
    "rehearsal",
    "rehearse",
    "rehearsed",
    "respondent",
    "road",
    "seat",
    "sow",
    "summoned",
    "telling",
    "trouble",
    "trust",
    "truth",
    "unfolded",
    "upkeep",
    "wishes",
];

#[test]
fn identifiers_are_terms_of_the_field() {
    let generated = root().join("proto/src/generated");
    let (mut wrong, mut known) = (Vec::new(), HashMap::new());
    for path in files(&["rs"]).iter().filter(|path| !path.starts_with(&generated)) {
        for (number, line) in text(path).lines().enumerate() {
            // Without strings and comments, as far as one line shows them.
            let code = line.split("//").next().unwrap_or_default().split('"').step_by(2);
            for name in code.flat_map(|code| code.split(|c: char| !c.is_alphanumeric() && c != '_')) {
                // Names are many, and mostly the same.
                if !known.contains_key(name) {
                    known.insert(name.to_owned(), has_refused_word(name));
                }
                if known[name] {
                    wrong.push(format!("{}:{}: {name}", shown(path), number + 1));
                }
            }
        }
    }
    hold(wrong);
}

/// Whether a name in snake case or camel case has one of these words.
fn has_refused_word(name: &str) -> bool {
    let mut words = String::new();
    for c in name.chars() {
        if c.is_uppercase() && words.ends_with(char::is_lowercase) {
            words.push('_');
        }
        words.extend(c.to_lowercase());
    }
    words.split('_').any(|word| NOT_IN_NAMES.contains(&word))
}

/// Words that users do not read: each has a plain one, such as report, directory, listener or coordinator.
const NOT_FOR_USERS: &[&str] = &[
    "anew",
    "anybody",
    "decider",
    "doubts",
    "face",
    "faces",
    "folder",
    "folders",
    "nobody",
    "patience",
    "shall",
    "somebody",
    "stranger",
    "strangers",
    "tell",
    "telling",
    "tells",
    "told",
    "unfolded",
    "whoever",
];

/// Texts for users, as far as they are in files of their own. The help has the descriptions of all parameters.
const FOR_USERS: &[&str] = &[
    "CHANGELOG.md",
    "deploy/helm",
    "docs/src",
    "gateway/src/net/http/openapi.json",
    "gateway/src/admin/snapshots",
    "proto/disk",
    "proto/fleet",
    "proto/gateway",
    "proto/store",
];

#[test]
fn texts_for_users_are_in_plain_words() {
    let ours = |path: &&PathBuf| FOR_USERS.iter().any(|start| path.starts_with(root().join(start)));
    let files = files(&["json", "md", "proto", "snap", "tpl", "txt", "yaml"]);
    let read: Vec<&PathBuf> = files.iter().filter(ours).collect();
    assert!(read.len() > 20, "only {} files have texts for users", read.len());
    let mut wrong = Vec::new();
    for path in read {
        for (number, line) in text(path).lines().enumerate() {
            let words = line.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
            for word in words.filter(|word| NOT_FOR_USERS.contains(&&*word.to_ascii_lowercase())) {
                wrong.push(format!("{}:{}: {word}", shown(path), number + 1));
            }
        }
    }
    hold(wrong);
}
