//! What the command prints.

use std::io::Write as _;

/// Writes to standard output, which may be closed.
pub(super) fn print(text: &str) {
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
}

/// Lines in columns; the first one is the head.
pub(super) fn table<const COLUMNS: usize>(lines: &[[String; COLUMNS]]) -> String {
    let mut text = String::new();
    for line in lines {
        let cells = line.iter().enumerate().map(|(at, cell)| {
            let width = lines.iter().map(|line| line[at].chars().count()).max().unwrap_or(0);
            format!("{cell:width$}")
        });
        let cells: Vec<String> = cells.collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    text
}
