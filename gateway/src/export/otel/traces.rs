//! Spans on their way: the SDK's queue, and what becomes of the spans.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_sdk::error::{OTelSdkError, OTelSdkResult};
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, SpanData, SpanExporter, SpanProcessor,
};
use tokio::runtime::Handle;

use super::collector_log::CollectorLog;
use super::messages;
use super::transport::{Signal, Transport};
use crate::telemetry::spans::{Outcomes, Span};

/// Spans that may wait for the collector.
const WAITING: usize = 16 * 1024;
/// Spans of one export. Collectors refuse those beyond 4 MiB, and no span has more than 3 KiB.
const BATCH: usize = 1024;
/// How long a few spans wait for more.
const PATIENCE: Duration = Duration::from_millis(500);

/// Takes spans that have ended. There is a bound; what does not fit is counted and forgotten.
#[derive(Debug)]
pub struct Traces {
    batches: BatchSpanProcessor,
    /// Spans that wait or are on their way.
    waiting: Arc<AtomicUsize>,
    counts: Arc<Outcomes>,
}

impl Traces {
    /// Sends spans of this process, the same ones again for so long. Needs a runtime.
    pub fn new(
        transport: Arc<Transport>,
        retry: Duration,
        resource: Resource,
        counts: Arc<Outcomes>,
    ) -> Traces {
        let exporter = Exporter { transport, retry, resource, runtime: Handle::current() };
        let waiting = Arc::new(AtomicUsize::new(0));
        let exporter = Counted {
            exporter,
            waiting: waiting.clone(),
            counts: counts.clone(),
            exporting: CollectorLog::new("traces"),
        };
        Traces { batches: batches(exporter), waiting, counts }
    }
}

fn batches(exporter: impl SpanExporter + 'static) -> BatchSpanProcessor {
    let config = BatchConfigBuilder::default()
        .with_max_queue_size(WAITING)
        .with_max_export_batch_size(BATCH)
        .with_scheduled_delay(PATIENCE);
    BatchSpanProcessor::builder(exporter).with_batch_config(config.build()).build()
}

impl Traces {
    /// Takes a span that has ended.
    pub fn end(&self, span: Span) {
        // The SDK's queue does not report how many spans it drops, so it gets none that it has no room for.
        if self.waiting.fetch_add(1, Ordering::Relaxed) >= WAITING {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            self.counts.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        self.batches.on_end(span.into_data());
    }

    /// Sends those that wait. After this none is taken.
    pub fn end_all(&self, timeout: Duration) -> OTelSdkResult {
        self.batches.shutdown_with_timeout(timeout)
    }
}

/// Sends spans.
struct Exporter {
    transport: Arc<Transport>,
    retry: Duration,
    resource: Resource,
    runtime: Handle,
}

impl fmt::Debug for Exporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Exporter")
    }
}

impl SpanExporter for Exporter {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let Exporter { transport, retry, resource, runtime } = self;
        // On this thread, which belongs to no runtime and serves no client.
        let message = transport.pack(&messages::traces(resource, batch));
        let (transport, retry) = (transport.clone(), *retry);
        let sending = async move { transport.send(Signal::Traces, message, retry).await };
        let sent = runtime.spawn(sending).await.unwrap_or_else(|error| Err(error.to_string()));
        sent.map_err(OTelSdkError::InternalFailure)
    }
}

/// Counts what an exporter sends, and what it fails to send.
#[derive(Debug)]
struct Counted<E> {
    exporter: E,
    waiting: Arc<AtomicUsize>,
    counts: Arc<Outcomes>,
    exporting: CollectorLog,
}

impl<E: SpanExporter> SpanExporter for Counted<E> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let spans = batch.len();
        let sent = self.exporter.export(batch).await;
        self.waiting.fetch_sub(spans, Ordering::Relaxed);
        let counter = if sent.is_ok() { &self.counts.sent } else { &self.counts.failed };
        counter.fetch_add(spans as u64, Ordering::Relaxed);
        let failure = sent.as_ref().err().map(|error| match error {
            OTelSdkError::InternalFailure(why) => why.clone(),
            other => other.to_string(),
        });
        self.exporting.note(&self.counts.exports_failed[0], failure);
        sent
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
    use std::time::Instant;

    use parking_lot::Mutex;
    use store::spans::{SpanKind, root};

    use super::*;

    /// Exports when the test says so.
    #[derive(Debug)]
    struct Stopped {
        go: Mutex<Receiver<()>>,
        went: SyncSender<usize>,
    }

    impl SpanExporter for Stopped {
        async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
            self.went.send(batch.len()).expect("the test goes on");
            let went = self.go.lock().recv();
            went.map_err(|_| OTelSdkError::AlreadyShutdown)
        }
    }

    #[test]
    fn spans_are_taken_in_batches_and_what_finds_no_room_is_counted() {
        let (waiting, counts) = (Arc::new(AtomicUsize::new(0)), Arc::new(Outcomes::default()));
        let ((goes, go), (went, batches_gone)) = (sync_channel(100), sync_channel(100));
        let exporter = Counted {
            exporter: Stopped { go: Mutex::new(go), went },
            waiting: waiting.clone(),
            counts: counts.clone(),
            exporting: CollectorLog::new("traces"),
        };
        let traces = Traces { batches: batches(exporter), waiting, counts: counts.clone() };
        let now = Instant::now();
        let span = || Span::within(&root(), "GET", SpanKind::Server, now..now);
        (0..WAITING + 7).for_each(|_| traces.end(span()));
        assert_eq!(counts.dropped.load(Ordering::Relaxed), 7);
        let mut gone = 0;
        while gone < WAITING {
            let batch = batches_gone.recv().expect("it is exported");
            assert!(batch <= BATCH);
            gone += batch;
            goes.send(()).expect("it is exported");
        }
        traces.end(span());
        assert_eq!(batches_gone.recv(), Ok(1), "a few are exported, too");
        drop(goes);
        let _ = traces.end_all(Duration::from_secs(10));
        let of = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        assert_eq!((of(&counts.sent), of(&counts.failed)), (WAITING as u64, 1));
        assert_eq!(of(&counts.exports_failed[0]), 1);
    }
}
