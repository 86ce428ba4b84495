//! Its parts, which can be taken back alone.

use proto::store::v1 as wire;
use store_engine::Partitions;
use wire::step::Savepoint;

use super::{DistributedTransaction, Participant};
use crate::client::cluster::unexpected;
use crate::client::error::TransactionError;
use crate::client::rehearsal;
use crate::txn::{Change, Preview, Rehearsed, add_before, changed_keys, changes_of};

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

    /// Takes the present part back and tells what it had changed, see [`crate::LocalTransaction::undo_part_telling`].
    pub async fn undo_part_telling(&mut self, most: usize) -> Result<(Vec<Change>, usize), TransactionError> {
        let (keys, omitted) = changed_keys(&self.undo, most);
        let mut keys = changes_of(keys, |db, key| self.preview(db, key));
        self.undo.roll_back(&mut Partitions::One(&mut self.copies));
        let (undo, events) = self.before.take().unwrap_or_default();
        self.undo = undo;
        self.events.truncate(events);
        add_before(&mut keys, |db, key| self.preview(db, key));
        let mut rehearsed = Rehearsed { keys, omitted, databases: Vec::new() };
        if self.everything {
            let tell_keys = most.clamp(1, u32::MAX as usize) as u32;
            let step =
                wire::Step { savepoint: Savepoint::Rollback.into(), report_keys: tell_keys, ..self.step() };
            let pending: Vec<_> =
                self.participants.iter().map(|participant| participant.ask(step.clone())).collect();
            for answer in pending {
                let stepped = self.stepped(answer.answer().await, false)?;
                let told = stepped.and_then(|stepped| stepped.rolled_back);
                let told = told.ok_or_else(|| TransactionError::Lost(unexpected()))?;
                rehearsed.add(rehearsal::from_wire(told), most);
            }
        }
        Ok(rehearsed.told())
    }

    /// What is under a key whose value is here.
    fn preview(&self, db: usize, key: &[u8]) -> Option<Preview> {
        self.copies.databases[db].peek(key, self.now_ms).map(Preview::of)
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
