//! A wire that a test can cut, stall and slow down: it stands between gateways and a store node.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, Weak};
use std::time::Duration;

/// Passes on what comes to its port, as long as it is told to.
pub struct Proxy {
    address: SocketAddr,
    wire: Arc<Wire>,
}

struct Wire {
    to: SocketAddr,
    state: Mutex<State>,
    /// Told when the state changes.
    changed: Condvar,
    ended: AtomicBool,
    /// Bytes that were passed on, to the node and back.
    bytes: [AtomicU64; 2],
}

#[derive(Default)]
struct State {
    /// Nothing is passed on, and nothing is read: whoever sends finds its buffers full in the end.
    stalled: bool,
    /// The same for what comes from the node only.
    deaf: bool,
    /// New connections are closed at once.
    down: bool,
    /// How long everything takes.
    delay: Duration,
    /// How many connections there were so far,
    connections: u64,
    /// and how many of the oldest pass nothing on any more.
    forgotten: u64,
    /// Both ends of every open connection.
    open: Vec<Weak<(TcpStream, TcpStream)>>,
    /// What went to the node on the newest connection, if that is wanted.
    record: Option<Vec<u8>>,
}

impl Proxy {
    /// Passes on to `to` who connects to `listener`.
    pub fn start(listener: TcpListener, to: SocketAddr) -> Proxy {
        let address = listener.local_addr().expect("an address");
        let bytes = [AtomicU64::new(0), AtomicU64::new(0)];
        let (changed, ended) = (Condvar::new(), AtomicBool::new(false));
        let wire = Arc::new(Wire { to, state: Mutex::default(), changed, ended, bytes });
        let accepting = wire.clone();
        std::thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                if accepting.ended.load(Ordering::Relaxed) {
                    return;
                }
                accepting.connect(near);
            }
        });
        Proxy { address, wire }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Bytes that were passed on so far, to the node and back.
    pub fn bytes(&self) -> [u64; 2] {
        [0, 1].map(|way| self.wire.bytes[way].load(Ordering::Relaxed))
    }

    /// Breaks all connections. How many these were.
    pub fn cut(&self) -> usize {
        let open = std::mem::take(&mut self.wire.state.lock().expect("no panic").open);
        let open: Vec<_> = open.iter().filter_map(Weak::upgrade).collect();
        for (near, far) in open.iter().map(|pair| &**pair) {
            // One that has ended already needs no more.
            let _ = near.shutdown(Shutdown::Both);
            let _ = far.shutdown(Shutdown::Both);
        }
        self.wire.changed.notify_all();
        open.len()
    }

    /// Breaks all connections, and lets none be made until told otherwise.
    pub fn set_down(&self, down: bool) {
        self.wire.set(|state| state.down = down);
        if down {
            self.cut();
        }
    }

    /// Passes nothing on until told otherwise; nobody is told either.
    pub fn set_stalled(&self, stalled: bool) {
        self.wire.set(|state| state.stalled = stalled);
    }

    /// Never passes anything on again of the connections that there are, without closing them, as a firewall that was restarted.
    pub fn forget(&self) {
        self.wire.set(|state| state.forgotten = state.connections);
    }

    /// Fetches nothing from the node until told otherwise, while everything goes there.
    pub fn set_deaf(&self, deaf: bool) {
        self.wire.set(|state| state.deaf = deaf);
    }

    /// Lets everything take this long.
    pub fn set_delay(&self, delay: Duration) {
        self.wire.set(|state| state.delay = delay);
    }

    /// Breaks all connections, and remembers from then on what goes to the node on the newest one.
    pub fn record(&self) {
        self.wire.set(|state| state.record = Some(Vec::new()));
        self.cut();
    }

    /// What went to the node on the newest connection.
    pub fn recorded(&self) -> Vec<u8> {
        self.wire.state.lock().expect("no panic").record.clone().unwrap_or_default()
    }

    /// As it was in the beginning.
    pub fn heal(&self) {
        self.wire.set(|state| {
            (state.stalled, state.deaf, state.down, state.delay) = (false, false, false, Duration::ZERO);
        });
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.wire.ended.store(true, Ordering::Relaxed);
        self.heal();
        self.set_down(true);
        // Wakes the one who accepts.
        let _ = TcpStream::connect(self.address);
    }
}

impl Wire {
    fn set(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock().expect("no panic"));
        self.changed.notify_all();
    }

    fn connect(self: &Arc<Wire>, near: TcpStream) {
        if self.state.lock().expect("no panic").down {
            return;
        }
        let Ok(far) = TcpStream::connect(self.to) else { return };
        let _ = (near.set_nodelay(true), far.set_nodelay(true));
        let pair = Arc::new((near, far));
        let mut state = self.state.lock().expect("no panic");
        if state.down {
            return;
        }
        state.open.retain(|pair| pair.strong_count() > 0);
        state.open.push(Arc::downgrade(&pair));
        state.connections += 1;
        let number = state.connections;
        if let Some(record) = &mut state.record {
            record.clear();
        }
        drop(state);
        for way in [0, 1] {
            let (wire, pair) = (self.clone(), pair.clone());
            std::thread::spawn(move || {
                let (near, far) = &*pair;
                if way == 0 { wire.pass(number, way, near, far) } else { wire.pass(number, way, far, near) }
            });
        }
    }

    /// Passes one way of a connection on, to its end.
    fn pass(&self, number: u64, way: usize, mut from: &TcpStream, mut to: &TcpStream) {
        let mut bytes = [0; 64 * 1024];
        while let Ok(count) = from.read(&mut bytes) {
            let state = self.state.lock().expect("no panic");
            let is_stalled = |state: &mut State| {
                let is_lost = number <= state.forgotten && !self.ended.load(Ordering::Relaxed);
                state.stalled || (state.deaf && way == 1) || is_lost
            };
            let mut state = self.changed.wait_while(state, is_stalled).expect("no panic");
            if let Some(record) = state.record.as_mut().filter(|_| way == 0) {
                record.extend_from_slice(&bytes[..count]);
            }
            let delay = state.delay;
            drop(state);
            std::thread::sleep(delay);
            if count == 0 || to.write_all(&bytes[..count]).is_err() {
                break;
            }
            self.bytes[way].fetch_add(count as u64, Ordering::Relaxed);
        }
        let _ = from.shutdown(Shutdown::Both);
        let _ = to.shutdown(Shutdown::Both);
    }
}
