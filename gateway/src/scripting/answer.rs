//! How the hosts of both modes answer a call: in which protocol, within which bounds, and at what cost.

use script::{CallFlags, HostCall};
use store_engine::spec::flags;
use store_engine::{Protocol, Reply, Routing};

use crate::admission::Admitted;

/// Fuel that a call costs beside what its reply's bytes cost.
pub(super) const CALL_FUEL: u64 = 100;

/// Fuel that a step costs which a command takes: a step is some 50 ns, see [`store_engine::work`].
pub(super) const STEP_FUEL: u64 = 64;

/// How a call has ended whose reply is `out`, and what it cost.
pub(super) fn ended(out: &Reply) -> HostCall {
    if out.is_over_limit() { HostCall::TooLarge } else { HostCall::Done(cost_of(out)) }
}

/// What a call cost whose reply is `out`.
pub(super) fn cost_of(out: &Reply) -> u64 {
    (CALL_FUEL + out.buf.len() as u64).saturating_add(out.steps.saturating_mul(STEP_FUEL))
}

/// Whether a call may be sent later: it acts on keys that it names, and leaves nothing to chance.
pub(super) fn can_wait(admitted: &Admitted<'_>) -> bool {
    let spec = admitted.spec();
    !admitted.keys().is_empty()
        && spec.routing.of(admitted.args()) == Routing::ByKey
        && !spec.has(flags::RANDOM)
}

/// What the host of either mode answers in, no more than so many bytes.
pub(super) fn reply_in(reply: &mut Vec<u8>, protocol: Protocol, most_bytes: usize) -> Reply {
    let mut out = Reply::append_to(std::mem::take(reply), protocol);
    out.set_limit(most_bytes);
    out
}

/// The protocol that a call asks for.
pub(super) fn protocol_of(flags: CallFlags) -> Protocol {
    if flags.resp3() { Protocol::Resp3 } else { Protocol::Resp2 }
}
