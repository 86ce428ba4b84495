//! Its end: what was changed is told to the nodes, and one of them decides.

use std::collections::HashMap;

use proto::store::v1 as wire;
use store_engine::CommandError;
use store_engine::effect::Effects;
use store_engine::notice::Event;
use tokio::time::{Instant, sleep};
use wire::refusal::Code;
use wire::request::Body as Ask;
use wire::response::Body as Answer;
use wire::step::Finish;

use super::{OUTCOME_PATIENCE, OUTCOME_PAUSE, Share, Trouble, Work};
use crate::client::cluster::{lost_error, unexpected};
use crate::client::link::Lost;
use crate::topology::NodeId;

impl Work {
    /// Keeps all changes and lets the keys go. An error says whether nothing was done or nobody knows. Whoever does not
    /// wait for the end does not prevent it.
    pub async fn commit(self) -> Result<(), CommandError> {
        let lost = |_| Err(CommandError::new("UNKNOWN whether this was done: the commit has failed"));
        tokio::spawn(self.finish()).await.unwrap_or_else(lost)
    }

    pub(super) async fn finish(mut self) -> Result<(), CommandError> {
        if let Some((mut whole, _)) = self.before.take() {
            whole.append(std::mem::take(&mut self.undo));
            self.undo = whole;
        }
        let mut changes = self.changes(|_, _| true);
        let (number, now_ms, client) = (self.number, self.now_ms, self.client);
        let mut events: HashMap<NodeId, Vec<wire::Event>> = HashMap::new();
        for Event { class, name, db, key } in std::mem::take(&mut self.events) {
            let node = self.cluster.node_of(&key);
            let (name, db, key) = (name.into_owned(), db as u32, key.into_vec().into());
            events.entry(node).or_default().push(wire::Event { class, name, db, key });
        }
        let mut events = |node: NodeId| events.remove(&node).unwrap_or_default();
        let step = |changes: Effects, events: Vec<wire::Event>, finish: Finish, others: Vec<String>| {
            Ask::Step(wire::Step {
                events,
                txn: number,
                now_ms,
                client,
                changes: changes.as_bytes().to_vec().into(),
                finish: finish.into(),
                others,
                ..wire::Step::default()
            })
        };
        let shares = std::mem::take(&mut self.shares);
        self.ended = true;
        let is_spread = shares.len() > 1;
        let (writers, readers): (Vec<Share>, Vec<Share>) =
            shares.into_iter().partition(|share| share.wrote || changes.contains_key(&share.node));
        // What was read on several nodes was there at one time only if it is still locked now that all was read.
        let confirmed: Vec<_> = readers
            .iter()
            .filter(|_| is_spread)
            .map(|share| {
                share
                    .link
                    .ask_on(share.stream, step(Effects::default(), Vec::new(), Finish::Open, Vec::new()))
            })
            .collect();
        let mut writers = writers.into_iter();
        let decider = writers.next();
        let others: Vec<Share> = writers.collect();
        let names: Vec<String> = others.iter().map(|share| share.link.address().to_owned()).collect();

        let decides = decider.iter().map(|share| share.link.address().to_owned());
        let decides: Vec<String> = decides.collect();
        let prepared: Vec<_> = others
            .iter()
            .map(|share| {
                let changes = changes.remove(&share.node).unwrap_or_default();
                let step = step(changes, events(share.node), Finish::Prepare, decides.clone());
                share.link.ask_on(share.stream, step)
            })
            .collect();
        let mut refused = None;
        for answer in confirmed.into_iter().chain(prepared) {
            match self.stepped(answer.answer().await, false) {
                Ok(Some(_)) => {}
                Ok(None) => refused = Some(Trouble::Lost(unexpected())),
                Err(trouble) => refused = Some(trouble),
            }
        }
        for share in &readers {
            share.link.tell(step(Effects::default(), Vec::new(), Finish::Abort, Vec::new()));
        }
        if let Some(trouble) = refused {
            for share in others.iter().chain(&decider) {
                share.link.tell(step(Effects::default(), Vec::new(), Finish::Abort, Vec::new()));
            }
            return Err(match trouble {
                Trouble::Lost(error) => error,
                _ => unexpected(),
            });
        }
        let Some(decider) = decider else { return Ok(()) };

        crate::journal::fail_point::pass("work:prepared");
        let own = changes.remove(&decider.node).unwrap_or_default();
        let commit =
            decider.link.ask_on(decider.stream, step(own, events(decider.node), Finish::Commit, names));
        let answer = commit.answer().await;
        let outcome = self.outcome(&decider, answer, !others.is_empty()).await;
        for share in others {
            match &outcome {
                Ok(()) => {
                    let committed =
                        share.link.ask(step(Effects::default(), Vec::new(), Finish::Commit, Vec::new()));
                    let (decider, node) = (decider.link.clone(), share.link.address().to_owned());
                    tokio::spawn(async move {
                        match committed.answer().await {
                            Ok(Answer::Stepped(_)) => {
                                crate::journal::fail_point::pass("work:followed");
                                decider.tell(Ask::Forget(wire::Forget { txn: number, node }));
                            }
                            // It asks the decider.
                            _ => share.link.tell(Ask::Resolve(wire::Resolve { txn: number })),
                        }
                    });
                }
                // Whoever has prepared asks the decider, for as long as it takes.
                Err(_) => share.link.tell(Ask::Resolve(wire::Resolve { txn: number })),
            }
        }
        outcome
    }

    /// What became of a commit.
    pub(super) async fn outcome(
        &self,
        decider: &Share,
        answer: Result<Answer, Lost>,
        is_recorded: bool,
    ) -> Result<(), CommandError> {
        let lost = match answer {
            Ok(Answer::Stepped(_)) => return Ok(()),
            Ok(Answer::Refusal(refusal)) => {
                let code = refusal.code();
                let error = self.cluster.refused(refusal).unwrap_or_else(unexpected);
                return Err(match code {
                    // It may be done, but not on disk.
                    Code::Unavailable => {
                        CommandError::owned(format!("UNKNOWN whether this is kept: {}", error.text()))
                    }
                    _ => error,
                });
            }
            Ok(_) => return Err(unexpected()),
            Err(lost) => lost,
        };
        if !lost.maybe_done {
            return Err(lost_error(&lost, true));
        }
        let until = Instant::now() + OUTCOME_PATIENCE;
        while Instant::now() < until {
            sleep(OUTCOME_PAUSE).await;
            if let Ok(Answer::Decision(decision)) =
                decider.link.ask(Ask::Outcome(wire::Outcome { txn: self.number })).answer().await
            {
                if decision.committed {
                    return Ok(());
                }
                // A node that was started again remembers only what was recorded.
                if is_recorded || decider.link.boot() == decider.boot {
                    let reason = lost.reason.clone();
                    return Err(lost_error(&Lost { maybe_done: false, reason }, true));
                }
                break;
            }
        }
        Err(lost_error(&lost, true))
    }
}
