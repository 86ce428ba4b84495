//! Ports for those who have to know theirs before they listen.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU16, Ordering};

/// Below those that the system gives to connections, in parts for test programs that run at the same time.
const FIRST: u16 = 20_000;
const PARTS: u16 = 6;
const PART: u16 = 2_000;

/// The first port of this program's part, which is taken as long as the program runs.
static OWN: LazyLock<(u16, TcpListener)> = LazyLock::new(|| {
    let start = (std::process::id() % u32::from(PARTS)) as u16;
    let ports = (start..start + PARTS).map(|part| FIRST + part % PARTS * PART);
    let mut free = ports.filter_map(|port| Some((port, listen(port)?)));
    free.next().expect("at most six programs of tests run at the same time")
});

fn listen(port: u16) -> Option<TcpListener> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok()
}

/// A port that is free, and that no other test gets while its owner is away.
pub fn fixed_port() -> u16 {
    fixed_listener().local_addr().expect("an address").port()
}

/// Listens on such a port. Closing it and listening again may fail for a moment: a process that another thread starts just
/// then has a copy.
pub fn fixed_listener() -> TcpListener {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    loop {
        let port = OWN.0 + 1 + NEXT.fetch_add(1, Ordering::Relaxed) % (PART - 1);
        if let Some(listener) = listen(port) {
            return listener;
        }
    }
}
