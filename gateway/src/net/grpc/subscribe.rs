//! Channels: messages as they are published.

use std::pin::Pin;

use bytes::Bytes;
use futures_util::stream::{self, Stream};
use proto::gateway::v1::subscribe_response::Event;
use proto::gateway::v1::{ChannelMessage, Listening, SubscribeRequest, SubscribeResponse};
use resp::{Progress, Reader, ReplyLimits, Value};
use tonic::Status;

use super::call::Bounds;
use super::status;
use crate::commands::pubsub::leave;
use crate::net::acceptor::Ready;
use crate::net::request::Work;

/// What is heard, as it comes.
pub type Messages = Pin<Box<dyn Stream<Item = Result<SubscribeResponse, Status>> + Send>>;

/// Subscribes, and sends messages until the client disconnects or the server shuts down.
pub async fn listen(
    mut work: Work,
    bounds: Bounds,
    ready: Ready,
    wanted: SubscribeRequest,
) -> Result<Messages, Status> {
    let SubscribeRequest { channels, patterns, shard_channels } = wanted;
    if channels.is_empty() && patterns.is_empty() && shard_channels.is_empty() {
        return Err(status::of_request("at least one of channels, patterns and shard_channels must be set"));
    }
    work.session.hears = true;
    work.session.client.pushes.set_resp3(true);
    let mut subscriber = Subscriber { work };
    for (word, names) in
        [(&b"SUBSCRIBE"[..], channels), (b"PSUBSCRIBE", patterns), (b"SSUBSCRIBE", shard_channels)]
    {
        if names.is_empty() {
            continue;
        }
        let argv: Vec<&[u8]> = [word].into_iter().chain(names.iter().map(|name| &**name)).collect();
        let confirmed = bounds.hold(async { Ok(subscriber.work.run(&argv).await?) }).await?;
        // What follows are more confirmations.
        if let Some((b'-', text)) = confirmed.split_first() {
            return Err(status::of_reply(text.trim_ascii_end(), Default::default()));
        }
    }
    let hello = SubscribeResponse { event: Some(Event::Listening(Listening {})) };
    let begun = (vec![hello].into_iter(), subscriber, bounds, ready);
    Ok(Box::pin(stream::unfold(Some(begun), |state| async {
        let (mut heard, subscriber, bounds, mut ready) = state?;
        loop {
            if let Some(message) = heard.next() {
                return Some((Ok(message), Some((heard, subscriber, bounds, ready))));
            }
            let next = async {
                tokio::select! {
                    biased;
                    _ = ready.wait_for(|ready| !ready) => Err(status::ending()),
                    () = subscriber.work.session.client.pushes.arrived() => subscriber.take(),
                }
            };
            match bounds.hold(next).await {
                Ok(messages) => heard = messages.into_iter(),
                Err(status) => return Some((Err(status), None)),
            }
        }
    })))
}

/// A session with subscriptions, which end with it.
struct Subscriber {
    work: Work,
}

impl Subscriber {
    /// Takes the first messages that are there.
    fn take(&self) -> Result<Vec<SubscribeResponse>, Status> {
        let pushes = &self.work.session.client.pushes;
        let (chunks, _) = pushes.first(1);
        let mut heard = Vec::new();
        let mut rest = chunks.first().map(|chunk| &**chunk).unwrap_or_default();
        let taken = rest.len();
        let unreadable = || Status::internal("ERR internal error: malformed message");
        while !rest.is_empty() {
            let read = Reader::new(ReplyLimits::default()).read(rest).map_err(|_| unreadable())?;
            let Progress::Done { value, consumed } = read else { return Err(unreadable()) };
            heard.extend(shown(value));
            rest = &rest[consumed..];
        }
        pushes.written(chunks, taken, &self.work.server.config.client_output_buffer_limit.pubsub);
        self.work.session.client.held.report();
        Ok(heard)
    }
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        leave(&self.work.server, &mut self.work.session);
    }
}

/// A message; other news, such as that a subscription has ended, are none.
fn shown(news: Value) -> Option<SubscribeResponse> {
    let Value::Push(items) = news else { return None };
    let mut words: Vec<Bytes> = Vec::with_capacity(items.len());
    for item in items {
        words.push(item.text().map(Bytes::copy_from_slice)?);
    }
    let message = match &*words {
        [word, channel, text] if **word == *b"message" || **word == *b"smessage" => {
            let shard = **word == *b"smessage";
            ChannelMessage { channel: channel.clone(), text: text.clone(), pattern: None, shard }
        }
        [word, pattern, channel, text] if **word == *b"pmessage" => {
            let pattern = Some(pattern.clone());
            ChannelMessage { channel: channel.clone(), text: text.clone(), pattern, shard: false }
        }
        _ => return None,
    };
    Some(SubscribeResponse { event: Some(Event::Message(message)) })
}
