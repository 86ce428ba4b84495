//! What happens to scripts, while it happens.

use std::collections::VecDeque;
use std::pin::Pin;

use futures_util::stream::{self, Stream};
use proto::gateway::v1::watch_response::Event as EventShown;
use proto::gateway::v1::{Began, Dropped, Ended, Listening, WatchResponse};
use tonic::Status;

use super::call::Bounds;
use super::status;
use crate::net::acceptor::Ready;
use crate::telemetry::Telemetry;
use crate::telemetry::script_events::{Batch, Event, Introduction};

/// Events, as they come.
pub type Happenings = Pin<Box<dyn Stream<Item = Result<WatchResponse, Status>> + Send>>;

/// Sends events of script runs until the client disconnects or the server shuts down.
pub fn listen(telemetry: &Telemetry, bounds: Bounds, ready: Ready) -> Happenings {
    // Listens from now on, not from when the answer is first read.
    let listener = telemetry.script_events.listen();
    let waiting = VecDeque::from([EventShown::Listening(Listening {})]);
    Box::pin(stream::unfold(Some((waiting, listener, bounds, ready)), |state| async {
        let (mut waiting, mut listener, bounds, mut ready) = state?;
        if waiting.is_empty() {
            let next = async {
                tokio::select! {
                    biased;
                    _ = ready.wait_for(|ready| !ready) => Err(status::ending()),
                    Batch { dropped, events } = listener.next() => {
                        let dropped = (dropped > 0).then_some(EventShown::Dropped(Dropped { count: dropped }));
                        Ok(dropped.into_iter().chain(events.iter().map(|event| shown(event))).collect())
                    }
                }
            };
            match bounds.hold(next).await {
                Ok(batch) => waiting = batch,
                Err(status) => return Some((Err(status), None)),
            }
        }
        let event = waiting.pop_front();
        Some((Ok(WatchResponse { event }), Some((waiting, listener, bounds, ready))))
    }))
}

fn shown(event: &Event) -> EventShown {
    let Event { run, who: Introduction { name, is_function, mode, client }, end, .. } = event;
    let began = Began {
        run: *run,
        what: name.clone(),
        is_function: *is_function,
        mode: (*mode).to_owned(),
        client: *client,
    };
    match end {
        None => EventShown::Began(began),
        Some(end) => EventShown::Ended(Ended {
            run: Some(began),
            outcome: end.outcome.to_owned(),
            fuel: end.fuel,
            microseconds: end.micros,
        }),
    }
}
