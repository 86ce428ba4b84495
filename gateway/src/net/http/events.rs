//! `/v1/events`: what happens to scripts, as server-sent events.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::time::Duration;

use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::IntoResponse;
use bytes::Bytes;
use futures_util::stream::{self, Stream};
use serde_json::json;
use tokio::time::timeout;

use super::extract::Ask;
use super::problem::Problem;
use crate::telemetry::script_events::{Batch, Event, Introduction};

/// A sign of life for proxies, when nothing happens.
const SIGN_OF_LIFE: Duration = Duration::from_secs(15);

/// Sends events of script runs until the client disconnects or the server shuts down.
pub async fn listen(ask: Ask) -> Result<impl IntoResponse, Problem> {
    ask.work.check(&[b"SCRIPT", b"RUNNING"])?;
    let headers = [(CONTENT_TYPE, "text/event-stream"), (CACHE_CONTROL, "no-cache")];
    Ok((headers, Body::from_stream(messages(&ask))))
}

fn messages(ask: &Ask) -> impl Stream<Item = Result<Bytes, Infallible>> + use<> {
    // Listens from now on, not from when the answer is first read.
    let listener = ask.server().telemetry.script_events.listen();
    let hello = Bytes::from_static(b"event: listening\ndata: {}\n\n");
    stream::unfold(
        (Some(hello), listener, ask.state.ready.clone()),
        |(hello, mut listener, mut ready)| async {
            if let Some(hello) = hello {
                return Some((Ok(hello), (None, listener, ready)));
            }
            let text = tokio::select! {
                biased;
                _ = ready.wait_for(|ready| !ready) => return None,
                next = timeout(SIGN_OF_LIFE, listener.next()) => match next {
                    Ok(batch) => text(&batch).into(),
                    Err(_) => Bytes::from_static(b":\n\n"),
                },
            };
            Some((Ok(text), (None, listener, ready)))
        },
    )
}

fn text(Batch { dropped, events }: &Batch) -> String {
    let mut text = String::new();
    if *dropped > 0 {
        write!(text, "event: dropped\ndata: {{\"count\":{dropped}}}\n\n").expect("memory takes everything");
    }
    events.iter().for_each(|event| text.push_str(event.text(shown)));
    text
}

fn shown(event: &Event) -> String {
    let Event { run, who: Introduction { name, is_function, mode, client }, end, .. } = event;
    let what = if *is_function { "function" } else { "sha" };
    let mut data = json!({ "run": run, what: name, "mode": mode, "client": client });
    let kind = match end {
        None => "began",
        Some(end) => {
            data["outcome"] = end.outcome.into();
            data["fuel"] = end.fuel.into();
            data["microseconds"] = end.micros.into();
            "ended"
        }
    };
    format!("event: {kind}\ndata: {data}\n\n")
}
