//! The span of a request of HTTP or gRPC, of which the commands that are run for it are parts.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use hyper::header::HeaderMap;
use hyper::{Response, StatusCode};
use parking_lot::Mutex;
use tokio::task::AbortHandle;
use tokio::time::sleep;

use super::request::Work;
use crate::session::ClientInfo;
use crate::telemetry::spans::{CLIENT, Open, Parent, SERVER, Sink, Span};

/// How long a span lasts at most, so that it is exported although a client keeps a stream for days.
pub const LONGEST: Duration = Duration::from_secs(60);

/// The attributes of a request, by the conventions of its protocol.
pub trait SpanAttributes: Send + Unpin + 'static {
    /// The answer begins with these,
    fn hear(&mut self, status: StatusCode, headers: &HeaderMap);
    /// and ends with these.
    fn hear_end(&mut self, _trailers: &HeaderMap) {}
    /// What the span is called.
    fn name(&self) -> String;
    /// The span with what is known at its end.
    fn annotate(&self, span: Span) -> Span;
}

/// A request that is being traced. Its span ends with it, also if it is dropped half done.
pub struct Traced<F: SpanAttributes> {
    open: Option<Open>,
    sink: Sink,
    client: Arc<ClientInfo>,
    attributes: F,
}

/// Begins the span of a request, if it is to be traced: unauthenticated clients cause none.
pub fn begin<F: SpanAttributes>(
    work: &mut Work,
    headers: &HeaderMap,
    attributes: impl FnOnce() -> F,
) -> Option<Traced<F>> {
    let spans = &work.server.telemetry.spans;
    if !spans.are_on() {
        return None;
    }
    let caller = Parent::of(headers.get("traceparent").map(|header| header.as_bytes()));
    let open = spans.begin(&caller, None);
    work.session.parent = match (&open, caller) {
        (Some(open), _) => Parent::Request(open.context.clone()),
        (None, Parent::Unknown) => Parent::Untraced,
        (None, caller) => caller,
    };
    let open = Some(open?);
    Some(Traced { open, sink: spans.sink()?, client: work.session.client.clone(), attributes: attributes() })
}

impl<F: SpanAttributes> Traced<F> {
    /// Lets it last until the answer has gone out.
    pub fn around<B: Body>(self, answer: Response<B>) -> Response<Lasting<B, F>> {
        self.at_most(LONGEST, answer)
    }

    fn at_most<B: Body>(mut self, longest: Duration, answer: Response<B>) -> Response<Lasting<B, F>> {
        self.attributes.hear(answer.status(), answer.headers());
        let traced = Arc::new(Mutex::new(Some(self)));
        let ends = traced.clone();
        // Beside the body, which is asked for nothing while a client does not read.
        let timer = tokio::spawn(async move {
            sleep(longest).await;
            ends.lock().take();
        });
        let timer = timer.abort_handle();
        answer.map(|body| Lasting { body, traced, timer })
    }
}

impl<F: SpanAttributes> Drop for Traced<F> {
    fn drop(&mut self) {
        let Some(open) = self.open.take() else { return };
        let span = open.end(self.attributes.name(), Instant::now());
        let span = span.with_address(CLIENT, &self.client.addr).with_address(SERVER, &self.client.laddr);
        self.sink.end(self.attributes.annotate(span));
    }
}

/// The body of an answer with whose end a span ends, too.
pub struct Lasting<B, F: SpanAttributes> {
    body: B,
    traced: Arc<Mutex<Option<Traced<F>>>>,
    timer: AbortHandle,
}

impl<B, F: SpanAttributes> Drop for Lasting<B, F> {
    fn drop(&mut self) {
        self.timer.abort();
        self.traced.lock().take();
    }
}

impl<B: Body<Data = Bytes> + Unpin, F: SpanAttributes> Body for Lasting<B, F> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.body).poll_frame(context);
        if let Poll::Ready(Some(Ok(frame))) = &polled
            && let Some(trailers) = frame.trailers_ref()
            && let Some(traced) = &mut *this.traced.lock()
        {
            traced.attributes.hear_end(trailers);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use http_body_util::{BodyExt, Empty, Full};

    use super::*;
    use crate::acl::{Acl, Commands};
    use crate::config::Config;
    use crate::session::Sessions;
    use crate::telemetry::spans::Spans;

    struct Named(u16);

    impl SpanAttributes for Named {
        fn hear(&mut self, status: StatusCode, _: &HeaderMap) {
            self.0 = status.as_u16();
        }
        fn name(&self) -> String {
            self.0.to_string()
        }
        fn annotate(&self, span: Span) -> Span {
            span
        }
    }

    #[tokio::test]
    async fn a_span_ends_with_the_answer_and_not_later_than_it_may() {
        let config = Arc::new(Config::defaults());
        config.otel_sample_ratio.set(1f64.to_bits());
        let spans = Spans::new(config.clone());
        let (sender, ended) = channel();
        let sink = Sink::new(move |span| sender.send(span).expect("the test goes on"));
        spans.go_to(sink.clone());
        let acl = Acl::new(Commands::new(std::iter::empty()), config.clone());
        let account = acl.default_account().clone();
        let client = Sessions::new(&config).new_client("1.2.3.4:5".into(), "5.6.7.8:9".into(), account);
        let begin = || {
            let open = spans.begin(&Parent::Unknown, None);
            Traced { open, sink: sink.clone(), client: client.clone(), attributes: Named(0) }
        };
        let exported = || ended.try_iter().count();
        drop(begin());
        assert_eq!(exported(), 1, "whoever hangs up is told of");
        let answer = begin().around(Response::new(Full::new(Bytes::from_static(b"text"))));
        assert_eq!((answer.body().size_hint().exact(), exported()), (Some(4), 0));
        assert_eq!(answer.into_body().collect().await.expect("no errors").to_bytes(), "text");
        assert_eq!(exported(), 1);
        let kept = begin().at_most(Duration::ZERO, Response::new(Empty::<Bytes>::new()));
        while Arc::strong_count(&kept.body().traced) > 1 {
            tokio::task::yield_now().await;
        }
        assert_eq!(exported(), 1, "although the body is there");
        drop(kept);
        assert_eq!(exported(), 0, "once");
    }
}
