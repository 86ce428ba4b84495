//! Scripts: whatever the text, the sandbox does not trap, and what it answers is a reply.

#![no_main]

mod property;

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use resp::{ReplyLimits, transcode};
use store_engine::Protocol::{Resp2, Resp3};

static LAB: LazyLock<property::Lab> = LazyLock::new(property::Lab::new);

fuzz_target!(
    // The instrumented compiler may take a minute for the guest, which is not the first input's fault.
    init: LazyLock::force(&LAB),
    |source: &[u8]| {
        let Some(reply) = LAB.check(source) else { return };
        for protocol in [Resp2, Resp3] {
            let checked = transcode(&reply, protocol, &mut Vec::new(), ReplyLimits::default());
            assert!(checked.is_ok(), "{checked:?} in {}", reply.escape_ascii());
        }
    }
);
