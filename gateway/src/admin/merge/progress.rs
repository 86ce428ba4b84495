//! How far a tool is that sends keys, for who looks on.

use std::io::{IsTerminal as _, Write as _, stderr};
use std::time::{Duration, Instant};

/// Time between two reports on a terminal.
const REPORT: Duration = Duration::from_millis(200);
/// Time between two lines where there is no terminal.
const LINE: Duration = Duration::from_secs(10);
/// Columns of the bar.
const BAR: u64 = 30;

/// Reports progress on standard error.
pub struct Progress {
    /// Keys that there are, if that is known.
    total: Option<u64>,
    is_terminal: bool,
    /// Whether lines are written where there is no terminal.
    has_lines: bool,
    told: Instant,
    /// Whether the last report stands on the terminal.
    is_shown: bool,
}

impl Progress {
    /// Of `total` keys, if that is known; `has_lines` asks for lines where there is no terminal.
    pub fn new(total: Option<u64>, has_lines: bool) -> Progress {
        let is_terminal = stderr().is_terminal();
        Progress { total, is_terminal, has_lines, told: Instant::now(), is_shown: false }
    }

    /// So many keys are done.
    pub fn tell(&mut self, done: u64) {
        let pause = if self.is_terminal { REPORT } else { LINE };
        if !(self.is_terminal || self.has_lines) || self.told.elapsed() < pause {
            return;
        }
        self.told = Instant::now();
        let text = text(done, self.total);
        // Progress is not worth an error where it cannot be written.
        let _ = if self.is_terminal {
            write!(stderr(), "\r\x1b[K{} {text}", bar(done, self.total))
        } else {
            writeln!(stderr(), "moonshard: {text}")
        };
        self.is_shown = self.is_terminal;
    }

    /// Shows what is waited for, on a terminal.
    pub fn wait_for(&mut self, what: &str) {
        if self.is_terminal {
            self.clear();
            let _ = write!(stderr(), "waiting for {what}");
            self.is_shown = true;
        }
    }

    /// Removes the report from the terminal.
    pub fn clear(&mut self) {
        if std::mem::take(&mut self.is_shown) {
            let _ = write!(stderr(), "\r\x1b[K");
        }
    }
}

fn text(done: u64, total: Option<u64>) -> String {
    match total {
        Some(total) => format!("{done} of {} keys, {} %", total.max(done), share(done, total, 100)),
        None => format!("{done} keys"),
    }
}

fn bar(done: u64, total: Option<u64>) -> String {
    let filled = total.map_or(0, |total| share(done, total, BAR)) as usize;
    format!("[{:<width$}]", "=".repeat(filled), width = BAR as usize)
}

/// `done` of `total` as a part of `whole`. A server may get keys after it has said how many it has.
fn share(done: u64, total: u64, whole: u64) -> u64 {
    (done * whole / total.max(1)).min(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_ends_with_the_whole() {
        assert_eq!(text(1, Some(4)), "1 of 4 keys, 25 %");
        assert_eq!(text(5, Some(4)), "5 of 5 keys, 100 %");
        assert_eq!(text(0, Some(0)), "0 of 0 keys, 0 %");
        assert_eq!(text(7, None), "7 keys");
        assert_eq!(bar(1, Some(2)), format!("[{}{}]", "=".repeat(15), " ".repeat(15)));
        assert_eq!(bar(9, Some(2)), format!("[{}]", "=".repeat(30)));
    }
}
