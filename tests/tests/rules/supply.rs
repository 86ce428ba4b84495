//! Packages of others: their licences, versions and where they come from, held to `deny.toml`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use serde_json::Value;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace")
}

/// What a program prints that is run in the workspace.
fn printed(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).current_dir(root()).output().expect("it starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// Every package of this machine's build.
fn packages() -> Vec<Value> {
    let version = printed("rustc", &["-vV"]);
    let host = version.lines().find_map(|line| line.strip_prefix("host: ")).expect("a host");
    let metadata = ["metadata", "--format-version", "1", "--offline", "--filter-platform", host];
    let metadata: Value = serde_json::from_str(&printed(env!("CARGO"), &metadata)).expect("JSON");
    // That lists what features could bring and do not, too.
    let tree = ["tree", "--workspace", "--all-features", "--offline", "--prefix", "none", "--format", "{p}"];
    let tree = printed(env!("CARGO"), &tree);
    let named = |line: &'_ str| {
        let mut words = line.split(' ');
        Some((words.next()?.to_owned(), words.next()?.strip_prefix('v')?.to_owned()))
    };
    let is_built: BTreeSet<(String, String)> = tree.lines().filter_map(named).collect();
    let packages = metadata["packages"].as_array().expect("packages").iter();
    let packages: Vec<Value> = packages
        .filter(|package| is_built.contains(&(text(&package["name"]), text(&package["version"]))))
        .cloned()
        .collect();
    assert!(packages.len() > 100, "they are found");
    packages
}

fn rules() -> toml::Table {
    let text = std::fs::read_to_string(root().join("deny.toml")).expect("deny.toml");
    text.parse().expect("TOML")
}

/// The strings of a list in `rules`.
fn list(rules: &toml::Table, section: &str, key: &str) -> Vec<String> {
    let values = rules[section][key].as_array().expect("a list");
    values.iter().map(|value| value.as_str().expect("a string").to_owned()).collect()
}

/// Whether an SPDX expression can be met with the allowed licences: one of every OR, all of every AND.
fn met(expression: &str, allowed: &[String]) -> bool {
    // Old manifests write OR as a slash. AND binds tighter, and parentheses stand only around whole ORs.
    let expression = expression.replace('/', " OR ");
    let mut depth = 0;
    let mut parts = vec![String::new()];
    for word in expression.replace('(', "( ").replace(')', " )").split_whitespace() {
        match word {
            "(" => depth += 1,
            ")" => depth -= 1,
            "AND" if depth == 0 => parts.push(String::new()),
            _ => {
                let part = parts.last_mut().expect("one at least");
                part.push_str(if part.is_empty() { "" } else { " " });
                part.push_str(word);
            }
        }
    }
    parts.iter().all(|part| part.split(" OR ").any(|licence| allowed.iter().any(|known| known == licence)))
}

/// The names of packages in a list of `[bans]`.
fn named(rules: &toml::Table, key: &str) -> Vec<String> {
    let entries = rules["bans"][key].as_array().expect("a list");
    let name = |entry: &toml::Value| entry["crate"].as_str().expect("a name").to_owned();
    let reason = |entry: &toml::Value| entry["reason"].as_str().is_some_and(|reason| !reason.is_empty());
    assert!(entries.iter().all(reason), "each entry of {key} says why");
    entries.iter().map(name).collect()
}

/// What there is several versions of, though it is not among those that may.
fn several(packages: &[(String, String)], may: &[String]) -> Vec<String> {
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (name, version) in packages {
        versions.entry(name).or_default().insert(version);
    }
    let many =
        versions.into_iter().filter(|(name, found)| found.len() > 1 && !may.iter().any(|one| one == name));
    many.map(|(name, found)| format!("{name} {found:?}")).collect()
}

fn text(value: &Value) -> String {
    value.as_str().expect("a string").to_owned()
}

#[test]
fn there_is_one_version_of_each_package() {
    let rules = rules();
    assert_eq!(rules["bans"]["multiple-versions"].as_str(), Some("deny"));
    let may = named(&rules, "skip");
    let packages: Vec<_> =
        packages().iter().map(|package| (text(&package["name"]), text(&package["version"]))).collect();
    let wrong = several(&packages, &may);
    assert!(wrong.is_empty(), "take the version that is there, or say in deny.toml why not: {wrong:#?}");
}

#[test]
fn versions_are_counted() {
    let packages =
        [("a", "1.0.0"), ("a", "1.0.0"), ("b", "1.0.0"), ("b", "2.0.0"), ("c", "1.0.0"), ("c", "1.1.0")];
    let packages = packages.map(|(name, version)| (name.to_owned(), version.to_owned()));
    assert_eq!(several(&packages, &["c".to_owned()]), [r#"b {"1.0.0", "2.0.0"}"#]);
}

#[test]
fn packages_that_are_not_wanted_are_not_there() {
    let unwanted = named(&rules(), "deny");
    assert!(!unwanted.is_empty());
    for package in &packages() {
        let name = text(&package["name"]);
        assert!(!unwanted.contains(&name), "deny.toml says why {name} is not wanted");
    }
}

#[test]
fn every_dependency_has_a_version() {
    for package in packages().iter().filter(|package| package["source"].is_null()) {
        for wanted in package["dependencies"].as_array().expect("dependencies") {
            let by_path = wanted["path"].is_string();
            assert!(by_path || wanted["req"] != "*", "{} takes any {}", package["name"], wanted["name"]);
        }
    }
}

#[test]
fn licences_are_allowed() {
    let allowed = list(&rules(), "licenses", "allow");
    for package in packages().iter().filter(|package| !package["source"].is_null()) {
        let (name, licence) = (&package["name"], package["license"].as_str().unwrap_or("none"));
        assert!(met(licence, &allowed), "{name} is under {licence}");
    }
}

#[test]
fn packages_come_from_the_registry() {
    let allowed = list(&rules(), "sources", "allow-registry");
    for package in &packages() {
        let Some(source) = package["source"].as_str() else { continue };
        let known = allowed.iter().any(|registry| source == format!("registry+{registry}"));
        assert!(known, "{} comes from {source}", package["name"]);
    }
}

#[test]
fn expressions_are_understood() {
    let allowed = ["MIT".to_owned(), "Unicode-3.0".to_owned(), "Apache-2.0 WITH LLVM-exception".to_owned()];
    for (expression, wanted) in [
        ("MIT", true),
        ("GPL-3.0", false),
        ("MIT/Apache-2.0", true),
        ("GPL-2.0 OR MIT", true),
        ("MIT AND BSD-3-Clause", false),
        ("(MIT OR Apache-2.0) AND Unicode-3.0", true),
        ("Apache-2.0 WITH LLVM-exception", true),
        ("none", false),
    ] {
        assert_eq!(met(expression, &allowed), wanted, "{expression}");
    }
}
