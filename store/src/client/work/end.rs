//! Its end: what was changed is told to the nodes, and one of them decides.

use std::collections::HashMap;

use proto::store::v1 as wire;
use store_engine::CommandError;
use store_engine::notice::Event;
use tokio::time::{Instant, sleep};
use wire::refusal::Code;
use wire::request::Body as Ask;
use wire::response::Body as Answer;
use wire::step::Finish;

use super::together::unfit;
use super::{OUTCOME_PATIENCE, OUTCOME_PAUSE, Share, Work};
use crate::client::cluster::{lost_error, unexpected};
use crate::client::error::Trouble;
use crate::client::lost::Lost;
use crate::journal::fail_point;
use crate::spans;
use crate::topology::NodeId;

impl Work {
    /// Keeps all changes and lets the keys go. An error says whether nothing was done or nobody knows; or that calls could
    /// not be done that were left to the end. Whoever does not wait for the end does not prevent it.
    pub async fn commit(self) -> Result<(), Trouble> {
        let lost = CommandError::new("UNKNOWN whether this was done: the commit failed");
        tokio::spawn(spans::carried(self.finish())).await.unwrap_or(Err(Trouble::Lost(lost)))
    }

    pub(super) async fn finish(mut self) -> Result<(), Trouble> {
        if let Some((mut whole, _)) = self.before.take() {
            whole.append(std::mem::take(&mut self.undo));
            self.undo = whole;
        }
        let mut changes = self.changes(|_, _| true);
        let mut late = std::mem::take(&mut self.late);
        for (node, bundle) in &late.bundles {
            self.share(*node, bundle.writes);
        }
        let (number, limited) = (self.number, self.step());
        let mut events: HashMap<NodeId, Vec<wire::KeyEvent>> = HashMap::new();
        for Event { class, name, db, key } in std::mem::take(&mut self.events) {
            let node = self.cluster.node_of(&key);
            let (name, db, key) = (name.into_owned(), db as u32, key.into_vec().into());
            events.entry(node).or_default().push(wire::KeyEvent { class, name, db, key });
        }
        let mut events = |node: NodeId| events.remove(&node).unwrap_or_default();
        let step = |finish: Finish| wire::Step { finish: finish.into(), ..limited.clone() };
        let abort = |share: &Share| share.link.tell(Ask::Step(Box::new(step(Finish::Abort))));
        let shares = std::mem::take(&mut self.shares);
        self.ended = true;
        let is_spread = shares.len() > 1;
        let (writers, readers): (Vec<Share>, Vec<Share>) =
            shares.into_iter().partition(|share| share.wrote || changes.contains_key(&share.node));
        let mut writers = writers.into_iter();
        let decider = writers.next();
        let others: Vec<Share> = writers.collect();
        let names: Vec<String> = others.iter().map(|share| share.link.address().to_owned()).collect();
        let decides: Vec<String> = decider.iter().map(|share| share.link.address().to_owned()).collect();

        let mut pending = Vec::new();
        for share in &others {
            let changes = changes.remove(&share.node).unwrap_or_default().as_bytes().to_vec().into();
            let (events, others) = (events(share.node), decides.clone());
            let mut step = wire::Step { changes, events, others, ..step(Finish::Prepare) };
            late.add_to(share.node, &mut step);
            pending.push(share.ask(step));
        }
        // What was read on several nodes was there at one time only if it is still locked now that all was read. And
        // whoever decides has done its calls before.
        let decides_late = decider.iter().filter(|_| !others.is_empty() || !readers.is_empty());
        for share in readers.iter().chain(decides_late) {
            let has_calls = late.bundles.contains_key(&share.node);
            if has_calls || (is_spread && !share.wrote && !changes.contains_key(&share.node)) {
                let mut step = step(Finish::Open);
                late.add_to(share.node, &mut step);
                pending.push(share.ask(step));
            }
        }
        let mut refused = None;
        for answer in pending {
            match self.stepped(answer.answer().await, false) {
                Ok(Some(stepped)) => refused = unfit(&stepped).err().or(refused),
                // Slots have moved: of keys that were not locked before.
                Ok(None) => refused = Some(Trouble::Apart),
                Err(trouble) => refused = Some(trouble),
            }
        }
        if let Some(trouble) = refused {
            readers.iter().chain(&others).chain(&decider).for_each(abort);
            return Err(trouble);
        }
        // Nodes where nothing changed have nothing to keep, but keyspace events of keys that were missed.
        let ends = if self.cluster.notify() == 0 { Finish::Abort } else { Finish::Commit };
        for share in &readers {
            let events = events(share.node);
            share.link.tell(Ask::Step(Box::new(wire::Step { events, ..step(ends) })));
        }
        let Some(decider) = decider else { return Ok(()) };

        fail_point::pass("work:prepared");
        let own = changes.remove(&decider.node).unwrap_or_default().as_bytes().to_vec().into();
        let events = events(decider.node);
        let mut commit = wire::Step { changes: own, events, others: names, ..step(Finish::Commit) };
        late.add_to(decider.node, &mut commit);
        let answer = decider.ask(commit).answer().await;
        let outcome = match answer {
            Ok(Answer::StepResult(stepped)) => unfit(&stepped),
            Ok(Answer::Refusal(refusal)) if refusal.code() == Code::Moved && others.is_empty() => {
                self.cluster.refused(refusal).map_or(Err(Trouble::Apart), |error| Err(Trouble::Lost(error)))
            }
            answer => self.outcome(&decider, answer, !others.is_empty()).await.map_err(Trouble::Lost),
        };
        if let Err(Trouble::Apart | Trouble::Unfit | Trouble::Conflict(_)) = outcome {
            abort(&decider);
        }
        for share in others {
            match &outcome {
                Ok(()) => {
                    let committed = share.link.ask(Ask::Step(Box::new(step(Finish::Commit))));
                    let (decider, node) = (decider.link.clone(), share.link.address().to_owned());
                    tokio::spawn(async move {
                        match committed.answer().await {
                            Ok(Answer::StepResult(_)) => {
                                fail_point::pass("work:followed");
                                decider.tell(Ask::Acknowledge(wire::Acknowledge { txn: number, node }));
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
            Ok(Answer::Refusal(refusal)) => {
                let code = refusal.code();
                let error = self.cluster.refused(refusal).unwrap_or_else(unexpected);
                return Err(match code {
                    // It may be done, but not on disk.
                    Code::Unavailable => {
                        CommandError::owned(format!("UNKNOWN whether this was committed: {}", error.text()))
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
        let until = Instant::now() + fail_point::time("outcome-ms", OUTCOME_PATIENCE);
        while Instant::now() < until {
            sleep(OUTCOME_PAUSE).await;
            if let Ok(Answer::Decision(decision)) =
                decider.link.ask(Ask::GetDecision(wire::GetDecision { txn: self.number })).answer().await
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
