//! Scripts: whatever the text, the sandbox does not trap, and what it answers is a reply.

#![no_main]

mod property;

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use resp::{ReplyLimits, transcode};
use store_engine::Protocol::{Resp2, Resp3};

static LAB: OnceLock<property::Lab> = OnceLock::new();

fuzz_target!(|source: &[u8]| {
    let Some(reply) = LAB.get_or_init(property::Lab::new).check(source) else { return };
    for protocol in [Resp2, Resp3] {
        let checked = transcode(&reply, protocol, &mut Vec::new(), ReplyLimits::default());
        assert!(checked.is_ok(), "{checked:?} in {}", reply.escape_ascii());
    }
});
