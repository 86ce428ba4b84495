//! The status that a node sends to its peers.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use proto::store::v1 as wire;

use super::host::Host;
use super::membership::MembershipError;
use super::{founding, pending};
use crate::topology::SlotMap;

/// Checks the handshake of a peer.
pub(super) fn greet(
    host: &Arc<Host>,
    hello: &wire::Handshake,
) -> Result<wire::HandshakeReply, MembershipError> {
    if !host.has_token(hello) {
        return Err(MembershipError::WrongToken);
    }
    let taken = match &hello.map {
        Some(map) => {
            let (map, me) = (SlotMap::from_wire(map).map_err(MembershipError::Map)?, hello.node as usize);
            if host.foundings.are_required() && host.membership.taken().is_none() {
                return Err(MembershipError::NotFounded);
            }
            if founding::is_needed(host, &map) {
                return Err(founding::confirm(host, map, me));
            }
            Some(host.membership.take(&host.node, map, me)?)
        }
        None => host.membership.taken(),
    };
    Ok(wire::HandshakeReply {
        map: taken.map(|taken| taken.to_wire()),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        boot: host.boot,
        notify: host.notify(),
        status: Some(status(host)),
        parts: true,
    })
}

/// The status of a node.
pub(super) fn status(host: &Host) -> wire::Status {
    let usage = host.node.usage();
    let forgotten = host.node.counts_forgotten();
    let counts = host.node.counts().since(forgotten);
    let numbers = |counts: &[usize]| counts.iter().map(|count| *count as u64).collect();
    let progress = host.node.journal().map(|journal| (journal.newest(), journal.progress()));
    let (journal_newest, progress) = progress.unwrap_or_default();
    let taken = host.membership.taken();
    let (epoch, digest) = taken.map_or((0, 0), |taken| (taken.map.epoch(), taken.digest));
    wire::Status {
        keys: numbers(&usage.keys),
        expiring: numbers(&usage.expiring),
        sticky: usage.sticky.iter().map(|sticky| sticky.keys as u64).collect(),
        sticky_bytes: usage.sticky.iter().map(|sticky| sticky.bytes as u64).collect(),
        bytes: usage.bytes as u64,
        memory_full: host.node.is_full((host.clock)()),
        disk_error: progress.failure.map_or_else(String::new, |failure| failure.to_string()),
        epoch,
        hits: counts.hits,
        misses: counts.misses,
        expired: counts.expired,
        expired_fields: counts.expired_fields,
        evicted: counts.evicted,
        before_reset: Some(wire::Counts {
            hits: forgotten.hits,
            misses: forgotten.misses,
            expired: forgotten.expired,
            expired_fields: forgotten.expired_fields,
            evicted: forgotten.evicted,
        }),
        journal_newest,
        journal_durable: progress.durable,
        prepared: host.registry.prepared() as u64,
        decided: pending::decisions(host) as u64,
        in_doubt: host.registry.in_doubt_since.borrow().len() as u64,
        contradicted: host.registry.contradicted.load(Ordering::Relaxed),
        gateways_behind: host.sessions.behind(digest) as u64,
        map: None,
        now_ms: (host.clock)(),
    }
}
