//! The answers to one peer that it has not fetched.

use std::collections::{HashMap, VecDeque};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use parking_lot::Mutex;
use proto::store::v1 as wire;
use store_engine::{CommandError, Protocol, Reply};
use tokio::sync::{Notify, Semaphore, SemaphorePermit};
use wire::refusal::Code;
use wire::response::Body as Answer;
use wire::{Response, Responses};

use super::refusal::refusal;
use crate::client::request::{RequestAttributes, with_answer};
use crate::parts::{self, MESSAGE_BYTES, PART_BYTES};
use crate::spans::{Part, Scope, SpanKind};

/// Answers that a peer has not fetched may use so much memory; then no more of its requests are read.
pub(super) const UNREAD_BYTES: usize = 64 << 20;
/// A message is closed when it has so many bytes.
const BATCH_BYTES: usize = 64 << 20;
/// No answer is larger, so that it fits into a message with all that belongs to it.
const LARGEST: usize = MESSAGE_BYTES - (1 << 20);
/// From so many bytes on a reply can only be that of a long call.
const LONG_REPLY_BYTES: usize = 8 << 20;
/// Long calls of one peer that are at work at the same time: each may make as large an answer as all of the above.
const LONG_CALLS: usize = 4;
/// So many requests of one peer may be traced at the same time.
const MOST_TRACED: usize = 10_000;

/// Answers on their way to the peer.
pub(crate) struct Outbox {
    state: Mutex<Unsent>,
    /// Notified when there is room again, or the peer is gone.
    fetched: Notify,
    long_calls: Semaphore,
}

impl Default for Outbox {
    fn default() -> Outbox {
        Outbox { state: Mutex::default(), fetched: Notify::new(), long_calls: Semaphore::new(LONG_CALLS) }
    }
}

#[derive(Default)]
struct Unsent {
    responses: Vec<Response>,
    /// Large replies, each with what was not sent of it; only of peers that know parts.
    large: VecDeque<LargeReply>,
    knows_parts: bool,
    /// Of all.
    bytes: usize,
    reader: Option<Waker>,
    /// Nothing more comes.
    ended: bool,
    /// The peer has gone.
    closed: bool,
    /// Requests that are traced and not answered yet, by number.
    traced: HashMap<u64, (Part, RequestAttributes)>,
}

struct LargeReply {
    id: u64,
    rest: Bytes,
    is_long: bool,
}

impl Outbox {
    /// The peer knows parts: large replies are sent in these from now on.
    pub fn send_parts(&self) {
        self.state.lock().knows_parts = true;
    }

    /// Adds answers.
    pub fn push(&self, responses: impl IntoIterator<Item = Response>) {
        let mut state = self.state.lock();
        for mut response in responses {
            if bytes_of(&response) > LARGEST {
                response.body = response.body.map(too_large);
            }
            state.bytes += bytes_of(&response);
            if !state.traced.is_empty() {
                state.answered(&response);
            }
            state.add(response);
        }
        if let Some(reader) = state.reader.take() {
            reader.wake();
        }
    }

    /// A traced request has come: its span ends with the answer. For what is done for it.
    pub fn traces(&self, id: u64, part: Part, attributes: RequestAttributes) -> Scope {
        let scope = part.scope().clone();
        let mut state = self.state.lock();
        if state.traced.len() < MOST_TRACED {
            state.traced.insert(id, (part, attributes));
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
        if state.responses.is_empty() && state.large.is_empty() {
            if state.ended {
                return Poll::Ready(None);
            }
            state.reader = Some(context.waker().clone());
            return Poll::Pending;
        }
        let mut responses = std::mem::take(&mut state.responses);
        if state.bytes - state.large_bytes(|_| true) > BATCH_BYTES {
            let mut bytes = 0;
            let fits = |response: &Response| {
                bytes += bytes_of(response);
                bytes <= BATCH_BYTES
            };
            let count = responses.iter().map(fits).take_while(|fits| *fits).count().max(1);
            state.responses = responses.split_off(count);
        }
        responses.extend(state.next_of_large());
        state.bytes = state.responses.iter().map(bytes_of).sum::<usize>() + state.large_bytes(|_| true);
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

    /// Waits until the peer has fetched what is too much, or is gone; replies of long calls aside, whose number is limited:
    /// the requests of others do not wait until these are sent.
    pub async fn is_read(&self) {
        self.room(|state| state.bytes - state.large_bytes(|large| large.is_long)).await;
    }

    /// Whether the peer has gone.
    pub fn is_closed(&self) -> bool {
        self.state.lock().closed
    }

    /// Waits until a long call may begin: those that were asked for before their answers filled the memory wait for the peer,
    /// too.
    pub async fn turn(&self) -> SemaphorePermit<'_> {
        let turn = self.long_calls.acquire().await.expect("the semaphore is never closed");
        self.has_room().await;
        turn
    }

    /// Waits until the peer has fetched what is too much, or is gone.
    pub async fn has_room(&self) {
        self.room(|state| state.bytes).await;
    }

    async fn room(&self, bytes_of: impl Fn(&Unsent) -> usize) {
        loop {
            let fetched = self.fetched.notified();
            {
                let state = self.state.lock();
                if bytes_of(&state) <= UNREAD_BYTES || state.closed {
                    return;
                }
            }
            fetched.await;
        }
    }
}

impl Unsent {
    fn add(&mut self, response: Response) {
        match response {
            Response { id, body: Some(Answer::Reply(rest)) }
                if self.knows_parts && rest.len() > PART_BYTES =>
            {
                let is_long = rest.len() >= LONG_REPLY_BYTES;
                self.large.push_back(LargeReply { id, rest, is_long });
            }
            response => self.responses.push(response),
        }
    }

    fn large_bytes(&self, counts: impl Fn(&LargeReply) -> bool) -> usize {
        self.large.iter().filter(|large| counts(large)).map(|large| large.rest.len()).sum()
    }

    /// The next part of a large reply. All have their turns.
    fn next_of_large(&mut self) -> Option<Response> {
        let mut large = self.large.pop_front()?;
        let id = large.id;
        let body = match parts::next(&mut large.rest) {
            Some(part) => {
                self.large.push_back(large);
                Answer::Part(part)
            }
            None => Answer::Reply(large.rest),
        };
        Some(Response { id, body: Some(body) })
    }

    fn answered(&mut self, response: &Response) {
        let Some((part, attributes)) = self.traced.remove(&response.id) else { return };
        let span = attributes.put(&part, SpanKind::Server);
        let span = response.body.iter().fold(span, with_answer);
        part.end(span);
    }
}

/// What is answered instead of this. What the call has done stays.
fn too_large(answer: Answer) -> Answer {
    const WHY: &str = "ERR the reply exceeds 1gb, the maximum reply size of store nodes";
    match answer {
        Answer::Reply(_) => {
            let mut out = Reply::new(Protocol::Resp2);
            out.error(&CommandError::new(WHY));
            Answer::Reply(out.buf.into())
        }
        _ => Answer::Refusal(refusal(Code::Unavailable, WHY)),
    }
}

/// About how many bytes an answer takes.
pub(super) fn bytes_of(response: &Response) -> usize {
    32 + match &response.body {
        Some(Answer::Reply(reply)) => reply.len(),
        Some(Answer::StepResult(stepped)) => {
            stepped.values.iter().chain(&stepped.replies).map(|bytes| bytes.len() + 8).sum()
        }
        Some(Answer::Query(request)) => request.query.len(),
        Some(Answer::KeyEvents(happened)) => {
            happened.events.iter().map(|event| event.key.len() + event.name.len() + 32).sum()
        }
        Some(Answer::Invalidation(changed)) => changed.keys.iter().map(|key| key.len() + 8).sum(),
        Some(Answer::Collected(gathered)) => gathered.answers.iter().map(|answer| answer.len() + 8).sum(),
        _ => 64,
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use super::*;

    /// A reply of so many bytes, which is not copied.
    fn reply(id: u64, bytes: usize) -> Response {
        Response { id, body: Some(Answer::Reply(vec![0; bytes].into())) }
    }

    /// The answers of each message that is there.
    fn messages(outbox: &Outbox) -> Vec<Vec<Response>> {
        let mut context = Context::from_waker(Waker::noop());
        let mut all = Vec::new();
        while let Poll::Ready(Some(Responses { responses })) = outbox.poll(&mut context) {
            all.push(responses);
        }
        all
    }

    #[test]
    fn a_message_has_no_more_than_it_may() {
        let outbox = Outbox::default();
        let sizes = [1, BATCH_BYTES / 2, BATCH_BYTES / 3, BATCH_BYTES / 2, 2 * BATCH_BYTES, 1, 1];
        outbox.push(sizes.iter().zip(1..).map(|(bytes, id)| reply(id, *bytes)));
        let ids: Vec<Vec<u64>> =
            messages(&outbox).iter().map(|all| all.iter().map(|response| response.id).collect()).collect();
        assert_eq!(ids, [&[1, 2, 3][..], &[4], &[5], &[6, 7]]);
        assert_eq!(outbox.state.lock().bytes, 0);
    }

    #[test]
    fn other_answers_come_between_the_parts_of_a_large_reply() {
        let outbox = Outbox::default();
        outbox.send_parts();
        outbox.push([reply(1, 3 * PART_BYTES), reply(2, PART_BYTES + 1), reply(3, 1)]);
        let sent = |message: &Vec<Response>| -> Vec<(u64, bool)> {
            let is_part = |response: &Response| matches!(response.body, Some(Answer::Part(_)));
            message.iter().map(|response| (response.id, is_part(response))).collect()
        };
        let all: Vec<_> = messages(&outbox).iter().map(sent).collect();
        let (part, last) = (true, false);
        assert_eq!(
            all,
            [&[(3, last), (1, part)][..], &[(2, part)], &[(1, part)], &[(2, last)], &[(1, last)]]
        );
        assert_eq!(outbox.state.lock().bytes, 0);
    }

    #[test]
    fn a_large_reply_does_not_keep_the_requests_of_others_waiting() {
        let outbox = Outbox::default();
        outbox.send_parts();
        outbox.push([reply(1, 2 * UNREAD_BYTES)]);
        let mut context = Context::from_waker(Waker::noop());
        assert!(pin!(outbox.is_read()).poll(&mut context).is_ready());
        assert!(pin!(outbox.has_room()).poll(&mut context).is_pending(), "no more long calls");
        outbox.push((0..=UNREAD_BYTES / LONG_REPLY_BYTES).map(|id| reply(id as u64, LONG_REPLY_BYTES - 1)));
        assert!(outbox.state.lock().bytes > 3 * UNREAD_BYTES);
        assert!(pin!(outbox.is_read()).poll(&mut context).is_pending(), "replies of short calls fill it");
    }

    #[test]
    fn an_answer_that_fits_into_no_message_is_an_error_of_its_own() {
        let outbox = Outbox::default();
        let stepped =
            wire::StepResult { values: vec![vec![0; LARGEST].into()], ..wire::StepResult::default() };
        let step = Response { id: 2, body: Some(Answer::StepResult(Box::new(stepped))) };
        outbox.push([reply(1, LARGEST), step, reply(3, 1)]);
        let all: Vec<Response> = messages(&outbox).into_iter().flatten().collect();
        let [first, second, third] = &all[..] else { panic!("three answers") };
        assert!(
            matches!(&first.body, Some(Answer::Reply(text)) if text.starts_with(b"-ERR the reply exceeds"))
        );
        assert!(
            matches!(&second.body, Some(Answer::Refusal(refused)) if refused.reason.starts_with("ERR the reply"))
        );
        assert_eq!(bytes_of(third), bytes_of(&reply(3, 1)));
    }
}
