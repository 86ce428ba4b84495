//! What gateways of the same store nodes ask each other.

mod channels;

use std::sync::Arc;

use prost::Message;
use proto::fleet::v1::query::Body;
use proto::fleet::v1::{Answer, CountReceivers, CountSubscribers, Kill, ListNames, Publish, Query};
use store::Store;
use store::client::QueryHandler;
use store_engine::CommandError;

use crate::scripts::Scripting;
use crate::server::Server;
use crate::session::pubsub::SubscriptionKind;
pub use channels::reply_channels;

/// Ends runs here and on all other gateways: those of the functions or those of scripts, and if `sha` is given only
/// those of that script. How many there were. An error: none here, and others could not be asked.
pub async fn kill(server: &Server, functions: bool, sha: Option<&str>) -> Result<usize, CommandError> {
    let kill = Kill { functions, sha: sha.unwrap_or_default().to_owned() };
    let killed = kill_local(&server.scripting, &kill);
    match ask(&server.store, Body::Kill(kill)).await {
        Ok(answers) => Ok(killed + sum(&answers)),
        Err(_) if killed > 0 => Ok(killed),
        Err(error) => Err(error),
    }
}

/// Asks all other gateways.
async fn ask(store: &Store, body: Body) -> Result<Vec<Answer>, CommandError> {
    if !store.is_shared() {
        return Ok(Vec::new());
    }
    let query = Query { body: Some(body) };
    Ok(decoded(store.ask_gateways(query.encode_to_vec().into()).await?))
}

fn decoded(answers: Vec<bytes::Bytes>) -> Vec<Answer> {
    answers.into_iter().filter_map(|answer| Answer::decode(answer).ok()).collect()
}

fn sum(answers: &[Answer]) -> usize {
    answers.iter().map(|answer| answer.count as usize).sum()
}

/// Gives a message to all who listen, to whichever gateway they are connected; how many they are. Others first: an error
/// that says that nothing was done is true.
pub async fn publish(
    server: &Server,
    shard: bool,
    channel: &[u8],
    text: &[u8],
) -> Result<usize, CommandError> {
    let mut count = 0;
    if server.store.is_shared() {
        let publish = Publish { shard, channel: channel.to_vec().into(), text: text.to_vec().into() };
        let query = Query { body: Some(Body::Publish(publish)) };
        let answers = server.store.ask_gateways_once(channel, query.encode_to_vec().into()).await?;
        count = sum(&decoded(answers));
    }
    Ok(count + server.sessions.pubsub.publish(shard, channel, text))
}

/// How many would get a message.
pub async fn receivers(server: &Server, shard: bool, channel: &[u8]) -> Result<usize, CommandError> {
    let request = CountReceivers { shard, channel: channel.to_vec().into() };
    let remote = ask(&server.store, Body::CountReceivers(request)).await?;
    Ok(sum(&remote) + server.sessions.pubsub.receivers(shard, channel))
}

/// The names that have subscribers and match `pattern`, each once.
pub async fn names(
    server: &Server,
    kind: SubscriptionKind,
    pattern: Option<&[u8]>,
) -> Result<Vec<Box<[u8]>>, CommandError> {
    let request = ListNames { kind: number(kind), pattern: pattern.map(|pattern| pattern.to_vec().into()) };
    let remote = ask(&server.store, Body::ListNames(request)).await?;
    let mut names = server.sessions.pubsub.names(kind, pattern);
    names.extend(remote.iter().flat_map(|answer| &answer.names).map(|name| Box::from(&**name)));
    names.sort_unstable();
    names.dedup();
    Ok(names)
}

/// How many are subscribed to each of these names.
pub async fn listeners(
    server: &Server,
    kind: SubscriptionKind,
    names: &[&[u8]],
) -> Result<Vec<usize>, CommandError> {
    let request = names.iter().map(|name| name.to_vec().into()).collect();
    let remote =
        ask(&server.store, Body::CountSubscribers(CountSubscribers { kind: number(kind), names: request }))
            .await?;
    let mut counts: Vec<usize> =
        names.iter().map(|name| server.sessions.pubsub.listeners(kind, name)).collect();
    for answer in remote {
        counts.iter_mut().zip(answer.counts).for_each(|(sum, count)| *sum += count as usize);
    }
    Ok(counts)
}

fn number(kind: SubscriptionKind) -> i32 {
    kind as i32
}

fn kind_of(number: i32) -> Option<SubscriptionKind> {
    SubscriptionKind::ALL.into_iter().find(|kind| *kind as i32 == number)
}

fn kill_local(scripting: &Scripting, kill: &Kill) -> usize {
    scripting
        .runs
        .kill(|who| who.function.is_some() == kill.functions && (kill.sha.is_empty() || who.name == kill.sha))
}

/// Answers the questions of others.
pub fn query_handler(server: &Arc<Server>) -> QueryHandler {
    let server = Arc::downgrade(server);
    Box::new(move |query| {
        let body = Query::decode(query.clone()).ok().and_then(|query| query.body);
        match (server.upgrade(), body) {
            (Some(server), Some(body)) => answer(&server, body).encode_to_vec().into(),
            _ => bytes::Bytes::new(),
        }
    })
}

fn answer(server: &Server, body: Body) -> Answer {
    let pubsub = &server.sessions.pubsub;
    let mut answer = Answer::default();
    match body {
        Body::Kill(kill) => answer.count = kill_local(&server.scripting, &kill) as u64,
        Body::Publish(Publish { shard, channel, text }) => {
            answer.count = pubsub.publish(shard, &channel, &text) as u64;
        }
        Body::CountReceivers(CountReceivers { shard, channel }) => {
            answer.count = pubsub.receivers(shard, &channel) as u64;
        }
        Body::ListNames(ListNames { kind, pattern }) => {
            let names = kind_of(kind).map(|kind| pubsub.names(kind, pattern.as_deref()));
            answer.names = names.into_iter().flatten().map(|name| name.into_vec().into()).collect();
        }
        Body::CountSubscribers(CountSubscribers { kind, names }) => {
            let count = |name: &[u8]| kind_of(kind).map_or(0, |kind| pubsub.listeners(kind, name) as u64);
            answer.counts = names.iter().map(|name| count(name)).collect();
        }
    }
    answer
}
