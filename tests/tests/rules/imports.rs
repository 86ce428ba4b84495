//! Which file of a crate imports which, read from the sources: `use` declarations and paths in the code, without tests.
//! A name that a file only passes on (`pub use`) leads to the file that defines it.

use std::collections::{BTreeMap, BTreeSet};

/// A module's path within its crate; of the crate's root it is empty.
pub type Module = Vec<String>;

/// What is known of one module.
#[derive(Default)]
struct Source {
    /// The names that it imports: whether it passes each on, and what it means.
    names: BTreeMap<String, (bool, Vec<String>)>,
    /// Paths in its code, outside of `use`.
    paths: Vec<Vec<String>>,
    /// What its imports mean.
    imports: Vec<Vec<String>>,
}

/// The imports between the files of a crate whose sources these are, by their paths below its `src` folder.
pub fn of_crate(files: &[(String, String)]) -> BTreeMap<Module, BTreeSet<Module>> {
    let modules: BTreeMap<Module, &str> =
        files.iter().map(|(path, code)| (module_of(path), &**code)).collect();
    let sources: BTreeMap<Module, Source> =
        modules.iter().map(|(module, code)| (module.clone(), read(module, code, &modules))).collect();
    let edges = sources.iter().map(|(module, source)| {
        let local = source.paths.iter().filter_map(|path| {
            match source.names.get(&path[0]).filter(|_| !is_relative(&path[0])) {
                Some((_, meant)) => Some([meant, &path[1..]].concat()),
                None => absolute(module, path, &modules),
            }
        });
        let all = local.chain(source.imports.iter().cloned());
        let mut met: BTreeSet<Module> = all.map(|path| defined_in(&path, &sources, 8)).collect();
        met.remove(module);
        (module.clone(), met)
    });
    edges.collect()
}

/// Modules that import each other in a circle, each circle once.
pub fn circles(edges: &BTreeMap<Module, BTreeSet<Module>>) -> Vec<BTreeSet<Module>> {
    let reached = |from: &Module| {
        let (mut seen, mut next) = (BTreeSet::new(), vec![from]);
        while let Some(module) = next.pop() {
            for to in edges.get(module).into_iter().flatten() {
                if seen.insert(to.clone()) {
                    next.push(to);
                }
            }
        }
        seen
    };
    let reach: BTreeMap<&Module, BTreeSet<Module>> =
        edges.keys().map(|module| (module, reached(module))).collect();
    let circle = |(module, seen): (&&Module, &BTreeSet<Module>)| -> Option<BTreeSet<Module>> {
        let back = |to: &&Module| reach.get(to).is_some_and(|seen| seen.contains(*module));
        let all: BTreeSet<Module> = seen.iter().filter(back).cloned().collect();
        (!all.is_empty()).then_some(all)
    };
    let mut found: Vec<_> = reach.iter().filter_map(circle).collect();
    found.sort();
    found.dedup();
    found
}

fn module_of(path: &str) -> Module {
    let mut module: Module = path.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    if matches!(module.last().map(String::as_str), Some("mod" | "main" | "lib")) {
        module.pop();
    }
    module
}

fn is_relative(first: &str) -> bool {
    matches!(first, "crate" | "self" | "super")
}

/// The path from the crate's root that a path in `module` means, if it does not lead to another crate.
fn absolute(module: &Module, path: &[String], modules: &BTreeMap<Module, &str>) -> Option<Vec<String>> {
    let ups = path.iter().take_while(|name| *name == "super").count();
    let base = module.get(..module.len().checked_sub(ups)?)?;
    match &*path[0] {
        "crate" => Some(path[1..].to_vec()),
        "self" => Some([module, &path[1..]].concat()),
        "super" => Some([base, &path[ups..]].concat()),
        _ => modules.contains_key(&[&module[..], &path[..1]].concat()).then(|| [module, path].concat()),
    }
}

/// The module that defines what a path from the root names.
fn defined_in(path: &[String], sources: &BTreeMap<Module, Source>, patience: usize) -> Module {
    let path: Vec<String> = path.iter().filter(|name| *name != "self").cloned().collect();
    let end = (0..=path.len()).rev().find(|end| sources.contains_key(&path[..*end])).unwrap_or_default();
    let (module, rest) = path.split_at(end);
    let passed_on = rest.first().and_then(|name| sources.get(module)?.names.get(name));
    match passed_on {
        Some((true, meant)) if *meant != path && patience > 0 => {
            defined_in(&[meant, &rest[1..]].concat(), sources, patience - 1)
        }
        _ => module.to_vec(),
    }
}

/// Reads the imports and paths of a module.
fn read(module: &Module, code: &str, modules: &BTreeMap<Module, &str>) -> Source {
    let (mut source, mut rest) = (Source::default(), String::new());
    let code = without_tests(code);
    let mut lines = code.lines();
    while let Some(line) = lines.next() {
        let trimmed = line.trim_start();
        let declared = trimmed.strip_prefix("pub").map_or(trimmed, |rest| {
            rest.trim_start_matches(|c: char| c == '(' || c == ')' || c.is_ascii_lowercase()).trim_start()
        });
        let Some(tree) = declared.strip_prefix("use ") else {
            rest.push_str(line);
            rest.push('\n');
            continue;
        };
        let mut tree = tree.to_owned();
        while !tree.contains(';') {
            let Some(line) = lines.next() else { break };
            tree.push_str(line);
        }
        for (path, name) in expand(tree.split(';').next().unwrap_or_default(), &[]) {
            let Some(meant) = absolute(module, &path, modules) else { continue };
            let is_passed_on = trimmed.starts_with("pub");
            source.names.insert(name, (is_passed_on, meant.clone()));
            if !is_passed_on {
                source.imports.push(meant);
            }
        }
    }
    source.paths = paths(&rest);
    source
}

/// A source without its modules of tests.
fn without_tests(code: &str) -> String {
    let (mut kept, mut lines) = (String::new(), code.lines().peekable());
    while let Some(line) = lines.next() {
        if line != "#[cfg(test)]" {
            kept.push_str(line);
            kept.push('\n');
            continue;
        }
        while lines.peek().is_some_and(|line| line.starts_with("#[")) {
            lines.next();
        }
        let begun = lines.next().unwrap_or_default();
        if begun.contains("mod ") && begun.ends_with('{') {
            lines.by_ref().find(|line| *line == "}");
        } else if !begun.contains("mod ") {
            kept.push_str(begun);
            kept.push('\n');
        }
    }
    kept
}

/// The paths of a tree of imports, each with the name that it has here.
fn expand(tree: &str, before: &[String]) -> Vec<(Vec<String>, String)> {
    let tree = tree.trim();
    let names = |text: &str| -> Vec<String> {
        let names = text.split("::").map(str::trim).filter(|name| !name.is_empty());
        before.iter().cloned().chain(names.map(str::to_owned)).collect()
    };
    if let Some((head, group)) = tree.split_once('{') {
        let (head, group) = (names(head), group.trim_end().strip_suffix('}').unwrap_or(group));
        return split_group(group).into_iter().flat_map(|part| expand(part, &head)).collect();
    }
    let (path, renamed) =
        tree.split_once(" as ").map_or((tree, None), |(path, name)| (path, Some(name.trim())));
    let mut path = names(path);
    if path.last().is_some_and(|name| name == "self") && path.len() > 1 {
        path.pop();
    }
    let Some(last) = path.last().cloned() else { return Vec::new() };
    vec![(path, renamed.map_or(last, str::to_owned))]
}

/// The parts of a group, at its commas outside of inner groups.
fn split_group(group: &str) -> Vec<&str> {
    let (mut parts, mut begin, mut depth) = (Vec::new(), 0, 0);
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&group[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&group[begin..]);
    parts.into_iter().filter(|part| !part.trim().is_empty()).collect()
}

/// All paths of at least two names in a code.
fn paths(code: &str) -> Vec<Vec<String>> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let (mut found, mut at) = (Vec::new(), 0);
    while let Some(start) = code[at..].find(is_word).map(|start| at + start) {
        let before = code[..start].chars().next_back();
        let mut path = Vec::new();
        let mut end = start;
        loop {
            let length = code[end..].find(|c| !is_word(c)).unwrap_or(code.len() - end);
            path.push(code[end..end + length].to_owned());
            end += length;
            match code[end..].strip_prefix("::") {
                Some(rest) if rest.starts_with(is_word) => end += 2,
                _ => break,
            }
        }
        if path.len() > 1 && !before.is_some_and(|c| ":.$".contains(c)) {
            found.push(path);
        }
        at = end.max(start + 1);
    }
    found
}

#[test]
fn imports_are_followed_to_where_a_name_is_defined() {
    let files = [
        ("lib.rs", "pub mod a;\nmod b;\npub use b::{Deep, inner::Deeper as Deepest};"),
        ("a.rs", "use crate::{Deep, Deepest};\n#[cfg(test)]\nmod tests {\n    use crate::c::T;\n}\n"),
        ("b.rs", "pub mod inner;\nuse super::c::{self, X};\nfn f() { c::f(); std::mem::drop(1) }"),
        ("b/inner.rs", "fn g() { crate::a::h() }"),
        ("c.rs", "use self::d::Y;\npub struct X;"),
        ("c/d.rs", "use super::X;"),
    ];
    let files = files.map(|(path, code)| (path.to_owned(), code.to_owned()));
    let edges = of_crate(&files);
    let shown = |modules: &BTreeSet<Module>| -> Vec<String> {
        modules.iter().map(|module| module.join("/")).collect()
    };
    let of = |path: &str| shown(&edges[&module_of(path)]);
    assert_eq!(of("a.rs"), ["b", "b/inner"]);
    assert_eq!(of("b.rs"), ["c"]);
    assert_eq!(of("b/inner.rs"), ["a"]);
    assert_eq!(of("c.rs"), ["c/d"]);
    let circles: Vec<_> = circles(&edges).iter().map(shown).collect();
    assert_eq!(circles, [vec!["a", "b/inner"], vec!["c", "c/d"]]);
}
