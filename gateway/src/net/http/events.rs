//! `/v1/events`: what happens to scripts, as server-sent events.

use std::convert::Infallible;
use std::time::Duration;

use axum::response::IntoResponse;
use axum::response::sse::{Event, KeepAlive, Sse};
use futures_util::stream::{self, Stream};
use serde_json::json;

use super::extract::Ask;
use super::problem::Problem;
use crate::telemetry::script_events::{Event as RunEvent, Introduction};

/// A sign of life for proxies, when nothing happens.
const SIGN_OF_LIFE: Duration = Duration::from_secs(15);

/// Sends events of script runs until the client disconnects or the server shuts down.
pub async fn listen(ask: Ask) -> Result<impl IntoResponse, Problem> {
    ask.work.check(&[b"SCRIPT", b"RUNNING"])?;
    Ok(Sse::new(messages(&ask)).keep_alive(KeepAlive::new().interval(SIGN_OF_LIFE)))
}

fn messages(ask: &Ask) -> impl Stream<Item = Result<Event, Infallible>> + use<> {
    // Listens from now on, not from when the answer is first read.
    let listener = ask.server().telemetry.script_events.listen();
    let hello = Event::default().event("listening").data("{}");
    stream::unfold(
        (Some(hello), listener, ask.state.ready.clone()),
        |(hello, mut listener, mut ready)| async {
            if let Some(hello) = hello {
                return Some((Ok(hello), (None, listener, ready)));
            }
            let event = tokio::select! {
                biased;
                _ = ready.wait_for(|ready| !ready) => return None,
                next = listener.next() => match next {
                    Ok(event) => shown(&event),
                    Err(count) => Event::default().event("dropped").data(json!({ "count": count }).to_string()),
                },
            };
            Some((Ok(event), (None, listener, ready)))
        },
    )
}

fn shown(event: &RunEvent) -> Event {
    let RunEvent { run, who: Introduction { name, is_function, mode, client }, end } = event;
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
    Event::default().event(kind).data(data.to_string())
}
