//! Requests about the node as a whole: its catalog, its disk, its configuration, the cluster's map.

use std::sync::Arc;
use std::time::Duration;

use proto::store::v1 as wire;
use tokio::task::JoinHandle;
use wire::refusal::Code;
use wire::response::Body as Answer;

use super::host::{Host, NOTIFY};
use super::membership::MembershipError;
use super::pending;
use super::refusal::refusal;
use super::status::status;
use crate::journal::NO_JOURNAL;
use crate::topology::SlotMap;

/// The records of the catalog that are asked for, if it is here.
pub(super) fn read_records(host: &Host, request: &wire::ReadRecords) -> Answer {
    let _owned = match host.membership.owns_catalog() {
        Ok(owned) => owned,
        Err(refused) => return Answer::Refusal(refused),
    };
    let records = host.node.records(&request.prefix).into_iter();
    let record = |(name, content): (Vec<u8>, Arc<[u8]>)| wire::Record {
        name: name.into(),
        content: content.to_vec().into(),
    };
    Answer::Records(wire::Records { records: records.map(record).collect() })
}

/// Keeps records of the catalog, if it is here, and reports that to all sessions but this one.
pub(super) fn write_records(host: &Host, session: u64, request: &wire::WriteRecords) -> Answer {
    match try_write_records(host, request) {
        Ok(()) => {
            host.sessions.announce_catalog(session);
            Answer::Done(wire::Done {})
        }
        Err(refused) => Answer::Refusal(refused),
    }
}

fn try_write_records(host: &Host, request: &wire::WriteRecords) -> Result<(), wire::Refusal> {
    let node = &host.node;
    node.refuse_while_failing().map_err(|error| refusal(Code::Unavailable, error.text()))?;
    let _owned = host.membership.owns_catalog()?;
    if request.replace {
        node.set_records(
            &request.prefix,
            request.records.iter().map(|record| (&*record.name, &*record.content)),
        );
    } else {
        let record = |record: &wire::Record| (record.name.to_vec(), record.content.to_vec());
        let records: Vec<_> = request.records.iter().map(record).collect();
        let gone: Vec<_> = request.gone.iter().map(|name| name.to_vec()).collect();
        node.change_records(&request.prefix, &records, &gone);
    }
    Ok(())
}

/// What became of a transaction that this node decides.
pub(super) async fn decision(host: Arc<Host>, txn: u64) -> Answer {
    let committed = pending::outcome(&host, txn).await;
    let (single, coordinated) = pending::known_for(&host);
    Answer::Decision(wire::Decision {
        committed,
        single_known_ms: single.as_millis() as u64,
        coordinated_known_ms: coordinated.as_millis() as u64,
        identity: Some(host.membership.identity()),
    })
}

/// The answer that a task gives.
pub(super) async fn joined(task: JoinHandle<Answer>) -> Answer {
    task.await.unwrap_or_else(|error| Answer::Refusal(refusal(Code::Unavailable, &error.to_string())))
}

/// Takes what is newer in a map.
pub(super) fn set_topology(host: &Host, request: wire::SetTopology) -> Answer {
    let map = SlotMap::from_wire(&request.map.unwrap_or_default()).map_err(MembershipError::Map);
    match map.and_then(|map| host.membership.learn(&host.node, map)) {
        Ok(()) => Answer::Done(wire::Done {}),
        Err(reason) => Answer::Refusal(refusal(Code::Denied, &reason)),
    }
}

/// An operator says which node this is.
pub(super) fn accept(host: &Host, request: wire::Accept) -> Answer {
    let map = SlotMap::from_wire(&request.map.unwrap_or_default()).map_err(MembershipError::Map);
    match map.and_then(|map| host.membership.accept(&host.node, map, request.node as usize)) {
        Ok(taken) => {
            let map = Some(taken.to_wire());
            Answer::Status(Box::new(wire::Status { map, ..status(host) }))
        }
        Err(reason) => Answer::Refusal(refusal(Code::Denied, &reason)),
    }
}

/// Asks all gateways but the one of this session, at once. What is returned waits for their answers.
pub(super) fn collect(
    host: &Host,
    session: u64,
    request: &wire::Collect,
) -> impl Future<Output = Answer> + use<> {
    let timeout = (request.timeout_ms > 0).then(|| Duration::from_millis(request.timeout_ms.into()));
    let gathered = host.sessions.gather(session, &request.query, timeout);
    async { Answer::Collected(wire::Collected { answers: gathered.await }) }
}

/// Brings everything to disk, or into the checkpoint.
pub(super) async fn save(host: Arc<Host>, request: wire::Save) -> Answer {
    let saved = match host.node.journal() {
        None if !request.checkpoint => {
            return Answer::Refusal(refusal(Code::Invalid, NO_JOURNAL.text()));
        }
        None => Ok(()),
        Some(journal) if request.checkpoint => journal.checkpoint().await,
        Some(journal) => journal.flush().await,
    };
    match saved {
        Ok(()) => Answer::Done(wire::Done {}),
        Err(failure) => Answer::Refusal(refusal(Code::Unavailable, &failure.cause)),
    }
}

/// Changes parameters of the node.
pub(super) fn configure(host: &Host, request: wire::Configure) -> Answer {
    let setting = |setting: wire::Setting| (setting.name, setting.value);
    let settings: Vec<_> = request.settings.into_iter().map(setting).collect();
    if request.reset_counts {
        host.node.reset_counts();
    }
    match (host.configure)(&settings) {
        Ok(()) => {
            if settings.iter().any(|(name, _)| name == NOTIFY) {
                // All others are to show it too.
                let said = host.say_notify(host.node.notified(), false);
                debug_assert!(said.is_ok(), "the configuration cannot be changed on this node");
            }
            Answer::Status(Box::new(status(host)))
        }
        Err(reason) => Answer::Refusal(refusal(Code::Invalid, &reason)),
    }
}
