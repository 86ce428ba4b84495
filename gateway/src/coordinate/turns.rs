//! On which thread a run spends its slices of fuel, and how many in a row.

use std::future::{Future, poll_fn};
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use script::{AnyHost, Outcome, Spent};

use crate::io::IoThreads;
use crate::server::Server;

/// What [`script::Runtime::run`] gives.
type Ran = (Option<AnyHost>, Outcome, Spent);

/// Where CPUs are short, a run that gives way computes this long,
const TURN: Duration = Duration::from_millis(6);
/// and then pauses this long.
const PAUSE: Duration = Duration::from_millis(3);

/// Drives `run` to its end. Its first slice is spent on the caller's thread, which is where short scripts end;
/// what takes longer moves to the compute threads, so that the caller's other connections go on.
///
/// With `gives_way` it leaves others a third of its time if no CPU is to spare: who locks nothing holds up nobody
/// by taking longer. On two CPUs, one of them taken by another program, clients kept 0.9 of their speed instead of
/// 0.6.
pub(super) async fn drive(
    server: &Server,
    mut run: Pin<Box<impl Future<Output = Ran> + Send + 'static>>,
    gives_way: bool,
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
            let task = match gives_way {
                true => server.compute.spawn(with_pauses(server.io.clone(), run)),
                false => server.compute.spawn(run),
            };
            let mut task = AbortOnDrop(task);
            (&mut task.0).await.unwrap_or_else(|_| panicked())
        }
        Err(_) => panicked(),
    }
}

async fn with_pauses(io: Arc<IoThreads>, mut run: Pin<Box<impl Future<Output = Ran> + Send>>) -> Ran {
    loop {
        let began = Instant::now();
        let turn = poll_fn(|context| match run.as_mut().poll(context) {
            Poll::Ready(ran) => Poll::Ready(Some(ran)),
            Poll::Pending if began.elapsed() >= TURN => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        });
        if let Some(ran) = turn.await {
            return ran;
        }
        if io.want_cpu() {
            tokio::time::sleep(PAUSE).await;
        } else {
            tokio::task::yield_now().await;
        }
    }
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
