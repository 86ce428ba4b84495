//! Counters, and the clocks that the gateway reads.

use std::ffi::{CStr, c_char, c_long, c_void};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use store::latency::Times;

/// Unix time.
pub fn unix_time() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Unix time in milliseconds.
pub fn unix_ms() -> u64 {
    unix_time().as_millis() as u64
}

/// A way to be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listener {
    /// Redis' protocol.
    Resp,
    /// The API of HTTP.
    Http,
    /// gRPC.
    Grpc,
}

/// What is counted since the start. CONFIG RESETSTAT changes only what INFO shows.
#[derive(Default)]
pub struct Counters {
    /// Connections now.
    pub connections: AtomicUsize,
    /// Connections ever.
    pub connections_total: AtomicU64,
    /// Connections refused because of `maxclients`.
    pub connections_refused: AtomicU64,
    /// Requests answered.
    pub commands: AtomicU64,
    /// Bytes read from clients.
    pub bytes_in: AtomicU64,
    /// Bytes written to clients.
    pub bytes_out: AtomicU64,
    /// Connections cut off because their client did not read.
    pub slow_clients_cut: AtomicU64,
    /// Connections ended because clients held too much together.
    pub clients_evicted: AtomicU64,
    /// Script runs that ended with a reply.
    pub scripts_run: AtomicU64,
    /// Script runs repeated with more keys locked.
    pub scripts_rerun: AtomicU64,
    /// Script runs that were killed.
    pub scripts_killed: AtomicU64,
    /// Keys that scripts locked without having declared them.
    pub undeclared_keys: AtomicU64,
    /// Calls of scripts that were refused since their key was not declared.
    pub undeclared_refused: AtomicU64,
    /// Unix time in seconds when the log last spoke of such a key.
    pub undeclared_logged: AtomicU64,
    /// Sandboxes that trapped.
    pub script_traps: AtomicU64,
    /// Calls of commands that there are not.
    pub commands_unknown: AtomicU64,
    /// Calls that took longer than is tolerated.
    pub slow_calls: AtomicU64,
    /// How long scripts and transactions waited for keys that others had.
    pub lock_waits: Times,
    /// How long scripts waited for their turn, where there were too many.
    pub queue_waits: Times,
    /// Connections by [`Listener`]: now, and ever.
    listeners: [[AtomicU64; 2]; 3],
    /// What the last [`Counters::reset`] found.
    forgotten: [AtomicU64; RESETTABLE],
}

/// So many counters begin anew for INFO.
const RESETTABLE: usize = 13;

impl Counters {
    /// A connection has come.
    pub fn enter(&self, listener: Listener) {
        self.listeners[listener as usize].iter().for_each(|count| Counters::add(count, 1));
    }

    /// It has gone.
    pub fn leave(&self, listener: Listener) {
        self.listeners[listener as usize][0].fetch_sub(1, Ordering::Relaxed);
    }

    /// Each face with its connections, now and ever.
    pub fn listeners(&self) -> [(&'static str, [u64; 2]); 3] {
        let of = |listener: Listener| {
            [0, 1].map(|at| self.listeners[listener as usize][at].load(Ordering::Relaxed))
        };
        [("resp", of(Listener::Resp)), ("http", of(Listener::Http)), ("grpc", of(Listener::Grpc))]
    }

    /// Those that count events.
    fn resettable(&self) -> [&AtomicU64; RESETTABLE] {
        [
            &self.connections_total,
            &self.connections_refused,
            &self.commands,
            &self.bytes_in,
            &self.bytes_out,
            &self.slow_clients_cut,
            &self.clients_evicted,
            &self.scripts_run,
            &self.scripts_rerun,
            &self.scripts_killed,
            &self.undeclared_keys,
            &self.undeclared_refused,
            &self.script_traps,
        ]
    }

    /// CONFIG RESETSTAT: for INFO, everything that counts events begins again.
    pub fn reset(&self) {
        for (counter, forgotten) in self.resettable().into_iter().zip(&self.forgotten) {
            forgotten.store(counter.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    /// What one of these counters has counted since [`Counters::reset`].
    pub fn since_reset(&self, counter: &AtomicU64) -> u64 {
        let at = self.resettable().iter().position(|known| std::ptr::eq(*known, counter));
        let forgotten = at.map_or(0, |at| self.forgotten[at].load(Ordering::Relaxed));
        counter.load(Ordering::Relaxed).saturating_sub(forgotten)
    }

    /// Adds to a counter; orders nothing.
    pub fn add(counter: &AtomicU64, count: u64) {
        counter.fetch_add(count, Ordering::Relaxed);
    }
}

/// Bytes of memory the process occupies; 0 where the system does not say.
pub fn resident_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").ok();
    let pages = pages.as_deref().and_then(|text| text.split(' ').nth(1)?.parse::<u64>().ok());
    pages.unwrap_or(0) * 4096
}

/// How long the allocator keeps pages that hold nothing, in milliseconds; ten times as long if they were parts of large
/// pieces. With the usual 10 ms the system cleared most pages again for each of several long calls in a row: `DEL` of
/// 200,000 keys took 1.5 times the CPU time.
const RETAIN_MS: c_long = 300;

/// Sets up the allocator of the process.
pub fn set_up_allocator() {
    // SAFETY: it sets a number that the allocator reads when it retains pages.
    unsafe { libmimalloc_sys::mi_option_set(PURGE_DELAY, RETAIN_MS) };
}

/// `mi_option_purge_delay`, which the crate has no name for.
const PURGE_DELAY: libmimalloc_sys::mi_option_t = 15;

/// Gives pages that hold nothing back to the system.
pub fn give_back_memory() {
    // SAFETY: the allocator's own maintenance call; it only returns pages that hold nothing.
    unsafe { libmimalloc_sys::mi_collect(true) };
}

/// The most memory that the process has ever occupied.
pub fn peak_bytes() -> u64 {
    let (mut peak, none) = (0, std::ptr::null_mut());
    // SAFETY: every place is either null, which the call allows, or that of a number that lives until it returns.
    unsafe { libmimalloc_sys::mi_process_info(none, none, none, none, &raw mut peak, none, none, none) };
    peak as u64
}

/// What the allocator prints about itself.
pub fn allocator_report() -> Vec<u8> {
    unsafe extern "C" fn add(text: *const c_char, report: *mut c_void) {
        // SAFETY: the allocator gives a text that ends with a zero, and what it was given with this function.
        let (text, report) = unsafe { (CStr::from_ptr(text), &mut *report.cast::<Vec<u8>>()) };
        report.extend_from_slice(text.to_bytes());
    }
    let mut report = Vec::new();
    // SAFETY: `add` takes the report as what it is, which lives until the call returns.
    unsafe { libmimalloc_sys::mi_stats_print_out(Some(add), (&raw mut report).cast()) };
    report
}

/// CPU time of the process in user and kernel mode, in seconds.
pub fn cpu_seconds() -> (f64, f64) {
    let ticks = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The second field, the name, may hold blanks; fields are counted behind its bracket.
    let fields: Vec<&str> = ticks.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let of = |at: usize| fields.get(at).and_then(|text| text.parse::<f64>().ok()).unwrap_or(0.0) / 100.0;
    (of(11), of(12))
}
