//! SUBSCRIBE, PUBLISH and what else is about channels.

use store_engine::reply;
use store_engine::spec::{Access, flags};
use store_engine::{Args, Arity, Command, CommandError, Group, KeyPart, Protocol, Reply, Routing};

use super::client::tracking;
use crate::server::{AsyncHandler, Handler, Server, SessionCommand, gateways};
use crate::session::pubsub::{SubscriptionKind, Subscriptions};
use crate::session::{DataAccess, Replies, Session, Sessions, subscription_bytes};

/// The rows of this family.
pub static COMMANDS: &[SessionCommand] = &[
    SessionCommand {
        spec: Command {
            name: "subscribe",
            arity: Arity::AtLeast(2),
            summary: "Listens for messages published to channels.",
            complexity: "O(N) where N is the number of channels to subscribe to.",
            syntax: "channel...",
            ..LISTENING
        },
        run: Handler::Inline(|server, session, args, out| {
            subscribe(&server.sessions, session, args, SubscriptionKind::Channel, "subscribe", out)
        }),
    },
    SessionCommand {
        spec: Command {
            name: "psubscribe",
            arity: Arity::AtLeast(2),
            summary: "Listens for messages published to channels that match one or more patterns.",
            complexity: "O(N) where N is the number of patterns to subscribe to.",
            syntax: "pattern(pattern:pattern)...",
            ..LISTENING
        },
        run: Handler::Inline(|server, session, args, out| {
            subscribe(&server.sessions, session, args, SubscriptionKind::Pattern, "psubscribe", out)
        }),
    },
    SessionCommand {
        spec: Command {
            name: "ssubscribe",
            since: "7.0.0",
            arity: Arity::AtLeast(2),
            summary: "Listens for messages published to shard channels.",
            complexity: "O(N) where N is the number of shard channels to subscribe to.",
            syntax: "shardchannel...",
            ..LISTENING
        },
        run: Handler::Inline(|server, session, args, out| {
            subscribe(&server.sessions, session, args, SubscriptionKind::Shard, "ssubscribe", out)
        }),
    },
    SessionCommand {
        spec: Command {
            name: "unsubscribe",
            arity: Arity::AtLeast(1),
            summary: "Stops listening to messages posted to channels.",
            complexity: "O(N) where N is the number of channels to unsubscribe.",
            syntax: "channel...?",
            ..LISTENING
        },
        run: UNSUBSCRIBE[0],
    },
    SessionCommand {
        spec: Command {
            name: "punsubscribe",
            arity: Arity::AtLeast(1),
            summary: "Stops listening to messages published to channels that match one or more patterns.",
            complexity: "O(N) where N is the number of patterns to unsubscribe.",
            syntax: "pattern:pattern...?",
            ..LISTENING
        },
        run: UNSUBSCRIBE[1],
    },
    SessionCommand {
        spec: Command {
            name: "sunsubscribe",
            since: "7.0.0",
            arity: Arity::AtLeast(1),
            summary: "Stops listening to messages posted to shard channels.",
            complexity: "O(N) where N is the number of shard channels to unsubscribe.",
            syntax: "shardchannel...?",
            ..LISTENING
        },
        run: UNSUBSCRIBE[2],
    },
    SessionCommand {
        spec: Command {
            name: "publish",
            summary: "Posts a message to a channel.",
            syntax: "channel message",
            ..PUBLISHING
        },
        run: Handler::Publish { shard: false },
    },
    SessionCommand {
        spec: Command {
            name: "spublish",
            since: "7.0.0",
            summary: "Posts a message to a shard channel.",
            complexity: "O(N) where N is the number of clients subscribed to the receiving shard channel.",
            syntax: "shardchannel message",
            ..PUBLISHING
        },
        run: Handler::Publish { shard: true },
    },
    SessionCommand {
        spec: Command {
            name: "pubsub",
            since: "2.8.0",
            arity: Arity::AtLeast(2),
            flags: flags::LOADING,
            summary: "A container for Pub/Sub commands.",
            complexity: "Depends on subcommand.",
            syntax: "",
            subcommands: PUBSUB,
            help: HELP,
            ..BASE
        },
        run: Handler::Async(AsyncHandler {
            data_access: DataAccess::Nothing,
            ends_with_client: true,
            ..AsyncHandler::new(|server, _, args, out| Box::pin(pubsub(server, args, out)))
        }),
    },
];

const BASE: Command = Command {
    since: "2.0.0",
    group: Group::PubSub,
    keys: KeyPart::NONE,
    access: Access::Read,
    flags: flags::PUBSUB | flags::LOADING,
    routing: Routing::Anywhere,
    ..Command::BASE
};

const LISTENING: Command = Command { flags: BASE.flags | flags::NO_SCRIPT, ..BASE };

const PUBLISHING: Command = Command {
    arity: Arity::Exactly(3),
    flags: BASE.flags | flags::FAST | flags::PUBLISHES,
    complexity: "O(N+M) where N is the number of clients subscribed to the receiving channel and M is the total \
                 number of subscribed patterns (by any client).",
    ..BASE
};

const UNSUBSCRIBE: [Handler; 3] = [
    Handler::Inline(|server, session, args, out| {
        unsubscribe(&server.sessions, session, args, SubscriptionKind::Channel, "unsubscribe", out)
    }),
    Handler::Inline(|server, session, args, out| {
        unsubscribe(&server.sessions, session, args, SubscriptionKind::Pattern, "punsubscribe", out)
    }),
    Handler::Inline(|server, session, args, out| {
        unsubscribe(&server.sessions, session, args, SubscriptionKind::Shard, "sunsubscribe", out)
    }),
];

/// What PUBSUB HELP shows.
const HELP: &str = "\
CHANNELS [<pattern>]
    Return the currently active channels matching a <pattern> (default: '*').
NUMPAT
    Return number of subscriptions to patterns.
NUMSUB [<channel> ...]
    Return the number of subscribers for the specified channels, excluding
    pattern subscriptions(default: no channels).
SHARDCHANNELS [<pattern>]
    Return the currently active shard level channels matching a <pattern> (default: '*').
SHARDNUMSUB [<shardchannel> ...]
    Return the number of subscribers for the specified shard level channel(s)";

static PUBSUB: &[Command] = &[
    Command {
        name: "channels",
        since: "2.8.0",
        arity: Arity::AtLeast(2),
        summary: "Returns the active channels.",
        complexity: "O(N) where N is the number of active channels.",
        syntax: "pattern:pattern?",
        ..BASE
    },
    Command {
        name: "help",
        since: "6.2.0",
        arity: Arity::Exactly(2),
        flags: flags::LOADING,
        summary: "Returns helpful text about the different subcommands.",
        syntax: "",
        ..BASE
    },
    Command {
        name: "numpat",
        since: "2.8.0",
        arity: Arity::Exactly(2),
        summary: "Returns a count of unique pattern subscriptions.",
        syntax: "",
        ..BASE
    },
    Command {
        name: "numsub",
        since: "2.8.0",
        arity: Arity::AtLeast(2),
        summary: "Returns a count of subscribers to channels.",
        complexity: "O(N) for the NUMSUB subcommand, where N is the number of requested channels",
        syntax: "channel...?",
        ..BASE
    },
    Command {
        name: "shardchannels",
        since: "7.0.0",
        arity: Arity::AtLeast(2),
        summary: "Returns the active shard channels.",
        complexity: "O(N) where N is the number of active shard channels.",
        syntax: "pattern:pattern?",
        ..BASE
    },
    Command {
        name: "shardnumsub",
        since: "7.0.0",
        arity: Arity::AtLeast(2),
        summary: "Returns the count of subscribers of shard channels.",
        complexity: "O(N) for the SHARDNUMSUB subcommand, where N is the number of requested shard channels",
        syntax: "shardchannel...?",
        ..BASE
    },
];

fn subscribe(
    sessions: &Sessions,
    session: &mut Session,
    args: Args<'_>,
    kind: SubscriptionKind,
    word: &'static str,
    out: &mut Reply,
) -> Result<(), CommandError> {
    // Within EXEC Redis lets the older ones through, although their replies are more than one.
    if !session.hears || (kind == SubscriptionKind::Shard && session.in_exec) {
        let word = word.to_uppercase();
        return Err(CommandError::owned(format!("ERR {word} isn't allowed for a DENY BLOCKING client")));
    }
    // Those that it has already are counted, too: that is simpler, and they are few.
    let bytes = args.rest(1).iter().map(|name| subscription_bytes(name)).sum();
    session.client.held.refuse_more(bytes)?;
    let own = session.subscriptions.get_or_insert_default();
    for name in args.rest(1) {
        sessions.pubsub.subscribe(&session.client, own, kind, name);
        confirm(word, Some(name), own.count_beside(kind), out);
    }
    note(session);
    Ok(())
}

fn unsubscribe(
    sessions: &Sessions,
    session: &mut Session,
    args: Args<'_>,
    kind: SubscriptionKind,
    word: &'static str,
    out: &mut Reply,
) -> Result<(), CommandError> {
    let mut none = Subscriptions::default();
    let own = session.subscriptions.as_deref_mut().unwrap_or(&mut none);
    let mut names: Vec<Box<[u8]>> = args.rest(1).iter().map(|name| (*name).into()).collect();
    let of_all = names.is_empty();
    if of_all {
        names.extend(own.names(kind).map(Box::from));
    }
    let mut left = Vec::with_capacity(names.len());
    for name in &names {
        sessions.pubsub.unsubscribe(&session.client, own, kind, name);
        left.push(own.count_beside(kind));
    }
    // What came until then is heard before the confirmation, and nothing after it.
    let count = own.count_beside(kind);
    session.take_pushes(out);
    for (name, left) in names.iter().zip(left) {
        confirm(word, Some(name), left, out);
    }
    if names.is_empty() {
        confirm(word, None, count, out);
    }
    note(session);
    Ok(())
}

fn confirm(word: &str, name: Option<&[u8]>, count: usize, out: &mut Reply) {
    out.push(3);
    out.bulk(word.as_bytes());
    out.optional(name);
    out.count(count);
}

/// Makes known what the session is subscribed to.
fn note(session: &mut Session) {
    let own = session.subscriptions.take_if(|own| own.is_empty());
    debug_assert!(own.is_none_or(|own| own.is_empty()));
    let counts = session.subscriptions.as_ref().map_or([0; 3], |own| own.counts());
    session.client.details.lock().subscriptions = counts;
}

/// Ends all subscriptions of a session, and what MONITOR and CLIENT TRACKING began. What came until then is left in its mailbox.
pub fn leave(server: &Server, session: &mut Session) {
    if std::mem::take(&mut session.monitors) {
        server.sessions.monitors.leave(&session.client);
        session.client.details.lock().monitors = false;
    }
    tracking::leave(server, session);
    if let Some(mut own) = session.subscriptions.take() {
        server.sessions.pubsub.leave(&session.client, &mut own);
        note(session);
    }
}

/// PING on a RESP2 connection that is subscribed to something, which is answered like a message. Whether it is one.
pub fn pong(session: &Session, spec: &Command, args: Args<'_>, out: &mut Reply) -> bool {
    let is_one = spec.name == "ping"
        && args.len() <= 2
        && session.subscriptions.is_some()
        && session.protocol == Protocol::Resp2
        && session.multi.is_none();
    if is_one {
        out.array(2);
        out.bulk(b"pong");
        out.bulk(args.get(1).unwrap_or_default());
    }
    is_one
}

/// Whether this reply confirms subscriptions or their end, which a client also receives that wants no replies.
pub fn confirms(args: Args<'_>, reply: &[u8]) -> bool {
    let name = args.name().to_ascii_lowercase();
    let is_one = matches!(
        &*name,
        b"subscribe" | b"psubscribe" | b"ssubscribe" | b"unsubscribe" | b"punsubscribe" | b"sunsubscribe"
    );
    // Not an error, nor that it was queued.
    is_one && reply.first().is_some_and(|byte| matches!(byte, b'*' | b'>'))
}

/// PUBLISH and SPUBLISH.
pub async fn publish(
    server: &Server,
    session: &mut Session,
    args: Args<'_>,
    shard: bool,
    out: &mut Reply,
) -> Result<(), CommandError> {
    let count = gateways::publish(server, shard, args[1], args[2]).await?;
    // A client that subscribes to the channel receives its own message before the reply.
    if session.replies == Replies::All {
        session.take_pushes(out);
    }
    out.count(count);
    Ok(())
}

/// PUBSUB.
async fn pubsub(server: &Server, args: Args<'_>, out: &mut Reply) -> Result<(), CommandError> {
    match args[1].eq_ignore_ascii_case(b"help") {
        true => reply::help(out, "PUBSUB", HELP),
        false => gateways::reply_channels(server, args, out).await,
    }
    Ok(())
}
