//! Its parts, which can be taken back alone.

use proto::store::v1 as wire;
use store_engine::Partitions;
use wire::step::Savepoint;

use super::{DistributedTransaction, Participant};
use crate::client::cluster::unexpected;
use crate::client::dry_run;
use crate::client::error::TransactionError;
use crate::txn::{Change, DryRunChanges, Preview, add_before, changed_keys, changes_of};

impl DistributedTransaction {
    /// Begins a part that can be taken back alone, see [`crate::LocalTransaction::begin_part`].
    pub async fn begin_part(&mut self) -> Result<(), TransactionError> {
        self.begin().await?;
        self.before = Some((std::mem::take(&mut self.undo), self.events.len()));
        self.part(Savepoint::Begin).await
    }

    /// Makes the present part one with what was before.
    pub async fn keep_part(&mut self) -> Result<(), TransactionError> {
        if let Some((mut whole, _)) = self.before.take() {
            whole.append(std::mem::take(&mut self.undo));
            self.undo = whole;
        }
        self.part(Savepoint::Release).await
    }

    /// Takes the present part back.
    pub async fn undo_part(&mut self) -> Result<(), TransactionError> {
        self.undo.roll_back(&mut Partitions::One(&mut self.copies));
        let (undo, events) = self.before.take().unwrap_or_default();
        self.undo = undo;
        self.events.truncate(events);
        self.part(Savepoint::Rollback).await
    }

    /// Rolls the present part back and returns what it had changed, see [`crate::LocalTransaction::undo_part_with_changes`].
    pub async fn undo_part_with_changes(
        &mut self,
        most: usize,
    ) -> Result<(Vec<Change>, usize), TransactionError> {
        let (keys, omitted) = changed_keys(&self.undo, most);
        let mut keys = changes_of(keys, |db, key| self.preview(db, key));
        self.undo.roll_back(&mut Partitions::One(&mut self.copies));
        let (undo, events) = self.before.take().unwrap_or_default();
        self.undo = undo;
        self.events.truncate(events);
        add_before(&mut keys, |db, key| self.preview(db, key));
        let mut dry_run_changes = DryRunChanges { keys, omitted, databases: Vec::new() };
        if self.everything {
            let publish_keys = most.clamp(1, u32::MAX as usize) as u32;
            let step = wire::Step {
                savepoint: Savepoint::Rollback.into(),
                report_keys: publish_keys,
                ..self.step()
            };
            let pending: Vec<_> =
                self.participants.iter().map(|participant| participant.ask(step.clone())).collect();
            for answer in pending {
                let stepped = self.stepped(answer.answer().await, false)?;
                let all_changes = stepped.and_then(|stepped| stepped.rolled_back);
                let all_changes = all_changes.ok_or_else(|| TransactionError::Lost(unexpected()))?;
                dry_run_changes.add(dry_run::from_wire(all_changes), most);
            }
        }
        Ok(dry_run_changes.all_changes())
    }

    /// What is under a key whose value is here.
    fn preview(&self, db: usize, key: &[u8]) -> Option<Preview> {
        self.copies.databases[db].peek(key, self.now_ms).map(|entry| Preview::of(entry, self.now_ms))
    }

    /// Where everything is locked commands are run on the nodes, and parts are parts of their transactions.
    async fn part(&mut self, part: Savepoint) -> Result<(), TransactionError> {
        if !self.everything {
            return Ok(());
        }
        let ask =
            |participant: &Participant| participant.ask(wire::Step { savepoint: part.into(), ..self.step() });
        let pending: Vec<_> = self.participants.iter().map(ask).collect();
        for answer in pending {
            self.stepped(answer.answer().await, false)?;
        }
        Ok(())
    }
}
