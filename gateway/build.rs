//! Makes cargo look at the web console and the book, whose files the binary contains, when they change, and tells the
//! compiler which commit, profile and target the build is of.

use std::path::Path;

fn main() {
    println!("cargo:rerun-if-changed=../web-console/dist");
    println!("cargo:rerun-if-changed=../docs/dist");
    let variable = |name: &str| std::env::var(name).unwrap_or_else(|_| "unknown".to_owned());
    let profile = variable("PROFILE");
    // Only what is released says so: other builds would have to be made again for each commit.
    let commit = if profile == "release" { commit(Path::new("../.git")) } else { None };
    println!("cargo:rustc-env=BUILD_COMMIT={}", commit.as_deref().unwrap_or("unknown"));
    println!("cargo:rustc-env=BUILD_PROFILE={profile}");
    println!("cargo:rustc-env=BUILD_TARGET={}", variable("TARGET"));
}

/// The first digits of the commit that is checked out, read from the repository without git.
fn commit(repository: &Path) -> Option<String> {
    let read = |name: &str| {
        let path = repository.join(name);
        println!("cargo:rerun-if-changed={}", path.display());
        std::fs::read_to_string(path).ok()
    };
    let head = read("HEAD")?;
    let id = match head.trim().strip_prefix("ref: ") {
        None => head,
        Some(branch) => read(branch).or_else(|| {
            let packed = read("packed-refs")?;
            let line = packed.lines().find(|line| line.ends_with(&format!(" {branch}")))?;
            Some(line.to_owned())
        })?,
    };
    let id = id.trim().get(..12)?;
    id.bytes().all(|digit| digit.is_ascii_hexdigit()).then(|| id.to_owned())
}
