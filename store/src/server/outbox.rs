//! The answers to one peer that it has not fetched.

use std::collections::HashMap;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use proto::store::v1 as wire;
use tokio::sync::Notify;
use wire::response::Body as Answer;
use wire::{Response, Responses};

use crate::client::asked::{Facts, with_answer};
use crate::spans::{Part, Scope, Side};

/// Answers that a peer has not fetched may use so much memory; then no more of its requests are read.
pub(super) const UNREAD_BYTES: usize = 64 << 20;
/// So many requests of one peer may be traced at the same time.
const MOST_TRACED: usize = 10_000;

/// Answers on their way to the peer.
#[derive(Default)]
pub(crate) struct Outbox {
    state: Mutex<Unsent>,
    /// Told when there is room again, or the peer gone.
    fetched: Notify,
}

#[derive(Default)]
struct Unsent {
    responses: Vec<Response>,
    bytes: usize,
    reader: Option<Waker>,
    /// Nothing more comes.
    ended: bool,
    /// The peer has gone.
    closed: bool,
    /// Requests that are traced and not answered yet, by number.
    traced: HashMap<u64, (Part, Facts)>,
}

impl Outbox {
    /// Adds answers.
    pub fn push(&self, responses: impl IntoIterator<Item = Response>) {
        let mut state = self.state.lock();
        for response in responses {
            state.bytes += bytes_of(&response);
            if !state.traced.is_empty() {
                state.answered(&response);
            }
            state.responses.push(response);
        }
        if let Some(reader) = state.reader.take() {
            reader.wake();
        }
    }

    /// A traced request has come: its span ends with the answer. For what is done for it.
    pub fn traces(&self, id: u64, part: Part, facts: Facts) -> Scope {
        let scope = part.scope().clone();
        let mut state = self.state.lock();
        if state.traced.len() < MOST_TRACED {
            state.traced.insert(id, (part, facts));
        }
        scope
    }

    /// A request is not answered.
    pub fn gives_up(&self, id: u64) {
        self.state.lock().traced.remove(&id);
    }

    /// For what is done for this request, if it is traced.
    pub fn scope(&self, id: u64) -> Option<Scope> {
        self.state.lock().traced.get(&id).map(|(part, _)| part.scope().clone())
    }

    /// For what is done for all of these that are traced.
    pub fn scopes(&self, responses: &[Response]) -> Vec<Scope> {
        let state = self.state.lock();
        if state.traced.is_empty() {
            return Vec::new();
        }
        let traced = responses.iter().filter_map(|response| state.traced.get(&response.id));
        traced.map(|(part, _)| part.scope().clone()).collect()
    }

    /// What is there to be sent.
    pub fn poll(&self, context: &mut Context<'_>) -> Poll<Option<Responses>> {
        let mut state = self.state.lock();
        if state.responses.is_empty() {
            if state.ended {
                return Poll::Ready(None);
            }
            state.reader = Some(context.waker().clone());
            return Poll::Pending;
        }
        state.bytes = 0;
        let responses = std::mem::take(&mut state.responses);
        drop(state);
        self.fetched.notify_waiters();
        Poll::Ready(Some(Responses { responses }))
    }

    /// The peer has gone.
    pub fn close(&self) {
        self.state.lock().closed = true;
        self.fetched.notify_waiters();
    }

    /// Nothing more comes.
    pub fn end(&self) {
        let mut state = self.state.lock();
        state.ended = true;
        if let Some(reader) = state.reader.take() {
            reader.wake();
        }
    }

    /// Whether there is more than the peer should leave there.
    pub fn is_full(&self) -> bool {
        self.state.lock().bytes > UNREAD_BYTES
    }

    /// Whether the peer has gone.
    pub fn is_closed(&self) -> bool {
        self.state.lock().closed
    }

    /// Waits until the peer has fetched what is too much, or is gone.
    pub async fn has_room(&self) {
        loop {
            let fetched = self.fetched.notified();
            {
                let state = self.state.lock();
                if state.bytes <= UNREAD_BYTES || state.closed {
                    return;
                }
            }
            fetched.await;
        }
    }
}

impl Unsent {
    fn answered(&mut self, response: &Response) {
        let Some((part, facts)) = self.traced.remove(&response.id) else { return };
        let span = facts.put(&part, Side::Server);
        let span = response.body.iter().fold(span, with_answer);
        part.end(span);
    }
}

/// About how many bytes an answer takes.
pub(super) fn bytes_of(response: &Response) -> usize {
    32 + match &response.body {
        Some(Answer::Reply(reply)) => reply.len(),
        Some(Answer::Stepped(stepped)) => {
            stepped.values.iter().chain(&stepped.replies).map(|bytes| bytes.len() + 8).sum()
        }
        Some(Answer::Asked(asked)) => asked.question.len(),
        Some(Answer::Happened(happened)) => {
            happened.events.iter().map(|event| event.key.len() + event.name.len() + 32).sum()
        }
        Some(Answer::Changed(changed)) => changed.keys.iter().map(|key| key.len() + 8).sum(),
        Some(Answer::Gathered(gathered)) => gathered.answers.iter().map(|answer| answer.len() + 8).sum(),
        _ => 64,
    }
}
