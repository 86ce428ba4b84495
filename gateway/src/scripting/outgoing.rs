//! What a transaction publishes: heard if it is kept, and not before it is certain that it is.

use store::{Transaction, TransactionError};
use store_engine::CommandError;
use store_engine::discard::discard;

use crate::server::{Server, gateways};
use crate::session::pubsub::Message;

/// A transaction may publish so many bytes; they are kept until its end.
const MOST_BYTES: usize = 64 << 20;

/// Messages of a transaction, in their order.
#[derive(Default)]
pub(super) struct Outgoing {
    messages: Vec<Message>,
    bytes: usize,
}

impl Outgoing {
    /// Adds a message.
    pub fn push(&mut self, message: Message) -> Result<(), CommandError> {
        let bytes = size_of::<Message>() + message.channel.len() + message.text.len();
        if self.bytes + bytes > MOST_BYTES {
            return Err(CommandError::new(
                "ERR a script or transaction can publish at most 64mb, because its messages are buffered until \
                 it commits",
            ));
        }
        self.bytes += bytes;
        self.messages.push(message);
        Ok(())
    }

    /// Adds those of a part of the transaction.
    pub fn append(&mut self, mut part: Outgoing) {
        self.bytes += part.bytes;
        self.messages.append(&mut part.messages);
    }
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        discard(std::mem::take(&mut self.messages), self.bytes);
    }
}

/// Commits, and publishes. What cannot fail publishes first, while its keys are locked: then the messages of
/// transactions that wait for each other are heard in the order of these.
pub(super) async fn commit(
    server: &Server,
    txn: Transaction,
    outgoing: Outgoing,
) -> Result<(), TransactionError> {
    if let Transaction::Local(_) = txn {
        for Message { shard, channel, text } in &outgoing.messages {
            server.sessions.pubsub.publish(*shard, channel, text);
        }
        return txn.commit().await;
    }
    txn.commit().await?;
    for Message { shard, channel, text } in &outgoing.messages {
        // What is committed stays, whether its messages are delivered or not.
        let _ = gateways::publish(server, *shard, channel, text).await;
    }
    Ok(())
}
