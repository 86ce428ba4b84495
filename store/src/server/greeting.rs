//! What a node and its peers tell each other of themselves.

use std::sync::atomic::Ordering;

use proto::store::v1 as wire;
use subtle::ConstantTimeEq;
use wire::request::Body as Ask;
use wire::response::Body as Answer;

use super::{Host, pending};
use crate::client::link::Greeting;
use crate::topology::SlotMap;

/// Checks who comes and for whom.
pub(super) fn greet(host: &Host, hello: &wire::Handshake) -> Result<wire::HandshakeReply, String> {
    if let Some(token) = &host.trust.token
        && !bool::from(token.as_bytes().ct_eq(hello.token.as_bytes()))
    {
        return Err("wrong cluster token".into());
    }
    let taken = match &hello.map {
        Some(map) => {
            let map = SlotMap::from_wire(map).map_err(|error| error.0)?;
            Some(host.place.take(&host.node, map, hello.node as usize)?)
        }
        None => host.place.taken(),
    };
    Ok(wire::HandshakeReply {
        map: taken.map(|taken| taken.map.to_wire()),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        boot: host.boot,
        notify: host.notify(),
        status: Some(status(host)),
    })
}

/// What a node tells of itself.
pub(super) fn status(host: &Host) -> wire::Status {
    let usage = host.node.usage();
    let forgotten = host.node.counts_forgotten();
    let counts = host.node.counts().since(forgotten);
    let numbers = |counts: &[usize]| counts.iter().map(|count| *count as u64).collect();
    let progress = host.node.journal().map(|journal| (journal.newest(), journal.progress()));
    let (journal_newest, progress) = progress.unwrap_or_default();
    let epoch = host.place.taken().map_or(0, |taken| taken.map.epoch());
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
        evicted: counts.evicted,
        before_reset: Some(wire::Counts {
            hits: forgotten.hits,
            misses: forgotten.misses,
            expired: forgotten.expired,
            evicted: forgotten.evicted,
        }),
        journal_newest,
        journal_durable: progress.durable,
        prepared: host.registry.prepared() as u64,
        decided: pending::decisions(host) as u64,
        in_doubt: host.registry.doubts.borrow().len() as u64,
        contradicted: host.registry.contradicted.load(Ordering::Relaxed),
        gateways_behind: host.sessions.behind(epoch) as u64,
        map: None,
    }
}

/// How a node greets another.
pub(crate) struct PeerGreeting {
    hello: wire::Handshake,
}

impl PeerGreeting {
    /// For the node that decides about a transaction which `host` has prepared.
    pub fn new(host: &Host, decider: &str) -> PeerGreeting {
        let map = host.place.taken().map(|taken| taken.map);
        let node = map.iter().flat_map(|map| map.nodes()).position(|node| node == decider);
        let hello = wire::Handshake {
            peer: 0,
            map: map.map(|map| map.to_wire()),
            node: node.unwrap_or_default() as u32,
            token: host.trust.token.clone().unwrap_or_default(),
            gateway: false,
            invalidations: false,
            notify: 0,
        };
        PeerGreeting { hello }
    }
}

impl Greeting for PeerGreeting {
    fn hello(&self) -> Ask {
        Ask::Handshake(Box::new(self.hello.clone()))
    }

    fn welcome(&self, answer: Answer) -> Result<(), String> {
        match answer {
            Answer::HandshakeReply(_) => Ok(()),
            Answer::Refusal(refusal) => Err(refusal.reason),
            _ => Err("no handshake".into()),
        }
    }

    fn epoch(&self) -> u64 {
        self.hello.map.as_ref().map_or(0, |map| map.epoch)
    }
}
