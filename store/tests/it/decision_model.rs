//! A model of how a transaction over nodes is decided, and of all that can happen meanwhile: messages that are lost, late or
//! repeated, crashes, a coordinator that comes back without its data.
//!
//! The transaction is prepared on two participants. Each rule of `server/pending.rs` that prevents an error can be switched
//! off: then the checker has to find that error.

use stateright::{Checker, Model, Property};

/// How often a node may crash.
const CRASHES: u8 = 3;

/// The rules that can be switched off.
#[derive(Clone, Copy)]
struct Rules {
    /// A participant acknowledges a decision only when its effects are on disk.
    acknowledges_after_flush: bool,
    /// A coordinator remembers what all have acknowledged for as long as a gateway may ask.
    remembers_for_gateways: bool,
    /// A coordinator with another data directory is not believed, and participants ask each other.
    knows_directories: bool,
}

const ALL: Rules =
    Rules { acknowledges_after_flush: true, remembers_for_gateways: true, knows_directories: true };

/// A transaction at its coordinator. What is in memory only is lost in a crash.
#[derive(Clone, Debug, Default, Hash, PartialEq, Eq)]
struct Coordinator {
    /// In memory: it can still be committed,
    is_open: bool,
    /// or is remembered as committed.
    remembers: bool,
    /// On disk: the decision, with the participants that have not acknowledged it,
    decided: Option<[bool; 2]>,
    /// and that all have.
    acknowledged: bool,
    /// It has another data directory than the one the transaction was prepared for.
    is_replaced: bool,
}

impl Coordinator {
    /// What it answers to a node that asks for the decision. From then on an open transaction cannot be committed.
    fn outcome(&mut self) -> bool {
        self.is_open = false;
        self.remembers || self.decided.is_some() || self.acknowledged
    }
}

/// Where a transaction stands at a participant.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
enum Stage {
    Prepared,
    /// Ended in memory, on its way to the disk; whether it is committed.
    Flushing(bool),
    /// Ended on disk.
    Ended(bool),
}

/// What the gateway tells its client.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
enum Reply {
    Committed,
    NothingDone,
    Unknown,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq)]
struct State {
    coordinator: Coordinator,
    stages: [Stage; 2],
    /// Decisions on their way to a participant: from the first directory or another one, and whether it is committed. They
    /// stay, since two tasks may have asked.
    decisions: [Vec<(bool, bool)>; 2],
    /// Acknowledgements on their way.
    acknowledgements: [bool; 2],
    reply: Option<Reply>,
    crashes: u8,
    /// The transaction was committed once, whatever the nodes know of it.
    is_committed: bool,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq)]
enum Action {
    Commit,
    AskCoordinator(usize),
    Decide(usize, (bool, bool)),
    AskSibling(usize),
    Flush(usize),
    Acknowledge(usize),
    GatewayAsks,
    /// The coordinator forgets what it need not remember any more.
    Forget,
    CrashCoordinator,
    CrashParticipant(usize),
    /// The coordinator's data is lost, and an operator accepts that.
    Accept,
}

impl Model for Rules {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            coordinator: Coordinator { is_open: true, ..Coordinator::default() },
            stages: [Stage::Prepared; 2],
            decisions: [const { Vec::new() }; 2],
            acknowledgements: [false; 2],
            reply: None,
            crashes: 0,
            is_committed: false,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        actions.extend([Action::Commit, Action::GatewayAsks, Action::Forget, Action::Accept]);
        actions.push(Action::CrashCoordinator);
        for at in 0..2 {
            actions.extend([Action::AskCoordinator(at), Action::AskSibling(at), Action::Flush(at)]);
            actions.extend([Action::Acknowledge(at), Action::CrashParticipant(at)]);
            actions.extend(state.decisions[at].iter().map(|decision| Action::Decide(at, *decision)));
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        let coordinator = &mut state.coordinator;
        match action {
            Action::Commit => {
                if !coordinator.is_open {
                    return None;
                }
                (coordinator.is_open, coordinator.remembers) = (false, true);
                coordinator.decided = Some([true; 2]);
                state.is_committed = true;
            }
            Action::AskCoordinator(at) => {
                if state.stages[at] != Stage::Prepared {
                    return None;
                }
                let decision = (coordinator.is_replaced, coordinator.outcome());
                let decisions = &mut state.decisions[at];
                if !decisions.contains(&decision) {
                    decisions.push(decision);
                    decisions.sort_unstable();
                }
            }
            Action::Decide(at, (is_replaced, committed)) => match state.stages[at] {
                Stage::Prepared if !committed && is_replaced && self.knows_directories => {}
                Stage::Prepared => state.stages[at] = Stage::Flushing(committed),
                Stage::Flushing(_) if committed && !self.acknowledges_after_flush => {
                    state.acknowledgements[at] = true;
                }
                _ => {}
            },
            Action::AskSibling(at) => match (state.stages[at], state.stages[1 - at]) {
                (Stage::Prepared, Stage::Ended(committed)) if self.knows_directories => {
                    state.stages[at] = Stage::Flushing(committed);
                }
                _ => return None,
            },
            Action::Flush(at) => {
                let Stage::Flushing(committed) = state.stages[at] else { return None };
                state.stages[at] = Stage::Ended(committed);
                state.acknowledgements[at] |= committed;
            }
            Action::Acknowledge(at) => {
                if !std::mem::take(&mut state.acknowledgements[at]) {
                    return None;
                }
                if let Some(left) = &mut coordinator.decided {
                    left[at] = false;
                    if *left == [false; 2] {
                        coordinator.decided = None;
                        coordinator.acknowledged = self.remembers_for_gateways;
                    }
                }
            }
            Action::GatewayAsks => {
                if state.reply.is_some() {
                    return None;
                }
                let is_certain = !coordinator.is_replaced || !self.remembers_for_gateways;
                state.reply = Some(match coordinator.outcome() {
                    true => Reply::Committed,
                    false if is_certain => Reply::NothingDone,
                    false => Reply::Unknown,
                });
            }
            Action::Forget => {
                if self.remembers_for_gateways && state.reply.is_none() {
                    return None;
                }
                (coordinator.remembers, coordinator.acknowledged) = (false, false);
            }
            Action::CrashCoordinator => {
                (coordinator.is_open, coordinator.remembers) = (false, false);
                state.crashes += 1;
            }
            Action::CrashParticipant(at) => {
                if let Stage::Flushing(_) = state.stages[at] {
                    state.stages[at] = Stage::Prepared;
                }
                // What it has asked or sent goes with its streams.
                state.decisions[at].clear();
                state.acknowledgements[at] = false;
                state.crashes += 1;
            }
            Action::Accept => {
                if coordinator.is_replaced {
                    return None;
                }
                *coordinator = Coordinator { is_replaced: true, ..Coordinator::default() };
                state.crashes += 1;
            }
        }
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("the transaction is whole", |_, state: &State| {
                let ended = |committed| state.stages.contains(&Stage::Ended(committed));
                let is_done = state.is_committed && !state.coordinator.is_replaced;
                !(ended(false) && (ended(true) || is_done))
            }),
            Property::always("the reply is true", |_, state: &State| {
                !(state.reply == Some(Reply::NothingDone) && state.is_committed)
            }),
            Property::sometimes("all commit", |_, state: &State| state.stages == [Stage::Ended(true); 2]),
            Property::sometimes("all roll back", |_, state: &State| state.stages == [Stage::Ended(false); 2]),
        ]
    }

    fn within_boundary(&self, state: &State) -> bool {
        state.crashes <= CRASHES
    }
}

/// The errors that are found with these rules.
fn errors(rules: Rules) -> Vec<&'static str> {
    let checker = rules.checker().spawn_bfs().join();
    assert!(checker.discovery("all commit").is_some() && checker.discovery("all roll back").is_some());
    let errors = ["the transaction is whole", "the reply is true"];
    errors.into_iter().filter(|error| checker.discovery(error).is_some()).collect()
}

#[test]
fn a_transaction_is_whole_whatever_crashes_and_is_lost() {
    assert_eq!(errors(ALL), [""; 0]);
}

#[test]
fn an_acknowledgement_before_the_flush_breaks_a_transaction() {
    let found = errors(Rules { acknowledges_after_flush: false, ..ALL });
    assert!(found.contains(&"the transaction is whole"));
}

#[test]
fn an_outcome_that_is_forgotten_makes_a_reply_false() {
    assert_eq!(errors(Rules { remembers_for_gateways: false, ..ALL }), ["the reply is true"]);
}

#[test]
fn a_coordinator_without_its_data_that_is_believed_breaks_a_transaction() {
    let found = errors(Rules { knows_directories: false, ..ALL });
    assert!(found.contains(&"the transaction is whole"));
}
