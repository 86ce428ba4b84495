//! What the service manager hears that started the process: systemd, see sd_notify(3), or nothing.

use sd_notify::NotifyState;
use tracing::warn;

/// The process serves. Prints `line` to standard output, too.
pub fn ready(line: &str) {
    println!("{line}");
    notify(NotifyState::Ready);
}

/// The process is about to end.
pub fn stopping() {
    notify(NotifyState::Stopping);
}

fn notify(state: NotifyState<'_>) {
    // Does nothing unless the environment names a socket.
    if let Err(error) = sd_notify::notify(&[state]) {
        warn!("the service manager cannot be notified: {error}");
    }
}
