//! Large calls on their way to a node: they are sent in parts, and the calls of the same sequence wait behind them.

use std::collections::VecDeque;

use proto::store::v1::request::Body as Ask;
use proto::store::v1::{Execute, Part, Record, Request};

use crate::parts::{self, PART_BYTES};

/// About how many bytes a request takes.
pub(super) fn bytes_of(body: &Ask) -> usize {
    32 + match body {
        Ask::Execute(execute) => execute.call.as_ref().map_or(0, |call| call.args.len()),
        Ask::Step(step) => {
            let locks = step.begin.iter().flat_map(|begin| &begin.locks).map(|lock| lock.key.len() + 16);
            step.changes.len()
                + step.calls.iter().map(|call| call.args.len() + 16).sum::<usize>()
                + locks.sum::<usize>()
        }
        Ask::ReceiveSlots(receive) => {
            let record = |record: &Record| record.name.len() + record.content.len() + 16;
            receive.changes.len() + receive.records.iter().map(record).sum::<usize>()
        }
        Ask::Collect(gather) => gather.query.len(),
        Ask::Report(trace) => trace.answer.len(),
        _ => 64,
    }
}

/// Large calls whose last part was not sent.
#[derive(Default)]
pub(super) struct LargeCalls(VecDeque<LargeCall>);

struct LargeCall {
    id: u64,
    /// With all arguments, also those that were sent: on another stream they are sent again.
    execute: Execute,
    sent: usize,
    /// The trace of the call, if it has one, and then what is sent behind the call.
    trace: Option<Request>,
    behind: Vec<Request>,
}

impl LargeCall {
    /// The next part, or none if what is left becomes the call's own.
    fn next_part(&mut self) -> Option<Part> {
        let call = self.execute.call.as_mut()?;
        let mut rest = call.args.slice(self.sent..);
        let part = parts::next(&mut rest);
        match &part {
            Some(part) => self.sent += part.bytes.len(),
            None => (call.args, self.sent) = (rest, 0),
        }
        part
    }

    /// The call as it is, with what is behind it.
    fn into_requests(self) -> impl Iterator<Item = Request> {
        let call = Request { id: self.id, body: Some(Ask::Execute(self.execute)) };
        self.trace.into_iter().chain([call]).chain(self.behind)
    }
}

impl LargeCalls {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Bytes of the calls that were not sent.
    pub fn unsent_bytes(&self) -> usize {
        let args = |large: &LargeCall| large.execute.call.as_ref().map_or(0, |call| call.args.len());
        self.0.iter().map(|large| args(large) - large.sent).sum()
    }

    /// Bytes of what waits behind them.
    pub fn behind_bytes(&self) -> usize {
        let behind = self.0.iter().flat_map(|large| &large.behind);
        behind.filter_map(|request| request.body.as_ref()).map(bytes_of).sum()
    }

    /// Whether a request is to be added here: it is a large call, or a call of the sequence of one that is here.
    pub fn concern(&self, request: &Request) -> bool {
        let Some(Ask::Execute(execute)) = &request.body else { return false };
        execute.call.as_ref().is_some_and(|call| call.args.len() > PART_BYTES)
            || self.0.iter().any(|large| large.execute.sequence == execute.sequence)
    }

    /// Adds a call that it concerns, with its trace if it has one.
    pub fn add(&mut self, trace: Option<Request>, request: Request) {
        let Request { id, body: Some(Ask::Execute(execute)) } = request else { return };
        match self.0.iter_mut().find(|large| large.execute.sequence == execute.sequence) {
            Some(before) => {
                let call = Request { id, body: Some(Ask::Execute(execute)) };
                before.behind.extend(trace.into_iter().chain([call]));
            }
            None => self.0.push_back(LargeCall { id, execute, sent: 0, trace, behind: Vec::new() }),
        }
    }

    /// What is to be sent next: a part, with nothing behind it, or a call whose other parts were sent, with what is to be
    /// added again. The calls take turns.
    pub fn next(&mut self) -> Option<(Vec<Request>, Vec<Request>)> {
        let mut large = self.0.pop_front()?;
        if let Some(part) = large.next_part() {
            let part = Request { id: large.id, body: Some(Ask::Part(part)) };
            self.0.push_back(large);
            return Some((vec![part], Vec::new()));
        }
        let behind = std::mem::take(&mut large.behind);
        Some((large.into_requests().collect(), behind))
    }

    /// Takes out a cancelled call. Returns what was behind the call, to be added again.
    pub fn cancel(&mut self, id: u64) -> Vec<Request> {
        if let Some(at) = self.0.iter().position(|large| large.id == id) {
            return self.0.remove(at).map(|large| large.behind).unwrap_or_default();
        }
        self.0.iter_mut().for_each(|large| large.behind.retain(|request| request.id != id));
        Vec::new()
    }

    /// All, as they were added.
    pub fn take_all(&mut self) -> Vec<Request> {
        std::mem::take(&mut self.0).into_iter().flat_map(LargeCall::into_requests).collect()
    }
}

#[cfg(test)]
mod tests {
    use proto::store::v1::{Call, Trace};

    use super::*;

    fn call(id: u64, sequence: u64, bytes: usize) -> Request {
        let call = Call { args: vec![b'a'; bytes].into(), ..Call::default() };
        Request { id, body: Some(Ask::Execute(Execute { call: Some(call), sequence, since: 0 })) }
    }

    fn bytes(request: &Request) -> usize {
        match &request.body {
            Some(Ask::Execute(execute)) => execute.call.as_ref().map_or(0, |call| call.args.len()),
            Some(Ask::Part(part)) => part.bytes.len(),
            _ => 0,
        }
    }

    fn numbers(requests: &[Request]) -> Vec<(u64, usize)> {
        requests.iter().map(|request| (request.id, bytes(request))).collect()
    }

    #[test]
    fn parts_take_turns_and_a_sequence_stays_in_its_order() {
        let mut large = LargeCalls::default();
        assert!(!large.concern(&call(1, 7, PART_BYTES)) && large.concern(&call(2, 7, PART_BYTES + 5)));
        let trace = Request { id: 1, body: Some(Ask::Trace(Trace::default())) };
        large.add(Some(trace), call(2, 7, PART_BYTES + 5));
        large.add(None, call(3, 8, PART_BYTES + 6));
        assert!(large.concern(&call(4, 7, 1)) && !large.concern(&call(4, 9, 1)));
        large.add(None, call(4, 7, 1));
        let mut next = || large.next().map(|(sent, behind)| (numbers(&sent), numbers(&behind)));
        assert_eq!(next(), Some((vec![(2, PART_BYTES)], vec![])));
        assert_eq!(next(), Some((vec![(3, PART_BYTES)], vec![])));
        assert_eq!(next(), Some((vec![(1, 0), (2, 5)], vec![(4, 1)])));
        assert_eq!(next(), Some((vec![(3, 6)], vec![])));
        assert_eq!(next(), None);
    }

    #[test]
    fn what_was_not_sent_whole_is_given_back_whole() {
        let mut large = LargeCalls::default();
        large.add(None, call(2, 7, PART_BYTES + 5));
        large.add(None, call(3, 7, 1));
        assert_eq!((large.unsent_bytes(), large.behind_bytes()), (PART_BYTES + 5, 33));
        large.next();
        assert_eq!(large.unsent_bytes(), 5);
        assert_eq!(numbers(&large.take_all()), [(2, PART_BYTES + 5), (3, 1)]);
        assert!(large.is_empty());
    }

    #[test]
    fn what_is_cancelled_holds_nothing_up() {
        let mut large = LargeCalls::default();
        large.add(None, call(2, 7, PART_BYTES + 5));
        large.add(None, call(3, 7, 1));
        large.add(None, call(4, 7, 2));
        assert!(large.cancel(3).is_empty());
        assert_eq!(numbers(&large.cancel(2)), [(4, 2)]);
        assert!(large.is_empty());
    }
}
