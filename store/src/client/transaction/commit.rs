//! Its end: what was changed is sent to the nodes, and one of them decides.

use std::collections::HashMap;
use std::time::Duration;

use proto::store::v1 as wire;
use store_engine::CommandError;
use store_engine::notifications::Notification;
use tokio::time::{Instant, sleep};
use wire::refusal::Code;
use wire::request::Body as Ask;
use wire::response::Body as Answer;
use wire::step::Finish;

use super::piggyback::check_batch;
use super::{DistributedTransaction, OUTCOME_PAUSE, OUTCOME_TIMEOUT, Participant};
use crate::client::cluster::unexpected;
use crate::client::error::TransactionError;
use crate::client::lost::Lost;
use crate::journal::fail_point;
use crate::spans;
use crate::topology::NodeId;

impl DistributedTransaction {
    /// Commits all changes and unlocks the keys. An error says that nothing was done, that this is unknown, or that calls
    /// failed that were deferred to the end. The commit goes on if the caller stops waiting.
    pub async fn commit(self) -> Result<(), TransactionError> {
        let lost = CommandError::new("UNKNOWN whether this was done: the commit failed");
        tokio::spawn(spans::carried(self.finish())).await.unwrap_or(Err(TransactionError::Lost(lost)))
    }

    pub(super) async fn finish(mut self) -> Result<(), TransactionError> {
        if let Some((mut whole, _)) = self.before.take() {
            whole.append(std::mem::take(&mut self.undo));
            self.undo = whole;
        }
        let mut changes = self.changes(|_, _| true);
        let mut late = std::mem::take(&mut self.late);
        for (node, bundle) in &late.bundles {
            self.participant(*node, bundle.writes);
        }
        let (number, limited) = (self.number, self.step());
        let mut events: HashMap<NodeId, Vec<wire::KeyEvent>> = HashMap::new();
        for Notification { class, name, db, key } in std::mem::take(&mut self.events) {
            let node = self.cluster.node_of(&key);
            let (name, db, key) = (name.into_owned(), db as u32, key.into_vec().into());
            events.entry(node).or_default().push(wire::KeyEvent { class, name, db, key });
        }
        let mut events = |node: NodeId| events.remove(&node).unwrap_or_default();
        let step = |finish: Finish| wire::Step { finish: finish.into(), ..limited.clone() };
        let abort = |participant: &Participant| {
            participant.link.send_oneway(Ask::Step(Box::new(step(Finish::Abort))))
        };
        let participants = std::mem::take(&mut self.participants);
        self.ended = true;
        let is_spread = participants.len() > 1;
        let (writers, readers): (Vec<Participant>, Vec<Participant>) = participants
            .into_iter()
            .partition(|participant| participant.wrote || changes.contains_key(&participant.node));
        let mut writers = writers.into_iter();
        let coordinator = writers.next();
        let others: Vec<Participant> = writers.collect();
        let names: Vec<String> =
            others.iter().map(|participant| participant.link.address().to_owned()).collect();
        let decides: Vec<String> =
            coordinator.iter().map(|participant| participant.link.address().to_owned()).collect();
        let identities =
            |participant: &Participant| self.cluster.map().identities().get(participant.node).copied();
        let coordinator_identity = coordinator.as_ref().and_then(identities).unwrap_or_default().id;

        let mut pending = Vec::new();
        for participant in &others {
            let changes = changes.remove(&participant.node).unwrap_or_default().as_bytes().to_vec().into();
            let siblings = names.iter().filter(|name| *name != participant.link.address());
            let others = decides.iter().chain(siblings).cloned().collect();
            let events = events(participant.node);
            let mut step =
                wire::Step { changes, events, others, coordinator_identity, ..step(Finish::Prepare) };
            late.add_to(participant.node, &mut step);
            pending.push(participant.ask(step));
        }
        // What was read on several nodes was there at one time only if it is still locked now that all was read. And
        // the coordinator has done its calls before.
        let decides_late = coordinator.iter().filter(|_| !others.is_empty() || !readers.is_empty());
        for participant in readers.iter().chain(decides_late) {
            let has_calls = late.bundles.contains_key(&participant.node);
            if has_calls || (is_spread && !participant.wrote && !changes.contains_key(&participant.node)) {
                let mut step = step(Finish::Open);
                late.add_to(participant.node, &mut step);
                pending.push(participant.ask(step));
            }
        }
        let mut refused = None;
        for answer in pending {
            match self.stepped(answer.answer().await, false) {
                Ok(Some(stepped)) => refused = check_batch(&stepped).err().or(refused),
                // Slots have moved: of keys that were not locked before.
                Ok(None) => refused = Some(TransactionError::NotBatched),
                Err(error) => refused = Some(error),
            }
        }
        if let Some(error) = refused {
            readers.iter().chain(&others).chain(&coordinator).for_each(abort);
            return Err(error);
        }
        // Nodes where nothing changed have nothing to keep, but keyspace events of keys that were missed.
        let ends = if self.cluster.notify() == 0 { Finish::Abort } else { Finish::Commit };
        for participant in &readers {
            let events = events(participant.node);
            participant.link.send_oneway(Ask::Step(Box::new(wire::Step { events, ..step(ends) })));
        }
        let Some(coordinator) = coordinator else { return Ok(()) };

        fail_point::pass("work:prepared");
        let own = changes.remove(&coordinator.node).unwrap_or_default().as_bytes().to_vec().into();
        let events = events(coordinator.node);
        let mut commit = wire::Step { changes: own, events, others: names, ..step(Finish::Commit) };
        late.add_to(coordinator.node, &mut commit);
        let sent = Instant::now();
        let answer = coordinator.ask(commit).answer().await;
        let outcome = match answer {
            Ok(Answer::StepResult(stepped)) => check_batch(&stepped),
            Ok(Answer::Refusal(refusal)) if refusal.code() == Code::Moved && others.is_empty() => self
                .cluster
                .refused(refusal)
                .map_or(Err(TransactionError::NotBatched), |error| Err(TransactionError::Lost(error))),
            answer => self.outcome(&coordinator, answer, sent, !others.is_empty()).await,
        };
        if let Err(
            TransactionError::NotBatched | TransactionError::BatchFailed | TransactionError::Conflict(_),
        ) = outcome
        {
            abort(&coordinator);
        }
        for participant in others {
            match &outcome {
                Ok(()) => {
                    let committed = participant.link.ask(Ask::Step(Box::new(step(Finish::Commit))));
                    let (coordinator, node) =
                        (coordinator.link.clone(), participant.link.address().to_owned());
                    tokio::spawn(async move {
                        match committed.answer().await {
                            Ok(Answer::StepResult(_)) => {
                                fail_point::pass("work:followed");
                                coordinator
                                    .send_oneway(Ask::Acknowledge(wire::Acknowledge { txn: number, node }));
                            }
                            // It asks the coordinator.
                            _ => participant.link.send_oneway(Ask::Resolve(wire::Resolve { txn: number })),
                        }
                    });
                }
                // A participant that has prepared asks the coordinator, for as long as it takes.
                Err(_) => participant.link.send_oneway(Ask::Resolve(wire::Resolve { txn: number })),
            }
        }
        outcome
    }

    /// What became of a commit that was sent then.
    pub(super) async fn outcome(
        &self,
        coordinator: &Participant,
        answer: Result<Answer, Lost>,
        sent: Instant,
        has_participants: bool,
    ) -> Result<(), TransactionError> {
        let lost = match answer {
            Ok(Answer::Refusal(refusal)) => {
                let code = refusal.code();
                let error = self.cluster.refused(refusal).unwrap_or_else(unexpected);
                return Err(TransactionError::Lost(match code {
                    // It may be done, but not on disk.
                    Code::Unavailable => {
                        CommandError::owned(format!("UNKNOWN whether this was committed: {}", error.text()))
                    }
                    _ => error,
                }));
            }
            Ok(_) => return Err(TransactionError::Lost(unexpected())),
            Err(lost) => lost,
        };
        if !lost.maybe_done {
            return Err(self.lost(&lost, true));
        }
        let until = Instant::now() + fail_point::time("outcome-ms", OUTCOME_TIMEOUT);
        while Instant::now() < until {
            sleep(OUTCOME_PAUSE).await;
            if let Ok(Answer::Decision(decision)) =
                coordinator.link.ask(Ask::GetDecision(wire::GetDecision { txn: self.number })).answer().await
            {
                if decision.committed {
                    return Ok(());
                }
                // What was committed before may be forgotten.
                let known_ms = match has_participants {
                    true => decision.coordinated_known_ms,
                    false => decision.single_known_ms,
                };
                if sent.elapsed() < Duration::from_millis(known_ms) {
                    let reason = lost.reason.clone();
                    return Err(self.lost(&Lost { maybe_done: false, reason }, true));
                }
                break;
            }
        }
        Err(self.lost(&lost, true))
    }
}
