//! The I/O threads: where connections live, and when they move.
//!
//! One thread that has much to do answers more requests per second of CPU time than two that often have
//! nothing to do: each wake-up finds more requests. So connections gather on the first thread, and spread only
//! when that has no time left and the machine has a CPU to spare. Measured with 50 connections that send one
//! GET at a time, on two CPUs that the client shares: 1.46 times the CPU time of Redis when spread at once,
//! 0.96 when gathered.

mod idle_time;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::Mutex;

pub use idle_time::{Background, IdleThread};

/// How often it is decided anew.
const TICK: Duration = Duration::from_millis(250);
/// Share of its time that a thread is busy when it has none left.
const SATURATED: f64 = 0.95;
/// Share of its time that a thread may be busy to take connections of others.
const HAS_TIME: f64 = 0.5;
/// All threads together less busy than this gather their connections again.
const LITTLE: f64 = 0.4;
/// All threads together less busy than this have nothing to do.
const A_LITTLE: f64 = 0.05;
/// CPUs that must be idle for another thread to be of use. With half a CPU to spare, a script that does nothing
/// ran no more often per second, at 1.3 times the CPU time.
const SPARE_CPUS: f64 = 0.75;
/// CPUs that must be idle beside those in the background for these not to be in the way.
const ELBOW_ROOM: f64 = 0.25;
/// Ticks that must agree before anything moves.
const AGREEING: u32 = 2;

/// All I/O threads.
pub struct IoThreads {
    threads: Vec<IoThread>,
    /// Where connections live while their requests are large.
    compute: Handle,
    /// Where new connections go.
    new_connections: AtomicUsize,
    /// Runs in the background that have a CPU of their own.
    apart: AtomicUsize,
    /// How many there may be before they are in the way.
    room: AtomicUsize,
    /// What all runs in the background have had of CPUs since that was last read.
    background_ns: AtomicU64,
}

struct IoThread {
    runtime: Handle,
    connections: AtomicUsize,
    /// Runs in the background that go on here while there is nothing else to do.
    background_runs: AtomicUsize,
    /// How often requests were answered. Wraps around.
    answered: AtomicUsize,
    /// Held by the one of them that goes on.
    looked: Mutex<Looked>,
    /// What they have had of the time that nothing else wanted.
    idle_used_ns: AtomicU64,
    /// How many of its connections are to move, and where to.
    leaving: AtomicUsize,
    target: AtomicUsize,
}

/// A connection's place on a thread.
pub struct ThreadSlot {
    threads: Arc<IoThreads>,
    /// The I/O thread; none on the compute threads.
    at: Option<usize>,
}

impl IoThreads {
    /// The threads that these runtimes run on. Connections with large requests live on `compute`.
    pub fn new(runtimes: Vec<Handle>, compute: Handle) -> Arc<IoThreads> {
        let thread = |runtime| IoThread {
            runtime,
            connections: AtomicUsize::new(0),
            background_runs: AtomicUsize::new(0),
            answered: AtomicUsize::new(0),
            looked: Mutex::new(Looked::new()),
            idle_used_ns: AtomicU64::new(0),
            leaving: AtomicUsize::new(0),
            target: AtomicUsize::new(0),
        };
        let threads = runtimes.into_iter().map(thread).collect();
        Arc::new(IoThreads {
            threads,
            compute,
            new_connections: AtomicUsize::new(0),
            apart: AtomicUsize::new(0),
            room: AtomicUsize::new(usize::MAX),
            background_ns: AtomicU64::new(0),
        })
    }

    /// A place for a new connection.
    pub fn slot(self: &Arc<Self>) -> ThreadSlot {
        ThreadSlot::on(self, self.new_connections.load(Ordering::Relaxed))
    }

    /// Watches how busy the threads are, and moves connections. Never returns.
    pub async fn balance(self: Arc<Self>) {
        let mut busy_before = self.busy_times();
        let mut cpus_before = CpuTimes::now();
        let mut looked = Instant::now();
        let (mut last, mut agreeing) = (None, 0);
        loop {
            tokio::time::sleep(TICK).await;
            let elapsed = looked.elapsed().as_secs_f64();
            looked = Instant::now();
            let busy_now = self.busy_times();
            let shares = busy_now.iter().zip(&busy_before).map(|(now, before)| (now - before) / elapsed);
            let load: Vec<Load> = shares
                .zip(&self.threads)
                .map(|(busy, thread)| Load { busy, connections: thread.connections.load(Ordering::Relaxed) })
                .collect();
            let cpus_now = CpuTimes::now();
            let idle = idle_cpus(&cpus_before, &cpus_now);
            let plan = plan(&load, idle);
            let busy: f64 = load.iter().map(|load| load.busy).sum();
            let background = self.background_ns.swap(0, Ordering::Relaxed) as f64 / 1e9 / elapsed;
            self.room.store(room(busy, idle + background), Ordering::Relaxed);
            (busy_before, cpus_before) = (busy_now, cpus_now);

            let with_time = load.iter().position(|load| load.busy < SATURATED);
            self.new_connections.store(with_time.unwrap_or_else(|| least_busy(&load)), Ordering::Relaxed);
            let route = plan.map(|plan| (plan.from, plan.to));
            agreeing = if route == last { agreeing + 1 } else { 1 };
            last = route;
            for (number, thread) in self.threads.iter().enumerate() {
                let leaving = plan.filter(|plan| plan.from == number && agreeing >= AGREEING);
                thread.target.store(leaving.map_or(0, |plan| plan.to), Ordering::Relaxed);
                thread.leaving.store(leaving.map_or(0, |plan| plan.count), Ordering::Relaxed);
            }
        }
    }

    fn busy_times(&self) -> Vec<f64> {
        let busy = |thread: &IoThread| {
            let idle_used = Duration::from_nanos(thread.idle_used_ns.load(Ordering::Relaxed));
            thread.runtime.metrics().worker_total_busy_duration(0).saturating_sub(idle_used).as_secs_f64()
        };
        self.threads.iter().map(busy).collect()
    }
}

impl ThreadSlot {
    fn on(threads: &Arc<IoThreads>, at: usize) -> ThreadSlot {
        threads.threads[at].connections.fetch_add(1, Ordering::Relaxed);
        ThreadSlot { threads: threads.clone(), at: Some(at) }
    }

    fn thread(&self) -> Option<&IoThread> {
        self.at.map(|at| &self.threads.threads[at])
    }

    /// The runtime of its thread.
    pub fn runtime(&self) -> &Handle {
        self.thread().map_or(&self.threads.compute, |thread| &thread.runtime)
    }

    /// Whether other connections are on its thread too.
    pub fn is_shared(&self) -> bool {
        self.thread().is_some_and(|thread| thread.connections.load(Ordering::Relaxed) > 1)
    }

    /// The place for a connection with a large request, which would hold up all others of an I/O thread, unless this is
    /// one.
    pub fn for_large(&self) -> Option<ThreadSlot> {
        self.at.map(|_| ThreadSlot { threads: self.threads.clone(), at: None })
    }

    /// Another place, if the connection is to move there. Asked between two requests, of which the last one `was_large`.
    pub fn better(&self, was_large: bool) -> Option<ThreadSlot> {
        let Some(thread) = self.thread() else { return (!was_large).then(|| self.threads.slot()) };
        // Nobody else counts.
        thread.answered.store(thread.answered.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        if thread.leaving.load(Ordering::Relaxed) == 0 {
            return None;
        }
        // Only this thread's connections count down, and one at a time; the balancer merely starts anew.
        thread.leaving.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).ok()?;
        Some(ThreadSlot::on(&self.threads, thread.target.load(Ordering::Relaxed)))
    }
}

impl Drop for ThreadSlot {
    fn drop(&mut self) {
        if let Some(thread) = self.thread() {
            thread.connections.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// How many runs in the background disturb no request, each of which would have a CPU, if I/O threads are so busy and
/// so many CPUs are free or in use by such runs.
fn room(busy: f64, free_cpus: f64) -> usize {
    // What is too much for an integer becomes the greatest.
    if busy <= A_LITTLE { usize::MAX } else { (free_cpus - ELBOW_ROOM).max(0.0) as usize }
}

/// What a thread had to do in the last tick.
#[derive(Clone, Copy, Debug)]
struct Load {
    /// Share of the time.
    busy: f64,
    connections: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Plan {
    from: usize,
    to: usize,
    count: usize,
}

fn least_busy(load: &[Load]) -> usize {
    (0..load.len()).min_by(|&one, &other| load[one].busy.total_cmp(&load[other].busy)).unwrap_or(0)
}

/// What should move.
fn plan(load: &[Load], idle_cpus: f64) -> Option<Plan> {
    let populated = || (0..load.len()).filter(|&at| load[at].connections > 0);
    let to = least_busy(load);
    let full = populated().find(|&at| load[at].busy >= SATURATED && load[at].connections > 1);
    if let Some(from) = full {
        let of_use = load[to].busy < HAS_TIME && idle_cpus >= SPARE_CPUS;
        return of_use.then_some(Plan { from, to, count: load[from].connections / 2 });
    }
    let together: f64 = load.iter().map(|load| load.busy).sum();
    let (to, from) = (populated().next()?, populated().next_back()?);
    let gather = together < LITTLE && from != to;
    gather.then_some(Plan { from, to, count: load[from].connections })
}

/// Time that all CPUs together spent idle and in total since the machine's start, in ticks of the system.
struct CpuTimes {
    idle: u64,
    total: u64,
    cpus: usize,
}

impl CpuTimes {
    /// `None` where the system does not say.
    fn now() -> Option<CpuTimes> {
        CpuTimes::parse(&std::fs::read_to_string("/proc/stat").ok()?)
    }

    fn parse(stat: &str) -> Option<CpuTimes> {
        let cpus = stat.lines().filter(|line| line.starts_with("cpu")).count().checked_sub(1)?;
        let all = stat.lines().next()?.strip_prefix("cpu ")?;
        // user, nice, system, idle, iowait, irq, softirq, steal; guest time is part of user time.
        let times: Vec<u64> = all.split_whitespace().take(8).map_while(|time| time.parse().ok()).collect();
        Some(CpuTimes { idle: times.get(3)? + times.get(4)?, total: times.iter().sum(), cpus })
    }
}

/// How many CPUs had nothing to do. All of them where the system does not say.
fn idle_cpus(before: &Option<CpuTimes>, now: &Option<CpuTimes>) -> f64 {
    let (Some(before), Some(now)) = (before, now) else { return f64::INFINITY };
    let passed = |now: u64, before: u64| now.saturating_sub(before) as f64;
    let total = passed(now.total, before.total).max(1.0);
    passed(now.idle, before.idle) / total * now.cpus as f64
}

/// What an I/O thread knows when it has looked for requests.
pub(super) struct Looked {
    /// How often it has answered some.
    answered: usize,
    /// When it did so last.
    at: Instant,
}

impl Looked {
    pub fn new() -> Looked {
        Looked { answered: 0, at: Instant::now() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loads(all: &[(f64, usize)]) -> Vec<Load> {
        all.iter().map(|&(busy, connections)| Load { busy, connections }).collect()
    }

    #[test]
    fn a_full_thread_gives_half_away() {
        let load = loads(&[(0.99, 50), (0.0, 0)]);
        assert_eq!(plan(&load, 1.0), Some(Plan { from: 0, to: 1, count: 25 }));
        assert_eq!(plan(&load, 0.1), None, "another thread would find no CPU");
        assert_eq!(plan(&loads(&[(0.99, 1), (0.0, 0)]), 1.0), None, "one connection cannot be shared");
        assert_eq!(plan(&loads(&[(0.99, 25), (0.9, 25)]), 1.0), None, "nobody has time");
        assert_eq!(plan(&loads(&[(0.8, 50), (0.0, 0)]), 1.0), None, "it has time itself");
    }

    #[test]
    fn idle_threads_gather() {
        let load = loads(&[(0.1, 25), (0.0, 0), (0.1, 25)]);
        assert_eq!(plan(&load, 3.0), Some(Plan { from: 2, to: 0, count: 25 }));
        assert_eq!(plan(&loads(&[(0.4, 25), (0.4, 25)]), 1.0), None, "they have enough to do");
        assert_eq!(plan(&loads(&[(0.1, 50), (0.0, 0)]), 1.0), None, "they are together already");
        assert_eq!(plan(&loads(&[(0.0, 0), (0.0, 0)]), 1.0), None);
    }

    #[test]
    fn the_background_has_what_is_left() {
        assert_eq!(room(0.01, 0.0), usize::MAX, "nobody is there to be held up");
        assert_eq!(room(0.5, f64::INFINITY), usize::MAX, "the system does not tell");
        assert_eq!(room(0.5, 0.0), 0);
        assert_eq!(room(0.5, 1.2), 0, "a run would leave next to nothing of the second CPU");
        assert_eq!(room(0.5, 1.3), 1);
        assert_eq!(room(0.5, 6.5), 6);
    }

    #[test]
    fn cpu_times_are_read() {
        let stat = "cpu  10 0 10 70 10 0 0 0 0 0\ncpu0 1\ncpu1 1\nintr 5\n";
        let times = CpuTimes::parse(stat).unwrap();
        assert_eq!((times.idle, times.total, times.cpus), (80, 100, 2));
        let later = CpuTimes { idle: 130, total: 200, cpus: 2 };
        assert_eq!(idle_cpus(&Some(times), &Some(later)), 1.0);
        assert!(CpuTimes::parse("nothing").is_none());
    }

    #[test]
    fn connections_move_when_told() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let own = || runtime.handle().clone();
        let threads = IoThreads::new(vec![own(), own()], own());
        let places = [threads.slot(), threads.slot()];
        assert!(places[0].better(false).is_none());
        threads.threads[0].target.store(1, Ordering::Relaxed);
        threads.threads[0].leaving.store(1, Ordering::Relaxed);
        let moved = places[0].better(false).unwrap();
        assert_eq!(moved.at, Some(1));
        assert!(places[1].better(false).is_none(), "one was to move");
        drop(places);
        let counts = [0, 1].map(|at: usize| threads.threads[at].connections.load(Ordering::Relaxed));
        assert_eq!(counts, [0, 1]);
    }

    #[test]
    fn connections_are_on_compute_threads_while_requests_are_large() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let threads = IoThreads::new(vec![runtime.handle().clone()], runtime.handle().clone());
        let connections = || threads.threads[0].connections.load(Ordering::Relaxed);
        let slot = threads.slot();
        let large = slot.for_large().unwrap();
        drop(slot);
        assert_eq!(connections(), 0);
        assert!(large.for_large().is_none() && large.better(true).is_none() && !large.is_shared());
        let back = large.better(false).unwrap();
        drop(large);
        assert_eq!((back.at, connections()), (Some(0), 1));
    }
}
