//! Links in the documentation lead somewhere.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").to_owned()
}

fn book() -> PathBuf {
    root().join("docs/src")
}

/// The Markdown files below a directory.
fn pages(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for path in fs::read_dir(directory).expect("a directory").map(|entry| entry.expect("an entry").path()) {
        match path.is_dir() {
            true => found.extend(pages(&path)),
            false if path.extension().is_some_and(|is| is == "md") => found.push(path),
            false => {}
        }
    }
    found.sort();
    found
}

/// The Markdown files outside of the book that are read on their own.
fn others() -> Vec<PathBuf> {
    let mut found = vec![root().join("web-console/README.md")];
    let top = fs::read_dir(root()).expect("a directory").map(|entry| entry.expect("an entry").path());
    found.extend(top.filter(|path| path.extension().is_some_and(|is| is == "md")));
    found.extend(pages(&root().join("deploy")));
    found.extend(
        pages(&root().join("store")).into_iter().filter(|path| !path.to_string_lossy().contains("/target/")),
    );
    found
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The lines outside of code blocks.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut code = false;
    text.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        code ^= fence;
        !code && !fence
    })
}

/// What stands in `](…)`, code spans left out.
fn targets(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in prose(text) {
        let spoken: String = line.split('`').step_by(2).collect::<Vec<_>>().join("``");
        for (at, start) in spoken.match_indices("](") {
            found.extend(spoken[at + start.len()..].split_once(')').map(|(target, _)| target.to_owned()));
        }
    }
    found
}

/// The anchors of a page, one for each heading, as mdBook and GitHub make them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for heading in prose(text).filter(|line| line.starts_with('#')) {
        let title = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = title.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        let name: String = kept.map(|c| if c == ' ' { '-' } else { c }).collect();
        let again = (1..).map(|number| format!("{name}-{number}")).find(|name| !found.contains(name));
        let name = if found.contains(&name) { again.expect("a number") } else { name };
        found.insert(name);
    }
    found
}

/// Why a link of `page` leads nowhere.
fn broken(page: &Path, target: &str) -> Option<&'static str> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let path = match path {
        "" => page.to_owned(),
        path => page.parent().expect("a directory").join(path),
    };
    if !path.exists() {
        return Some("there is no such file");
    }
    let in_book = page.starts_with(book());
    if in_book && !path.canonicalize().expect("it exists").starts_with(book()) {
        return Some("the book does not contain this file");
    }
    if !anchor.is_empty() && !anchors(&text(&path)).contains(anchor) {
        return Some("there is no such heading");
    }
    None
}

#[test]
fn links_lead_to_files_and_headings() {
    let mut wrong = Vec::new();
    let mut count = 0;
    for page in pages(&book()).into_iter().chain(others()) {
        for target in targets(&text(&page)) {
            count += 1;
            if let Some(why) = broken(&page, &target) {
                let page = page.strip_prefix(root()).unwrap_or(&page);
                wrong.push(format!("{}: {target}: {why}", page.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
    assert!(count > 100, "only {count} links were found");
}

#[test]
fn every_page_is_in_the_summary() {
    let summary = book().join("SUMMARY.md");
    let listed: BTreeSet<PathBuf> =
        targets(&text(&summary)).iter().map(|target| book().join(target)).collect();
    let written: BTreeSet<PathBuf> = pages(&book()).into_iter().filter(|page| *page != summary).collect();
    assert_eq!(listed, written);
    for page in written {
        let text = text(&page);
        let mut lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with("<!--"));
        assert!(lines.next().is_some_and(|line| line.starts_with("# ")), "{} has no title", page.display());
    }
}

#[test]
fn included_files_exist() {
    let mut count = 0;
    for page in pages(&book()) {
        for (at, start) in text(&page).match_indices("{{#include ") {
            let target = text(&page)[at + start.len()..].split("}}").next().unwrap_or_default().to_owned();
            let path = page.parent().expect("a directory").join(&target);
            assert!(path.is_file(), "{}: {target}", page.display());
            count += 1;
        }
    }
    assert!(count > 0);
}

#[test]
fn links_are_read_as_a_browser_reads_them() {
    let page = "# One two\n[a](x.md#y) `[no](z)` [b](<w>)\n```\n# Not this\n[no](z)\n```\n## `redis.call`, and more\n# One two\n";
    assert_eq!(targets(page), ["x.md#y", "<w>"]);
    let wanted = ["one-two", "one-two-1", "rediscall-and-more"].map(str::to_owned);
    assert_eq!(anchors(page), BTreeSet::from(wanted));
}
