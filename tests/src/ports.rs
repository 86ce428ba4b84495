//! Ports for those who have to know theirs before they listen.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU16, Ordering};

/// A port that is free, and that nobody gets by chance while its owner is away.
pub fn fixed_port() -> u16 {
    fixed_listener().local_addr().expect("an address").port()
}

/// Listens on such a port. Whoever closes it and listens again may find it in use: a process that another thread starts
/// just then has a copy for a moment.
pub fn fixed_listener() -> TcpListener {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    loop {
        let own = (std::process::id() % 200) as u16 * 60;
        let port = 20_000 + (own + NEXT.fetch_add(1, Ordering::Relaxed)) % 12_000;
        if let Ok(listener) = TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            return listener;
        }
    }
}
