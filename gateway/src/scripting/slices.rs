//! On which thread a run spends its slices of fuel, and how many in a row.

use std::future::{Future, poll_fn};
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use rustix::time::{ClockId, clock_gettime};
use script::{AnyHost, Outcome, ResourceUsage};
use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::process::io::{Background, IdleThread};
use crate::server::Server;

/// What [`script::Runtime::run`] gives.
type Ran = (Option<AnyHost>, Outcome, ResourceUsage);

/// The slices of a run that gives way: some 10 us each, as requests wait for their end. Measured with a client that is as
/// fast as its CPU allows and a script that scans 100,000 keys, on two CPUs, idle ones of which poll: beside slices of
/// 14,000 the client keeps 0.97 of its speed, of 20,000 0.94, of 30,000 0.88. The script takes 3.1, 2.6 and 2.4 times as
/// long as in redis-server, which answers no client meanwhile.
const SHORT_SLICE_FUEL: u64 = 20_000;
/// Its slices elsewhere, and until its next call where it gives way. Short ones cost a tenth of its speed.
const SLICE_FUEL: u64 = 150_000;

/// What a run may have of a CPU before it gives way. Most are over by then, and where such runs are all there is to do, no
/// CPU should be idle because one might be in the way: scripts of 2 ms, called by 20 clients, ran at 0.8 of their speed so.
const SHORT_RUN: Duration = Duration::from_millis(10);

/// Drives `run` to its end. Its first slice is spent on the caller's thread, which is where short scripts end;
/// what takes longer moves to the compute threads, so that the caller's other connections go on. One that `brings_much` is
/// there from the start.
///
/// With `yields_for` it gives way for so long if no CPU is to spare, by slices of this pace: who locks nothing holds up
/// no client by taking longer.
pub(super) async fn drive(
    server: &Server,
    mut run: Pin<Box<impl Future<Output = Ran> + Send + 'static>>,
    brings_much: bool,
    yields_for: Option<(Pace, Duration)>,
) -> Ran {
    let began = Instant::now();
    let first = match brings_much {
        true => Poll::Pending,
        false => poll_fn(|context| Poll::Ready(poll(&mut run, context))).await,
    };
    match (first, yields_for) {
        (Poll::Ready(ran), _) => ran,
        (Poll::Pending, None) => {
            let mut task = AbortOnDrop(server.scripting.compute.spawn(run));
            (&mut task.0).await.unwrap_or_else(|_| panicked())
        }
        (Poll::Pending, Some((pace, yields_for))) => {
            let slices = (server.config.script_fuel_slice.get() / pace.slice_fuel()).max(1);
            let run = YieldingRun::new(run, pace, server.process.io.background(), slices, began + yields_for);
            run.drive(&server.scripting.compute).await
        }
    }
}

/// How long the slices of a run are that may give way.
#[derive(Clone)]
pub(super) struct Pace {
    slice_fuel: Arc<AtomicU64>,
    usual: u64,
}

impl Pace {
    /// Of a run whose slices need not be shorter than this.
    pub fn new(slice_fuel: u64) -> Pace {
        let usual = slice_fuel.clamp(1, SLICE_FUEL);
        Pace { slice_fuel: Arc::new(AtomicU64::new(usual)), usual }
    }

    /// Fuel of the next slice.
    pub fn slice_fuel(&self) -> u64 {
        self.slice_fuel.load(Ordering::Relaxed)
    }

    fn set(&self, gives_way: bool) {
        let fuel = if gives_way { self.usual.min(SHORT_SLICE_FUEL) } else { self.usual };
        self.slice_fuel.store(fuel, Ordering::Relaxed);
    }
}

/// A run that gives way. Where CPUs are short, an I/O thread spends a slice on it whenever it finds no requests.
///
/// A thread of its own would be in the way there, whatever its priority. Linux puts a server and a client that wake each
/// other on one CPU while the run has the other, and takes some 20 ms to part them again: the client kept 0.65 of its
/// speed so, and 0.8 if the run paused for 60 ms of 80.
struct YieldingRun<F> {
    run: Pin<Box<F>>,
    woken: Arc<Woken>,
    waker: Waker,
    pace: Pace,
    background: Background,
    /// Slices in a row where no request waits for their end.
    slices: u64,
    /// When its patience ends.
    until: Instant,
    /// What it has had of a CPU.
    used: Duration,
}

/// A run wants to go on: its slice is over, or what it waited for is there.
struct Woken(Notify);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }
}

impl<F: Future<Output = Ran> + Send + 'static> YieldingRun<F> {
    fn new(run: Pin<Box<F>>, pace: Pace, background: Background, slices: u64, until: Instant) -> Self {
        let woken = Arc::new(Woken(Notify::new()));
        YieldingRun {
            run,
            waker: Waker::from(woken.clone()),
            woken,
            pace,
            background,
            slices,
            until,
            used: Duration::ZERO,
        }
    }

    /// To its end: some slices on the caller's thread, then wherever there is time.
    async fn drive(mut self, compute: &Handle) -> Ran {
        if let Some(ran) = self.run_slices() {
            return ran;
        }
        loop {
            let idle_thread = if self.has_cpu() { None } else { self.background.idle_thread() };
            let mut task = AbortOnDrop(match idle_thread {
                Some(idle_thread) => idle_thread.runtime().clone().spawn(self.between_requests(idle_thread)),
                None => compute.spawn(self.on_its_own()),
            });
            match (&mut task.0).await {
                Ok(Ok(ran)) => return ran,
                Ok(Err(moves)) => self = moves,
                Err(_) => return panicked(),
            }
        }
    }

    fn has_cpu(&mut self) -> bool {
        let insists = self.used < SHORT_RUN || Instant::now() >= self.until;
        self.background.has_cpu(insists)
    }

    fn count(&mut self, time: Duration) {
        self.used += time;
        self.background.used(time);
    }

    /// On a compute thread. To its end, or until it should be elsewhere.
    async fn on_its_own(mut self) -> Result<Ran, Self> {
        self.pace.set(false);
        loop {
            self.woken.0.notified().await;
            let before = cpu_time();
            let ran = self.run_slices();
            self.count(cpu_time().saturating_sub(before));
            match ran {
                Some(ran) => return Ok(ran),
                None if self.has_cpu() => tokio::task::yield_now().await,
                None => return Err(self),
            }
        }
    }

    /// On an I/O thread. To its end, or until it should be elsewhere.
    async fn between_requests(mut self, idle_thread: IdleThread) -> Result<Ran, Self> {
        self.pace.set(true);
        while idle_thread.has_connections() && !self.has_cpu() {
            self.woken.0.notified().await;
            let gap = idle_thread.gap().await;
            let began = Instant::now();
            let ran = self.run_slices_until(|| began.elapsed() >= gap.length());
            let time = began.elapsed();
            gap.end(time);
            self.count(time);
            if let Some(ran) = ran {
                return Ok(ran);
            }
        }
        Err(self)
    }

    /// As many slices in a row as without patience.
    fn run_slices(&mut self) -> Option<Ran> {
        let mut left = self.slices;
        self.run_slices_until(|| {
            left -= 1;
            left == 0
        })
    }

    /// Slices in a row until it has to wait for something, or `enough`. `None` if it has not ended.
    fn run_slices_until(&mut self, mut enough: impl FnMut() -> bool) -> Option<Ran> {
        loop {
            let slice = poll(&mut self.run, &mut Context::from_waker(&self.waker));
            if let Poll::Ready(ran) = slice {
                return Some(ran);
            }
            // If it is woken already, the slice was over, and nothing else.
            if enough() || self.woken.0.notified().now_or_never().is_none() {
                return None;
            }
        }
    }
}

/// Whatever panics is dropped with the future: sandbox, host and transaction.
fn poll(run: &mut Pin<Box<impl Future<Output = Ran>>>, context: &mut Context<'_>) -> Poll<Ran> {
    std::panic::catch_unwind(AssertUnwindSafe(|| run.as_mut().poll(context)))
        .unwrap_or_else(|_| Poll::Ready(panicked()))
}

/// What the calling thread has had of a CPU.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    // Neither is ever negative on this clock.
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn panicked() -> Ran {
    (None, Outcome::Trap("internal error in a host call".into()), ResourceUsage::default())
}

/// Ends the run if its caller is gone.
struct AbortOnDrop<T>(tokio::task::JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use tokio::runtime::{Builder, Runtime};

    use super::*;
    use crate::process::io::{IoThreads, ThreadSlot};

    /// Slices in a row, of which the first are spent where the run begins.
    const SLICES_PER_TURN: usize = 10;

    /// An I/O thread with a connection, and a compute thread.
    struct Threads {
        io: Runtime,
        all: Arc<IoThreads>,
        compute: Runtime,
        _slot: ThreadSlot,
    }

    impl Threads {
        /// With a CPU to spare or without.
        fn new(crowded: bool) -> Threads {
            let io = Builder::new_current_thread().build().unwrap();
            let compute =
                Builder::new_multi_thread().worker_threads(1).thread_name("compute").build().unwrap();
            let all = IoThreads::new(vec![io.handle().clone()], compute.handle().clone());
            if crowded {
                all.crowd();
            }
            Threads { _slot: all.slot(), io, all, compute }
        }

        /// Drives a run that goes on as long as `look` says, which learns of each slice its number, whether it is on the
        /// compute thread, and its fuel. `used`: what the run has had of a CPU before.
        fn drive(
            &self,
            used: Duration,
            yields_for: Duration,
            mut look: impl FnMut(usize, bool, u64) -> bool + Send + 'static,
        ) -> Outcome {
            let pace = Pace::new(1 << 40);
            let (mut slice, its_pace) = (0, pace.clone());
            let run = Box::pin(poll_fn(move |context| {
                let apart = std::thread::current().name() == Some("compute");
                if !look(slice, apart, its_pace.slice_fuel()) {
                    return Poll::Ready((None, Outcome::Stopped, ResourceUsage::default()));
                }
                slice += 1;
                context.waker().wake_by_ref();
                Poll::Pending
            }));
            let until = Instant::now() + yields_for;
            let mut run = YieldingRun::new(run, pace, self.all.background(), SLICES_PER_TURN as u64, until);
            run.used = used;
            self.io.block_on(run.drive(self.compute.handle())).1
        }
    }

    const LONG: Duration = Duration::from_secs(3600);

    /// Looks for a run that computes on the compute thread after its first turn, for one more.
    fn is_apart(slice: usize, apart: bool, fuel: u64) -> bool {
        assert_eq!((apart, fuel), (slice >= SLICES_PER_TURN, SLICE_FUEL), "slice {slice}");
        slice < 2 * SLICES_PER_TURN
    }

    #[test]
    fn with_a_cpu_to_spare_it_computes_apart() {
        assert_eq!(Threads::new(false).drive(SHORT_RUN, LONG, is_apart), Outcome::Stopped);
    }

    #[test]
    fn a_short_run_does_not_give_way() {
        assert_eq!(Threads::new(true).drive(Duration::ZERO, LONG, is_apart), Outcome::Stopped);
    }

    #[test]
    fn patience_ends() {
        assert_eq!(Threads::new(true).drive(SHORT_RUN, Duration::ZERO, is_apart), Outcome::Stopped);
    }

    #[test]
    fn requests_are_answered_between_two_slices() {
        let threads = Threads::new(true);
        let (requests, mut requested) = tokio::sync::mpsc::unbounded_channel();
        let answered = Arc::new(AtomicUsize::new(0));
        let answers = answered.clone();
        threads.io.spawn(async move {
            while requested.recv().await.is_some() {
                answers.fetch_add(1, Ordering::Relaxed);
            }
        });
        let mut sent = 0;
        let outcome = threads.drive(SHORT_RUN, LONG, move |slice, apart, fuel| {
            let wanted = if slice < SLICES_PER_TURN { SLICE_FUEL } else { SHORT_SLICE_FUEL };
            assert_eq!((apart, fuel), (false, wanted), "slice {slice}");
            assert!(slice < 10_000_000, "no answer to request {sent}");
            let answered = answered.load(Ordering::Relaxed);
            if answered == sent {
                requests.send(()).unwrap();
                sent += 1;
            }
            answered < 50
        });
        assert_eq!(outcome, Outcome::Stopped);
    }

    #[test]
    fn a_panic_ends_the_run_alone() {
        let outcome = Threads::new(true).drive(SHORT_RUN, LONG, |slice, _, _| {
            assert!(slice < SLICES_PER_TURN + 5, "as expected");
            true
        });
        assert!(matches!(outcome, Outcome::Trap(_)), "{outcome:?}");
    }

    #[test]
    fn the_configuration_may_want_slices_shorter_still() {
        let pace = Pace::new(1000);
        pace.set(true);
        assert_eq!(pace.slice_fuel(), 1000);
    }
}
