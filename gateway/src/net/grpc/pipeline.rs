//! Batches of commands, one after the other, for as long as the client sends some.
//!
//! Nothing is queued here: the next batch is read when the replies to the one before are taken over by HTTP/2, whose
//! windows bound what waits in both directions. A client that does not read stops being served.

use std::pin::Pin;
use std::time::Instant;
use std::vec;

use futures_util::stream::{self, Stream};
use proto::gateway::v1::{Command, Error, PipelineRequest, PipelineResponse, Refused as RefusedShown, Reply};
use resp::Value;
use tonic::{Status, Streaming};

use super::call::{Bounds, count_message, slices};
use super::{convert, status};
use crate::net::acceptor::Ready;
use crate::net::request::{Failure, Refused, Work, admit, apart, parse};
use crate::net::traced::LONGEST;
use crate::telemetry::spans::Parent;

/// Bytes of replies after which they are sent although the batch goes on: a quarter of what clients accept unless they
/// are configured otherwise, so that one long reply may come on top.
const MESSAGE_BYTES: usize = 1 << 20;

/// The replies, as they come.
pub type ReplyStream = Pin<Box<dyn Stream<Item = Result<PipelineResponse, Status>> + Send>>;

/// Runs what comes in by `requests`. `caller` is the span that the caller's metadata names.
pub fn run(
    work: Work,
    bounds: Bounds,
    requests: Streaming<PipelineRequest>,
    ready: Ready,
    caller: Parent,
) -> ReplyStream {
    let span_ends = work.server.telemetry.spans.are_on().then(|| Instant::now() + LONGEST);
    let line = PipelineStream { work, requests, ready, batch: None, caller, span_ends };
    Box::pin(stream::unfold(Some((line, bounds)), |state| async {
        let (mut line, bounds) = state?;
        match bounds.hold(line.next()).await {
            Ok(None) => None,
            Ok(Some(response)) => Some((Ok(response), Some((line, bounds)))),
            Err(status) => Some((Err(status), None)),
        }
    }))
}

/// One stream.
struct PipelineStream {
    work: Work,
    requests: Streaming<PipelineRequest>,
    ready: Ready,
    batch: Option<Batch>,
    caller: Parent,
    /// When the span of the call ends at the latest, if calls may have one and that has not passed.
    span_ends: Option<Instant>,
}

/// What is left of a batch.
struct Batch {
    id: u64,
    commands: vec::IntoIter<Command>,
}

impl PipelineStream {
    /// The next message, unless the client has said that it sends no more.
    async fn next(&mut self) -> Result<Option<PipelineResponse>, Status> {
        let mut batch = match self.batch.take() {
            Some(batch) => batch,
            None => {
                let request = tokio::select! {
                    biased;
                    request = self.requests.message() => request?,
                    _ = self.ready.wait_for(|ready| !ready) => return Err(status::ending()),
                };
                let Some(request) = request else { return Ok(None) };
                count_message(&self.work, &request);
                let PipelineRequest { id, commands, atomic, db } = request;
                self.outlive_span();
                if let Err(why) = self.work.select(usize::try_from(db).ok()) {
                    return nothing_done(id, why.into()).map(Some);
                }
                if atomic {
                    return self.transaction(id, &commands).await.map(Some);
                }
                Batch { id, commands: commands.into_iter() }
            }
        };
        let id = batch.id;
        let (mut replies, mut bytes) = (Vec::with_capacity(batch.commands.len()), 0);
        while let Some(command) = batch.commands.next() {
            let reply = self.reply(&command, &mut bytes).await?;
            // One that is refused waits for nothing.
            tokio::task::coop::consume_budget().await;
            replies.push(reply);
            if bytes >= MESSAGE_BYTES && !batch.commands.as_slice().is_empty() {
                self.batch = Some(batch);
                break;
            }
        }
        self.work.keep().await?;
        let more = self.batch.is_some();
        Ok(Some(PipelineResponse { id, replies, more, ..PipelineResponse::default() }))
    }

    /// Of a stream that goes on each command is a request, as those of a Redis client are: one that lasts for days
    /// is neither traced as a whole nor not at all.
    fn outlive_span(&mut self) {
        if self.span_ends.is_some_and(|ends| Instant::now() >= ends) {
            self.span_ends = None;
            self.work.session.parent = self.caller.clone();
        }
    }

    async fn reply(&mut self, Command { args }: &Command, bytes: &mut usize) -> Result<Reply, Status> {
        if let Err(failure) = admit(args.first().map(|name| &**name)) {
            let text = text(failure)?;
            *bytes += text.len();
            return Ok(convert::reply(Value::Error(text)));
        }
        let reply = self.work.begin(&slices(args)).await?;
        *bytes += reply.len();
        Ok(apart(reply.len(), move || parse(&reply).map(convert::reply)).await??)
    }

    async fn transaction(&mut self, id: u64, commands: &[Command]) -> Result<PipelineResponse, Status> {
        let admitted =
            |(index, Command { args }): (usize, &Command)| match admit(args.first().map(|name| &**name)) {
                Ok(()) => None,
                Err(failure) => Some((index, failure)),
            };
        if let Some((index, failure)) = commands.iter().enumerate().find_map(admitted) {
            let text = text(failure)?;
            let why = Failure::Reply(text.clone());
            return nothing_done(id, Refused { why, commands: vec![(index, text)] });
        }
        match self.work.transaction(commands.iter().map(|command| slices(&command.args))).await {
            Ok((replies, bytes)) => {
                let shown: Vec<Reply> =
                    apart(bytes, || replies.into_iter().map(convert::reply).collect()).await?;
                Ok(PipelineResponse { id, replies: shown, ..PipelineResponse::default() })
            }
            Err(refused) => nothing_done(id, refused),
        }
    }
}

/// The text of a failure that is no reason to end the stream.
fn text(failure: Failure) -> Result<Vec<u8>, Status> {
    match failure {
        Failure::Reply(text) => Ok(text),
        Failure::Request(text) => Ok(format!("ERR {text}").into_bytes()),
        failure @ Failure::Internal(_) => Err(failure.into()),
    }
}

/// Nothing of a batch was done.
fn nothing_done(id: u64, Refused { why, commands }: Refused) -> Result<PipelineResponse, Status> {
    let error: Option<Error> = Some(convert::error(&text(why)?));
    let shown = |(index, text): (usize, Vec<u8>)| RefusedShown {
        index: u32::try_from(index).unwrap_or(u32::MAX),
        error: Some(convert::error(&text)),
    };
    let refused = commands.into_iter().map(shown).collect();
    Ok(PipelineResponse { id, error, refused, ..PipelineResponse::default() })
}
