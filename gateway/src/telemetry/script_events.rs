//! What happens to scripts while it happens, for those who listen. Nobody waits for a listener: each has a queue that
//! loses its oldest events when it is full, and gets their number. A listener is woken some times per second, and not for each
//! event: with many listeners that would take more time than the scripts.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use tokio::sync::broadcast;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};

use crate::telemetry::script_stats::Ended;

/// Events that a listener may be behind.
const QUEUE: usize = 1024;

/// Time between two batches of a listener.
const PAUSE: Duration = Duration::from_millis(100);

/// What is run, how, and for whom.
#[derive(Clone, Debug)]
pub struct Introduction {
    /// The script's digest, or the function's name.
    pub name: String,
    /// Whether it is a function.
    pub is_function: bool,
    /// `atomic`, `async`, `read-only` or `transaction`.
    pub mode: &'static str,
    /// The connection that asked for it.
    pub client: u64,
}

/// Something that happened to a run.
#[derive(Debug)]
pub struct Event {
    /// Number of the run.
    pub run: u64,
    /// What it is.
    pub who: Introduction,
    /// How it ended, unless it has just begun.
    pub end: Option<End>,
    text: OnceLock<String>,
}

impl Event {
    /// The event as text, which `shown` makes once for all listeners.
    pub fn text(&self, shown: impl FnOnce(&Event) -> String) -> &str {
        self.text.get_or_init(|| shown(self))
    }
}

/// The end of a run.
#[derive(Debug)]
pub struct End {
    /// `ok`, `error`, `limit`, `killed`, `gone` if its client did not wait for it, `repeated` if its transaction begins
    /// again.
    pub outcome: &'static str,
    /// Fuel it used.
    pub fuel: u64,
    /// Microseconds from its call to its end, waiting for keys included.
    pub micros: u64,
}

/// Where runs report their beginnings and ends.
pub struct Events {
    sender: broadcast::Sender<Arc<Event>>,
    listeners: AtomicUsize,
    next: AtomicU64,
}

impl Default for Events {
    fn default() -> Events {
        Events {
            sender: broadcast::Sender::new(QUEUE),
            listeners: AtomicUsize::new(0),
            next: AtomicU64::new(1),
        }
    }
}

impl Events {
    /// A listener to everything from now on.
    pub fn listen(self: &Arc<Self>) -> Listener {
        self.listeners.fetch_add(1, Ordering::Relaxed);
        Listener { events: self.clone(), receiver: self.sender.subscribe(), next_at: Instant::now() }
    }

    /// Reports that a run begins, if there is a listener.
    pub fn begin(&self, who: impl FnOnce() -> Introduction) -> Option<RunEvent<'_>> {
        if self.listeners.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let run_event = RunEvent {
            events: self,
            run: self.next.fetch_add(1, Ordering::Relaxed),
            who: who(),
            began: Instant::now(),
            outcome: "gone",
            fuel: 0,
        };
        run_event.emit(None);
        Some(run_event)
    }
}

/// A run whose beginning was reported; its end is reported when this is dropped.
pub struct RunEvent<'a> {
    events: &'a Events,
    run: u64,
    who: Introduction,
    began: Instant,
    outcome: &'static str,
    fuel: u64,
}

impl RunEvent<'_> {
    /// Notes how the run ended.
    pub fn end(&mut self, ended: Ended, fuel: u64) {
        (self.outcome, self.fuel) = (ended.word(), fuel);
    }

    /// Notes that the run begins again, with the transaction that it is a part of.
    pub fn repeat(&mut self) {
        self.outcome = "repeated";
    }

    fn emit(&self, end: Option<End>) {
        // It fails if the last listener has just gone.
        let event = Event { run: self.run, who: self.who.clone(), end, text: OnceLock::new() };
        let _ = self.events.sender.send(Arc::new(event));
    }
}

impl Drop for RunEvent<'_> {
    fn drop(&mut self) {
        let micros = self.began.elapsed().as_micros() as u64;
        self.emit(Some(End { outcome: self.outcome, fuel: self.fuel, micros }));
    }
}

/// Hears events.
pub struct Listener {
    events: Arc<Events>,
    receiver: broadcast::Receiver<Arc<Event>>,
    /// When the next batch may be taken.
    next_at: Instant,
}

/// What a listener has not heard yet.
#[derive(Default)]
pub struct Batch {
    /// How many events were forgotten because this listener was too slow.
    pub dropped: u64,
    /// The events behind them, in order.
    pub events: Vec<Arc<Event>>,
}

impl Listener {
    /// Waits for the next events: all that are there, at most once per [`PAUSE`].
    pub async fn next(&mut self) -> Batch {
        tokio::time::sleep_until(self.next_at.into()).await;
        let mut batch = Batch::default();
        match self.receiver.recv().await {
            Ok(event) => batch.events.push(event),
            Err(RecvError::Lagged(count)) => batch.dropped = count,
            Err(RecvError::Closed) => unreachable!("the sender lives in what this listener holds"),
        }
        self.next_at = Instant::now() + PAUSE;
        while batch.events.len() < QUEUE {
            match self.receiver.try_recv() {
                Ok(event) => batch.events.push(event),
                Err(TryRecvError::Lagged(count)) => batch.dropped += count,
                Err(TryRecvError::Empty | TryRecvError::Closed) => break,
            }
        }
        batch
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.events.listeners.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_slow_listener_is_told_what_it_missed() {
        let events = Arc::new(Events::default());
        assert!(events.begin(|| unreachable!("nobody listens")).is_none());
        let mut listener = events.listen();
        for _ in 0..QUEUE {
            let who = || Introduction { name: "f".into(), is_function: true, mode: "atomic", client: 7 };
            let mut run_event = events.begin(who).expect("somebody listens");
            run_event.end(Ended::Well, 5);
        }
        let Batch { dropped, events: heard } = listener.next().await;
        assert_eq!((dropped, heard.len()), (QUEUE as u64, QUEUE));
        let (event, end) = (&heard[0], &heard[1]);
        assert!(event.end.is_none() && event.who.client == 7);
        assert!(
            end.run == event.run && end.end.as_ref().is_some_and(|end| end.outcome == "ok" && end.fuel == 5)
        );
        drop(listener);
        assert!(events.begin(|| unreachable!("nobody listens any more")).is_none());
    }

    #[tokio::test]
    async fn a_listener_is_not_woken_for_each_event() {
        let events = Arc::new(Events::default());
        let mut listener = events.listen();
        let run = || {
            let who = || Introduction { name: "f".into(), is_function: true, mode: "atomic", client: 7 };
            drop(events.begin(who));
        };
        let began = Instant::now();
        run();
        assert_eq!(listener.next().await.events.len(), 2, "the first at once");
        run();
        run();
        assert_eq!(listener.next().await.events.len(), 4);
        assert!(began.elapsed() >= PAUSE);
    }
}
