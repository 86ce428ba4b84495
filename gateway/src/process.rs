//! What the process has of its machine: threads, open files, certificates, connections to other processes, the data
//! directory and the build.

pub mod certificates;
pub mod descriptors;
pub mod dial;
pub mod io;
pub mod persistence;
pub mod service_manager;
pub mod threads;
pub mod version;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::watch;

use self::certificates::Certificates;
use self::io::IoThreads;
use crate::telemetry::counters::unix_time;

/// The process of a gateway: where it is reached, and how it begins and ends.
pub struct Process {
    /// Which connections are TLS.
    pub certificates: Certificates,
    /// The threads that connections live on.
    pub io: Arc<IoThreads>,
    /// Where RESP is served.
    pub resp_addr: SocketAddr,
    /// When the process began to serve.
    pub started: Instant,
    /// The same in seconds since 1970.
    pub started_at: u64,
    /// Whether SHUTDOWN was called.
    pub stop: watch::Sender<Stop>,
    /// Distinguishes this process from others: INFO's `run_id`.
    pub run_id: String,
    /// How many connections the system has room for.
    pub room_for_connections: usize,
}

/// What SHUTDOWN asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Nothing.
    Never,
    /// The end of the process, with everything kept.
    Saving,
    /// The end, and nothing more is to be written.
    Abandoning,
}

impl Process {
    /// One that begins to serve now.
    pub fn new(
        certificates: Certificates,
        io: Arc<IoThreads>,
        resp_addr: SocketAddr,
        run_id: String,
    ) -> Process {
        Process {
            certificates,
            io,
            resp_addr,
            started: Instant::now(),
            started_at: unix_time().as_secs(),
            stop: watch::Sender::new(Stop::Never),
            run_id,
            room_for_connections: descriptors::room_for_connections(),
        }
    }
}
