//! Parts of large calls and replies on the stream between a gateway and a node. Other messages are sent between them, so that no
//! client waits for the values of another one.

use std::collections::HashMap;

use bytes::Bytes;
use foldhash::fast::RandomState;
use proto::store::v1::response::Body as Answer;
use proto::store::v1::{Part, Response};
use store_engine::Reply;

/// Most bytes of one message, either way, and of a value whose parts are put together.
pub(crate) const MESSAGE_BYTES: usize = 1 << 30;
/// What is longer is sent in parts of this length.
pub(crate) const PART_BYTES: usize = 1 << 20;

/// Takes the next part from the front of `rest`. `None`: what is left is short enough to be the last.
pub(crate) fn next(rest: &mut Bytes) -> Option<Part> {
    (rest.len() > PART_BYTES).then(|| {
        let bytes = rest.split_to(PART_BYTES);
        Part { bytes, left: rest.len() as u64 }
    })
}

/// Most bytes of all values of one stream of which not all parts have arrived. A gateway queues fewer, and a node has few long
/// calls of a gateway under way.
const INCOMPLETE_BYTES: usize = 5 << 30;

/// Values of which not all parts have arrived, by the number of their request.
#[derive(Default)]
pub(crate) struct Parts {
    values: HashMap<u64, Incomplete, RandomState>,
    /// What all of them count for.
    bytes: usize,
}

/// A value of which not all parts have arrived.
#[derive(Default)]
struct Incomplete {
    held: Vec<u8>,
    /// Bytes that it counts for: its length as announced, at least that of a part.
    bytes: usize,
}

impl Parts {
    /// Adds a part. An error if the value, or all values together, would be longer than they may be.
    pub fn add(&mut self, id: u64, part: &Part) -> Result<(), &'static str> {
        let Incomplete { held, bytes } = self.values.entry(id).or_default();
        let left = usize::try_from(part.left).unwrap_or(usize::MAX);
        let announced = held.len().saturating_add(part.bytes.len()).saturating_add(left);
        if announced > MESSAGE_BYTES {
            return Err("a value exceeds 1gb");
        }
        self.bytes -= *bytes;
        *bytes = announced.max(PART_BYTES);
        self.bytes += *bytes;
        if self.bytes > INCOMPLETE_BYTES {
            return Err("values of which only parts have arrived exceed 5gb");
        }
        // All at once: a buffer that grows would be copied as a whole.
        held.reserve_exact(part.bytes.len() + left);
        held.extend_from_slice(&part.bytes);
        Ok(())
    }

    /// The value that ends with `last`.
    pub fn finish(&mut self, id: u64, last: Bytes) -> Bytes {
        match self.take(id) {
            None => last,
            Some(mut value) => {
                value.extend_from_slice(&last);
                value.into()
            }
        }
    }

    fn take(&mut self, id: u64) -> Option<Vec<u8>> {
        let Incomplete { held, bytes } = self.values.remove(&id)?;
        self.bytes -= bytes;
        Some(held)
    }

    /// The answer in a response, unless it has none or more parts follow. An error as that of [`Parts::add`].
    pub fn answer(&mut self, Response { id, body }: Response) -> Result<Option<Answer>, &'static str> {
        Ok(match body {
            Some(Answer::Part(part)) => {
                self.add(id, &part)?;
                None
            }
            Some(Answer::Reply(last)) => Some(Answer::Reply(self.finish(id, last))),
            other => other,
        })
    }

    /// The rest of the value does not come.
    pub fn forget(&mut self, id: u64) {
        self.take(id);
    }
}

/// Adds a reply from a node to `out`. A long one becomes the buffer if that is empty, and is not copied.
pub fn relay(reply: Bytes, out: &mut Reply) {
    if reply.len() > PART_BYTES && out.buf.is_empty() {
        out.buf = reply.into();
    } else {
        out.relay(&reply);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_arrive_as_they_were() {
        let value: Vec<u8> = (0..2 * PART_BYTES + 7).map(|at| (at % 251) as u8).collect();
        let (mut parts, mut rest) = (Parts::default(), Bytes::from(value.clone()));
        let mut count = 0;
        while let Some(part) = next(&mut rest) {
            assert_eq!(parts.add(1, &part), Ok(()));
            assert_eq!(parts.add(2, &part), Ok(()), "another value");
            count += 1;
        }
        parts.forget(2);
        assert_eq!((count, parts.finish(1, rest)), (2, value.into()));
        assert_eq!(parts.finish(2, Bytes::from_static(b"short")), "short");
        assert!(parts.values.is_empty() && parts.bytes == 0);
    }

    #[test]
    fn no_value_is_longer_than_it_may_be() {
        let part = |left| Part { bytes: Bytes::from_static(b"123"), left };
        let most = MESSAGE_BYTES as u64;
        let mut parts = Parts::default();
        let long = Err("a value exceeds 1gb");
        assert_eq!((parts.add(1, &part(most - 2)), parts.add(1, &part(u64::MAX))), (long, long));
        let response = Response { id: 1, body: Some(Answer::Part(part(most))) };
        assert_eq!(parts.answer(response), Err("a value exceeds 1gb"));
        assert_eq!((parts.add(1, &part(4)), parts.add(1, &part(4))), (Ok(()), Ok(())));
        assert_eq!(parts.add(1, &part(most - 8)), long);
    }

    /// Announcing a value costs next to nothing, so what is announced counts.
    #[test]
    fn values_that_never_arrive_are_limited() {
        let begin = |parts: &mut Parts, left| {
            let part = Part { bytes: Bytes::from_static(b"1"), left };
            (0..10_000).find(|id| parts.add(*id, &part).is_err())
        };
        let mut parts = Parts::default();
        assert_eq!(begin(&mut parts, (1 << 30) - 1), Some(5));
        (0..6).for_each(|id| parts.forget(id));
        assert!(parts.bytes == 0);
        assert_eq!(begin(&mut parts, 1), Some(5 << 10), "however short they are");
    }

    #[test]
    fn a_long_reply_is_not_copied() {
        let long = Bytes::from(vec![b'+'; PART_BYTES + 1]);
        let at = long.as_ptr();
        let mut out = Reply::new(store_engine::Protocol::Resp2);
        relay(long, &mut out);
        assert_eq!(out.buf.as_ptr(), at);
        relay(Bytes::from_static(b"-ERR\r\n"), &mut out);
        assert_eq!(out.buf.len(), PART_BYTES + 1 + 6);
    }
}
