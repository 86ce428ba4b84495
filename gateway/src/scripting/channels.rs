//! Calls of scripts about channels, for which other gateways have to be asked.

use store_engine::{Args, CommandError, Protocol, Reply};

use crate::admission::Admitted;
use crate::server::{Handler, Row, Server, gateways};
use crate::session::OwnedCall;
use crate::session::pubsub::Message;

/// A call about channels.
pub(super) enum Asking {
    /// What it publishes.
    Publish(Message),
    /// PUBSUB, with the protocol of its reply.
    Channels(OwnedCall, Protocol),
}

/// What a call asks about channels, if it does.
pub(super) fn about_channels(admitted: &Admitted<'_>, protocol: Protocol) -> Option<Asking> {
    let Row::Session(command) = admitted.row else { return None };
    let args = admitted.args();
    match (command.run, command.spec.name) {
        (Handler::Publish { shard }, _) => {
            Some(Asking::Publish(Message { shard, channel: args[1].into(), text: args[2].into() }))
        }
        (_, "pubsub") if admitted.spec().name != "help" => {
            Some(Asking::Channels(args.rest(0).iter().map(|item| Box::from(*item)).collect(), protocol))
        }
        _ => None,
    }
}

/// Answers a call of PUBSUB.
pub(super) async fn reply_channels(server: &Server, call: &OwnedCall, protocol: Protocol, out: &mut Reply) {
    let items: Vec<&[u8]> = call.iter().map(|item| &**item).collect();
    out.protocol = protocol;
    gateways::reply_channels(server, Args::new(&items), out).await;
}

/// Answers a call that publishes.
pub(super) fn answer_count(count: Result<usize, CommandError>, out: &mut Reply) {
    match count {
        Ok(count) => out.count(count),
        Err(error) => out.error(&error),
    }
}
