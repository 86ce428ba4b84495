//! The scripts and functions that are running or waiting to run, and how they are ended from outside.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Instant;

use parking_lot::Mutex;
use tokio::sync::Notify;

/// Who runs what.
#[derive(Clone, Debug)]
pub struct Who {
    /// The script's digest, or the function's name.
    pub name: String,
    /// If it is a function, the command that called it.
    pub function: Option<Vec<Box<[u8]>>>,
    /// The connection that asked for it.
    pub client: u64,
}

/// A run that did not end at once.
pub struct Run {
    id: u64,
    /// What it is.
    pub who: Who,
    /// When it began.
    pub since: Instant,
    killed: Notify,
}

/// All of them.
#[derive(Default)]
pub struct Runs {
    list: Mutex<Vec<Arc<Run>>>,
    next: AtomicU64,
}

impl Runs {
    /// Drives `run` to its end, unless it is killed before: then there is no result, and the caller drops
    /// it, which takes back what it did. Pinned by the caller, as it is large and would be moved otherwise.
    pub async fn drive<T>(
        &self,
        who: impl FnOnce() -> Who,
        mut run: Pin<&mut impl Future<Output = T>>,
    ) -> Option<T> {
        // Most end at once, before they could be killed.
        if let Poll::Ready(done) = poll_fn(|context| Poll::Ready(run.as_mut().poll(context))).await {
            return Some(done);
        }
        let listed = self.enter(who());
        tokio::select! {
            biased;
            done = run => Some(done),
            () = listed.run.killed.notified() => None,
        }
    }

    fn enter(&self, who: Who) -> ListedRun<'_> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let run = Arc::new(Run { id, who, since: Instant::now(), killed: Notify::new() });
        self.list.lock().push(run.clone());
        ListedRun { runs: self, run }
    }

    /// Ends those that `chosen` says yes to; how many there were.
    pub fn kill(&self, chosen: impl Fn(&Who) -> bool) -> usize {
        let list = self.list.lock();
        list.iter().filter(|run| chosen(&run.who)).map(|run| run.killed.notify_one()).count()
    }

    /// How many there are now.
    pub fn len(&self) -> usize {
        self.list.lock().len()
    }

    /// All that there are now.
    pub fn list(&self) -> Vec<Arc<Run>> {
        self.list.lock().clone()
    }
}

/// An entry of the list, taken out again when dropped.
struct ListedRun<'a> {
    runs: &'a Runs,
    run: Arc<Run>,
}

impl Drop for ListedRun<'_> {
    fn drop(&mut self) {
        self.runs.list.lock().retain(|run| run.id != self.run.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn who(name: &str) -> Who {
        Who { name: name.to_owned(), function: None, client: 1 }
    }

    #[tokio::test]
    async fn a_run_that_waits_can_be_killed_and_leaves_the_list() {
        let runs = Runs::default();
        let mut forever = std::future::pending::<()>();
        let waits = runs.drive(|| who("a"), Pin::new(&mut forever));
        let kills = async {
            while runs.list().is_empty() {
                tokio::task::yield_now().await;
            }
            assert_eq!(runs.kill(|who| who.name == "b"), 0);
            assert_eq!(runs.kill(|who| who.name == "a"), 1);
        };
        let (ended, ()) = tokio::join!(waits, kills);
        assert_eq!(ended, None);
        assert!(runs.list().is_empty());
    }

    #[tokio::test]
    async fn a_run_that_ends_at_once_is_never_listed() {
        let runs = Runs::default();
        let done =
            runs.drive(|| unreachable!("nobody asks who it is"), Pin::new(&mut std::future::ready(7))).await;
        assert_eq!(done, Some(7));
    }
}
