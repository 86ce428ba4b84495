//! The commands of pages of the documentation, to be run as they are.

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use tests::process;
use tests::temp_dir::TempDir;

/// The text of a page.
pub fn page(name: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
    std::fs::read_to_string(root.join("docs/src").join(name)).expect("a page")
}

/// A page without the section of this heading, and that section.
pub fn split<'a>(page: &'a str, heading: &str) -> (String, &'a str) {
    let start = page.find(&format!("\n{heading}\n")).expect("the section is there");
    let level = heading.split(' ').next().expect("a heading");
    let ends = |at: &usize| {
        let next = &page[*at..];
        (2..=level.len()).any(|level| next.starts_with(&format!("\n{} ", "#".repeat(level))))
    };
    let end = page.match_indices("\n#").map(|(at, _)| at).filter(|at| *at > start).find(ends);
    let end = end.unwrap_or(page.len());
    (format!("{}{}", &page[..start], &page[end..]), &page[start..end])
}

/// The fenced blocks of shell commands. The script prints each block before it runs it: the last one printed is the one that failed.
pub fn script(page: &str) -> String {
    let mut script = String::new();
    for block in page.split("\n```sh\n").skip(1) {
        let block = block.split("\n```").next().expect("a first part");
        let _ = writeln!(script, "echo '--- next:'; cat <<'BLOCK'\n{block}\nBLOCK\n{block}");
    }
    assert!(!script.is_empty(), "the blocks of the page look different now");
    script
}

/// Whether these programs are installed; else it is said that the commands are skipped.
pub fn have(tools: &[&str]) -> bool {
    for tool in tools {
        if Command::new(tool).arg("--version").stdout(Stdio::null()).status().is_err() {
            // Not through print!, which the test harness would keep for itself.
            let line = format!(
                "\n***** {tool} is not installed: the commands of the documentation are SKIPPED *****\n"
            );
            let _ = std::io::Write::write_all(&mut std::io::stderr(), line.as_bytes());
            return false;
        }
    }
    true
}

/// Runs a script in a directory, with `moonshard` on its path and what its text names replaced; returns its output.
pub fn run(
    mut script: String,
    dir: &TempDir,
    places: &[(String, String)],
    variables: &[(&str, String)],
) -> String {
    for (there, here) in places {
        assert!(script.contains(there), "nothing is said of {there} any more");
        script = script.replace(there, here);
    }
    let programs = TempDir::made("shell-blocks-bin");
    std::os::unix::fs::symlink(process::binary(), programs.path().join("moonshard")).expect("a link");
    let path = std::env::var("PATH").expect("a PATH");
    let mut command = Command::new("bash");
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("MOONSHARD_"))
    {
        command.env_remove(name);
    }
    command
        .args(["-c", &script])
        .current_dir(dir.path())
        .env("PATH", format!("{}:{path}", programs.text()))
        .envs(variables.iter().cloned())
        .stdin(Stdio::null());
    let output = command.output().expect("bash starts");
    let [said, errors] =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(output.status.success(), "{said}\n--- errors:\n{errors}");
    said
}
