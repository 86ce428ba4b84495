//! On which thread a run spends its slices of fuel, and how many in a row.

use std::future::{Future, poll_fn};
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use script::{AnyHost, Outcome, Spent};

use crate::io::IoThreads;
use crate::server::Server;

/// What [`script::Runtime::run`] gives.
type Ran = (Option<AnyHost>, Outcome, Spent);

/// Where it is in the way, a run in the background has a CPU this long. Linux puts a server and a client that wake each
/// other on one CPU while the run has the other, and takes some 20 ms to part them again: shorter turns, at the same
/// share of the time, cost others more. Measured on two CPUs, as what clients keep of their speed: 0.65 without
/// pauses, 0.68 at 4 ms of 12, 0.79 at 10 of 40, 0.83 at 20 of 80, and no more at 20 of 100.
const TURN: Duration = Duration::from_millis(20);
/// and then leaves it to others this long.
const PAUSE: Duration = Duration::from_millis(60);

/// Drives `run` to its end. Its first slice is spent on the caller's thread, which is where short scripts end;
/// what takes longer moves to the compute threads, so that the caller's other connections go on.
///
/// With `patience`, which says how long it may pause in all, it leaves others three quarters of its time if no CPU is
/// to spare: who locks nothing holds up nobody by taking longer. Its thread's low priority alone does not do.
pub(super) async fn drive(
    server: &Server,
    mut run: Pin<Box<impl Future<Output = Ran> + Send + 'static>>,
    patience: Option<Duration>,
) -> Ran {
    let first = poll_fn(|context| {
        // Whatever panicked is dropped with the future: sandbox, host and transaction.
        let step = std::panic::catch_unwind(AssertUnwindSafe(|| run.as_mut().poll(context)));
        Poll::Ready(step)
    })
    .await;
    match first {
        Ok(Poll::Ready(ran)) => ran,
        Ok(Poll::Pending) => {
            let task = match patience {
                Some(patience) => server.compute.spawn(in_background(server.io.clone(), run, patience)),
                None => server.compute.spawn(run),
            };
            let mut task = AbortOnDrop(task);
            (&mut task.0).await.unwrap_or_else(|_| panicked())
        }
        Err(_) => panicked(),
    }
}

async fn in_background(
    io: Arc<IoThreads>,
    mut run: Pin<Box<impl Future<Output = Ran> + Send>>,
    mut patience: Duration,
) -> Ran {
    let background = io.background();
    loop {
        let mut used = Duration::ZERO;
        let turn = poll_fn(|context| {
            let before = cpu_time();
            let step = run.as_mut().poll(context);
            let slice = cpu_time().saturating_sub(before);
            background.used(slice);
            used += slice;
            match step {
                Poll::Ready(ran) => Poll::Ready(Some(ran)),
                Poll::Pending if used >= TURN => Poll::Ready(None),
                Poll::Pending => Poll::Pending,
            }
        });
        if let Some(ran) = turn.await {
            return ran;
        }
        if background.is_in_the_way() && !patience.is_zero() {
            patience = patience.saturating_sub(PAUSE);
            tokio::time::sleep(PAUSE).await;
        } else {
            tokio::task::yield_now().await;
        }
    }
}

/// What the calling thread has had of a CPU.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    // Neither is ever negative on this clock.
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn panicked() -> Ran {
    (None, Outcome::Trap("internal error in a host call".into()), Spent::default())
}

/// Ends the run if nobody waits for it any more.
struct AbortOnDrop(tokio::task::JoinHandle<Ran>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[tokio::test]
    async fn others_go_on_between_two_turns() {
        let others_went_on = Arc::new(AtomicBool::new(false));
        let seen = others_went_on.clone();
        let mut turns = 0;
        let run = poll_fn(move |context| {
            turns += 1;
            if turns == 2 {
                assert!(seen.load(Ordering::Relaxed), "the second turn came without a pause");
                return Poll::Ready(panicked());
            }
            let began = cpu_time();
            while cpu_time() - began < TURN {}
            let other = seen.clone();
            tokio::spawn(async move {
                tokio::time::sleep(PAUSE / 2).await;
                other.store(true, Ordering::Relaxed);
            });
            context.waker().wake_by_ref();
            Poll::Pending
        });
        let io = IoThreads::new(Vec::new());
        io.crowd();
        in_background(io, Box::pin(run), PAUSE).await;
    }
}
