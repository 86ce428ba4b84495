//! How this node, as a participant, has ended transactions: kept until all other participants know it too.
//!
//! A coordinator that is lost with its data takes its decisions along. Then a participant that has followed a decision, or
//! one where an operator has decided, is the only node that the others can ask.

use std::collections::HashSet;
use std::sync::{Arc, Weak};

use proto::store::v1 as wire;
use tokio::time::{Instant, sleep, timeout_at};
use wire::ending::State;
use wire::request::Body as Ask;
use wire::response::Body as Answer;

use super::host::Host;
use super::in_doubt;
use super::pending::{self, ask_after};
use super::records::{self, ENDED, Ending, named, number_of};
use crate::client::link::Link;

/// So many endings are followed at the same time.
const MOST_FOLLOWED: usize = 10_000;

/// How a transaction was ended here, as far as that is known.
pub(super) fn ending(host: &Host, number: u64) -> wire::Ending {
    if host.registry.live.lock().contains_key(&number) {
        return wire::Ending { state: State::Prepared.into(), by_operator: false };
    }
    let ended = match records::chosen(&host.node, number) {
        Some(choice) => Some((choice.committed, true)),
        None => records::ended(&host.node, number)
            .map(|Ending { committed, by_operator, .. }| (committed, by_operator)),
    };
    let (state, by_operator) = match ended {
        Some((true, by_operator)) => (State::Committed, by_operator),
        Some((false, by_operator)) => (State::Aborted, by_operator),
        None => (State::Unknown, false),
    };
    wire::Ending { state: state.into(), by_operator }
}

/// The same for another node, which may rely on it.
pub(super) async fn get(host: Arc<Host>, number: u64) -> Answer {
    let mut ending = ending(&host, number);
    if ending.state() != State::Prepared && pending::flush(&host).await.is_err() {
        ending.set_state(State::Prepared);
    }
    Answer::Ending(ending)
}

/// Ends a prepared transaction as another participant has ended it; whether there is one that has.
pub(super) async fn as_siblings(host: &Arc<Host>, number: u64, siblings: &[Arc<Link>]) -> bool {
    let asks: Vec<_> =
        siblings.iter().map(|link| link.ask(Ask::GetEnding(wire::GetEnding { txn: number }))).collect();
    let until = Instant::now() + ask_after();
    for ask in asks {
        let Ok(Ok(Answer::Ending(ending))) = timeout_at(until, ask.answer()).await else { continue };
        let committed = match ending.state() {
            State::Committed => true,
            State::Aborted => false,
            State::Unknown | State::Prepared => continue,
        };
        let ended = match ending.by_operator {
            true => in_doubt::choose(host, number, committed).await,
            false => pending::decided(host, number, committed).await,
        };
        // The disk may refuse it, which is reported where commands are refused.
        drop(ended);
        return true;
    }
    false
}

/// Drops endings that all other participants know, for as long as there is the node.
pub(super) async fn follow(host: Weak<Host>) {
    let mut before = HashSet::new();
    loop {
        sleep(ask_after()).await;
        let Some(host) = host.upgrade() else { return };
        let mut seen = HashSet::new();
        let mut asked = Vec::new();
        for (name, record) in host.node.records(ENDED) {
            let Some(number) = number_of(&name) else { continue };
            seen.insert(number);
            if !before.contains(&number) || asked.len() == MOST_FOLLOWED {
                continue;
            }
            let ending = records::read_ending(&record);
            let ask = |sibling: &String| {
                let link = host.way_to(sibling.clone());
                let ask = link.ask(Ask::GetEnding(wire::GetEnding { txn: number }));
                (sibling.clone(), link, ask)
            };
            let asks: Vec<_> = ending.siblings.iter().map(ask).collect();
            asked.push((number, ending, asks));
        }
        let until = Instant::now() + ask_after();
        for (number, mut ending, asks) in asked {
            for (sibling, _link, ask) in asks {
                if let Ok(Ok(Answer::Ending(theirs))) = timeout_at(until, ask.answer()).await
                    && theirs.state() != State::Prepared
                {
                    ending.siblings.retain(|other| *other != sibling);
                }
            }
            let name = named(ENDED, number);
            match ending.siblings.is_empty() {
                true => host.node.drop_record(&name),
                false => drop(host.node.put_record(&name, &records::write_ending(&ending))),
            }
        }
        before = seen;
    }
}
