//! What a part of a transaction had changed that was undone, as a message between nodes and gateways.

use proto::store::v1 as wire;

use crate::txn::{Change, DryRunChanges, Preview};

/// As a message.
pub(crate) fn to_wire(dry_run_changes: DryRunChanges) -> wire::RolledBack {
    let change = |change: Change| wire::Change {
        db: change.db as u32,
        key: change.key.unwrap_or_default().into_vec().into(),
        before: change.before.map(preview_to_wire),
        after: change.after.map(preview_to_wire),
    };
    let (before, after): (Vec<u64>, Vec<u64>) =
        dry_run_changes.databases.iter().map(|(before, after)| (*before as u64, *after as u64)).unzip();
    wire::RolledBack {
        changes: dry_run_changes.keys.into_iter().map(change).collect(),
        omitted: dry_run_changes.omitted as u64,
        keys_before: before,
        keys_after: after,
    }
}

/// From a message.
pub(super) fn from_wire(reported: wire::RolledBack) -> DryRunChanges {
    let change = |change: wire::Change| Change {
        db: change.db as usize,
        key: Some(change.key.to_vec().into()),
        before: change.before.map(preview_from_wire),
        after: change.after.map(preview_from_wire),
    };
    let count = |count: u64| count as usize;
    let databases = reported.keys_before.into_iter().zip(reported.keys_after);
    DryRunChanges {
        keys: reported.changes.into_iter().map(change).collect(),
        omitted: count(reported.omitted),
        databases: databases.map(|(before, after)| (count(before), count(after))).collect(),
    }
}

fn preview_to_wire(preview: Preview) -> wire::Preview {
    wire::Preview {
        kind: preview.type_name.into_owned(),
        length: preview.length as u64,
        expire_at_ms: preview.expire_at_ms,
        sticky: preview.sticky,
        elements: preview.elements.into_iter().map(bytes::Bytes::from).collect(),
    }
}

fn preview_from_wire(preview: wire::Preview) -> Preview {
    Preview {
        type_name: preview.kind.into(),
        length: preview.length as usize,
        expire_at_ms: preview.expire_at_ms,
        sticky: preview.sticky,
        elements: preview.elements.into_iter().map(|element| element.to_vec()).collect(),
    }
}
