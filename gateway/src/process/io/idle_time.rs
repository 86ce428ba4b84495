//! What I/O threads lend: their idle time, to runs that are in no hurry and for which no CPU is to spare.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::MutexGuard;

use super::{IoThread, IoThreads, Looked};

/// A gap is there in any case once requests have been answered for so long, so that a run in the background goes on
/// even where there are some at all times.
const GAPLESS: Duration = Duration::from_micros(100);
/// The part of that time that a gap then lasts. Others keep eight ninths of their speed.
const DUE: u32 = 8;
/// The part of the time without any request that a gap lasts: the longer there was none, the less likely is one. To look
/// for them costs some 2 us.
const QUIET: u32 = 4;
/// The longest gap.
const LONGEST: Duration = Duration::from_micros(250);

impl IoThreads {
    /// A place for a run that is in no hurry.
    pub fn background(self: &Arc<Self>) -> Background {
        Background { threads: self.clone(), has_cpu: false }
    }

    /// From now on every run in the background is in the way.
    #[cfg(test)]
    pub fn crowd(&self) {
        self.room.store(0, Ordering::Relaxed);
    }
}

/// A run that is in no hurry, for as long as it lasts.
pub struct Background {
    threads: Arc<IoThreads>,
    has_cpu: bool,
}

impl Background {
    /// It has had a CPU for so long.
    pub fn used(&self, time: Duration) {
        self.threads.background_ns.fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
    }

    /// Whether it may have a CPU of its own: if there is one that neither these threads nor their clients need, or if it
    /// insists. Others that have one count, so to ask is to take it or to give it back.
    pub fn has_cpu(&mut self, insists: bool) -> bool {
        let IoThreads { apart, room, .. } = &*self.threads;
        let room = room.load(Ordering::Relaxed);
        let change = |change: fn(usize, usize) -> Option<usize>| {
            apart.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |apart| change(apart, room)).is_ok()
        };
        self.has_cpu = match self.has_cpu {
            true => insists || !change(|apart, room| (apart > room).then(|| apart - 1)),
            false if insists => change(|apart, _| Some(apart + 1)),
            false => change(|apart, room| (apart < room).then_some(apart + 1)),
        };
        self.has_cpu
    }

    /// The thread whose idle time it shares with the fewest; of these the first that has any, as newcomers want it too.
    /// A thread without connections has none to lend: it would be one more that wants a CPU.
    pub fn idle_thread(&self) -> Option<IdleThread> {
        let IoThreads { threads, new_connections, .. } = &*self.threads;
        let first = new_connections.load(Ordering::Relaxed);
        let lends = |at: &usize| threads[*at].connections.load(Ordering::Relaxed) > 0;
        let candidates = (0..threads.len()).map(|number| (first + number) % threads.len()).filter(lends);
        let at = candidates.min_by_key(|&at| threads[at].background_runs.load(Ordering::Relaxed))?;
        threads[at].background_runs.fetch_add(1, Ordering::Relaxed);
        Some(IdleThread { threads: self.threads.clone(), at })
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        if self.has_cpu {
            self.threads.apart.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// A thread that lends its idle time to a run in the background.
pub struct IdleThread {
    threads: Arc<IoThreads>,
    at: usize,
}

impl IdleThread {
    fn thread(&self) -> &IoThread {
        &self.threads.threads[self.at]
    }

    /// Its runtime.
    pub fn runtime(&self) -> &Handle {
        &self.thread().runtime
    }

    /// Whether it still has any.
    pub fn has_connections(&self) -> bool {
        self.thread().connections.load(Ordering::Relaxed) > 0
    }

    /// Waits on this thread until it looks for requests and finds none: between those of a burst there is no gap.
    pub async fn gap(&self) -> Gap<'_> {
        let thread = self.thread();
        let mut looked = thread.looked.lock().await;
        let since = Instant::now();
        loop {
            tokio::task::yield_now().await;
            let now = Instant::now();
            let answered = thread.answered.load(Ordering::Relaxed);
            if std::mem::replace(&mut looked.answered, answered) != answered {
                looked.at = now;
                if now - since < GAPLESS {
                    continue;
                }
            }
            let due = ((now - since) / DUE).min(LONGEST);
            let length = due.max((now - looked.at) / QUIET).min(LONGEST);
            return Gap { thread, due, length, _only: looked };
        }
    }
}

impl Drop for IdleThread {
    fn drop(&mut self) {
        self.thread().background_runs.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A moment in which an I/O thread does not look for requests.
pub struct Gap<'a> {
    thread: &'a IoThread,
    due: Duration,
    length: Duration,
    _only: MutexGuard<'a, Looked>,
}

impl Gap<'_> {
    /// How long it should last.
    pub fn length(&self) -> Duration {
        self.length
    }

    /// It lasted so long.
    pub fn end(self, time: Duration) {
        let idle_used = time.saturating_sub(self.due).as_nanos() as u64;
        self.thread.idle_used_ns.fetch_add(idle_used, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::super::ThreadSlot;
    use super::*;

    #[test]
    fn runs_in_the_background_have_the_cpus_to_spare() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let threads = IoThreads::new(Vec::new(), runtime.handle().clone());
        threads.room.store(1, Ordering::Relaxed);
        let (mut one, mut other) = (threads.background(), threads.background());
        assert!(one.has_cpu(false) && !other.has_cpu(false));
        drop(one);
        assert!(other.has_cpu(false));
        threads.crowd();
        assert!(!other.has_cpu(false), "there is none any more");
        assert!(other.has_cpu(true), "its patience is over");
        assert_eq!(threads.apart.load(Ordering::Relaxed), 1);
        drop(other);
        assert_eq!(threads.apart.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn threads_with_connections_lend_their_time() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let threads = IoThreads::new(vec![runtime.handle().clone(); 3], runtime.handle().clone());
        let run = threads.background();
        assert!(run.idle_thread().is_none(), "nobody is there to be held up");
        let _places = [ThreadSlot::on(&threads, 1), ThreadSlot::on(&threads, 2)];
        threads.new_connections.store(2, Ordering::Relaxed);
        let idle_threads: Vec<IdleThread> = std::iter::from_fn(|| run.idle_thread()).take(3).collect();
        assert_eq!(idle_threads.iter().map(|idle_thread| idle_thread.at).collect::<Vec<_>>(), [2, 1, 2]);
        drop(idle_threads);
        assert_eq!(run.idle_thread().unwrap().at, 2, "its guests are gone");
    }

    #[test]
    fn there_is_no_gap_in_a_burst_but_what_is_due() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let threads = IoThreads::new(vec![runtime.handle().clone()], runtime.handle().clone());
        let slot = threads.slot();
        let idle_thread = threads.background().idle_thread().unwrap();
        runtime.block_on(async {
            let burst = tokio::spawn(async move {
                loop {
                    assert!(slot.better(false).is_none(), "nothing is to move");
                    tokio::task::yield_now().await;
                }
            });
            idle_thread.gap().await.end(Duration::ZERO);
            let began = Instant::now();
            let gap = idle_thread.gap().await;
            assert!(began.elapsed() >= GAPLESS, "requests are answered all the time");
            assert!(gap.due >= GAPLESS / DUE && gap.length >= gap.due && gap.length <= LONGEST);
            let idle_used = || threads.threads[0].idle_used_ns.load(Ordering::Relaxed);
            let (before, due) = (idle_used(), gap.due);
            gap.end(due + Duration::from_nanos(7));
            assert_eq!(idle_used() - before, 7, "what is due is not idle time");
            burst.abort();
            assert!(burst.await.unwrap_err().is_cancelled());
        });
    }
}
