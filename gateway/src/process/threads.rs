//! Threads that do what takes longer than a request, and give way to those of connections.

use std::io;
use std::thread::Builder;

/// How much less than others a thread asks for that runs long scripts or compiles: where CPUs are short, it gets a quarter of
/// one that a connection's thread wants too. Long scripts must not hold up short requests.
const NICENESS: i32 = 5;

/// Lowers the calling thread's priority.
pub fn give_way() {
    // Only on Linux is this the thread's and not the process'. Where it is refused, everything works without it.
    if cfg!(target_os = "linux") {
        let _ = rustix::process::setpriority_process(None, NICENESS);
    }
}

/// Starts a thread of this name that gives way.
pub fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let thread = Builder::new().name(name.to_owned()).spawn(move || {
        give_way();
        work();
    });
    thread.map(drop)
}
