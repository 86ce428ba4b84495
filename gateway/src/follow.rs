//! REPLICAOF: follows a server of the Redis protocol as its replica. It sends all its data once, then every change.
//!
//! What the server sends is applied by a session of this process, as the commands of a client are, except that nothing is
//! refused to it. Changes are applied in their order, and a transaction as one: a script of the server comes as one. While a
//! part of a copy is there, clients can read nothing; a record of the catalog says so beyond the end of the process.

mod adapt;
mod apply;
mod copy;
pub mod file_end;
mod link;
mod pause;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use store_engine::CommandError;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, sleep};
use tracing::{info, warn};

use self::apply::Applier;
use self::file_end::FileEnd;
use self::link::{Credentials, Link, Position, Start, silent};
use self::pause::Pauses;
use crate::commands::replicaof::{FOLLOWED, RECORDS, UNFINISHED};
use crate::config::Address;
use crate::process::dial::Remote;
use crate::server::Server;
use crate::session::following::{Mode, Order, Stage};

/// How often the primary gets the offset of this server, as in Redis.
const ACKNOWLEDGED: Duration = Duration::from_secs(1);
/// After an error of this process' own, such as one of its disk.
const AGAIN: Duration = Duration::from_secs(1);
/// Pieces of a copy, and batches of commands, that wait to be read.
const PIECES: usize = 16;
const BATCHES: usize = 2;

/// Takes up what the configuration says, and what an earlier process has left; before any client is there.
pub fn begin(server: &Server) {
    let following = &server.sessions.following;
    if let Some(primary) = server.config.primary() {
        following.follow(primary);
    }
    // With nodes elsewhere another gateway may be about to finish it.
    if server.store.node().is_some_and(|node| !node.records(RECORDS).is_empty()) {
        following.set_mode(Mode::Loading);
    }
}

/// Does what is ordered, for as long as the server runs.
pub async fn run(server: Arc<Server>) {
    let mut orders = server.sessions.following.orders();
    let mut follower = Follower::new(&server);
    loop {
        let order = orders.borrow_and_update().clone();
        follower.prepare(&order).await;
        server.sessions.following.take_up(order.number);
        match &order.primary {
            Some(primary) => follower.follow(primary, &mut orders).await,
            None if orders.changed().await.is_err() => return,
            None => {}
        }
    }
}

/// Why a link has ended.
enum Ended {
    /// Something else is ordered.
    Ordered,
    /// It was lost.
    Lost(String),
    /// Data of this server is not, or may not be, that of the primary: only a copy helps.
    Diverged(String),
}

impl From<String> for Ended {
    fn from(why: String) -> Ended {
        Ended::Lost(why)
    }
}

/// The part of this server that follows another one.
struct Follower {
    server: Arc<Server>,
    applier: Applier,
    /// How far the data is, if it is that of some server.
    position: Option<Position>,
}

impl Follower {
    fn new(server: &Arc<Server>) -> Follower {
        let applier = Applier::new(server);
        server.sessions.following.set_applier(applier.client());
        Follower { server: server.clone(), applier, position: None }
    }

    /// Makes the data one that the order fits: without a primary, a part of a copy is deleted, as no more of it will come.
    async fn prepare(&mut self, order: &Order) {
        let server = self.server.clone();
        let following = &server.sessions.following;
        if order.primary.is_some() {
            if following.own_mode() == Mode::Primary {
                following.set_mode(Mode::Replica);
            }
            server.store.hold_expired(true);
            return;
        }
        self.position = None;
        following.update(|link| *link = Default::default());
        following.set_registered(false);
        // At the start another gateway may follow a server.
        let is_left = order.is_left || (order.number == 0 && server.store.is_shared());
        if !is_left {
            while let Err(why) = self.end_following().await {
                warn!("replica: following another server cannot be ended: {why}");
                sleep(AGAIN).await;
            }
            following.set_elsewhere(Mode::Primary);
        }
        following.set_mode(Mode::Primary);
        server.store.hold_expired(server.sessions.holds_expired());
    }

    /// Deletes a part of a copy, and the records. Where another gateway has done so, nothing is left to do.
    async fn end_following(&mut self) -> Result<(), String> {
        let records = self.server.store.records(RECORDS).await.map_err(|error| error.text().to_owned())?;
        if records.is_empty() {
            return Ok(());
        }
        if records.iter().any(|(name, _)| name == UNFINISHED) {
            self.applier.empty().await?;
            warn!("replica: the copy of another server's data was not finished and has been deleted");
        }
        self.forget(&[FOLLOWED, UNFINISHED]).await.map_err(|error| error.text().to_owned())
    }

    /// Keeps a record that this process has to do with.
    async fn keep(&self, name: &[u8]) -> Result<(), CommandError> {
        self.server.store.put_record(RECORDS, name, self.server.process.run_id.as_bytes()).await
    }

    async fn forget(&self, names: &[&[u8]]) -> Result<(), CommandError> {
        let names = names.iter().map(|name| name.to_vec()).collect();
        self.server.store.change_records(RECORDS, Vec::new(), names).await
    }

    /// Follows a server until something else is ordered.
    async fn follow(&mut self, primary: &Address, orders: &mut watch::Receiver<Order>) {
        info!("replica: following {primary}");
        self.server.sessions.following.update(|link| {
            (link.stage, link.heard, link.lost) = (Stage::Down, None, None);
            link.why.clear();
        });
        let mut pauses = Pauses::default();
        let mut logged = String::new();
        loop {
            let ended = self.live(primary, orders, &mut pauses).await;
            let Err(ended) = ended;
            self.applier.forget_transaction();
            let why = match ended {
                Ended::Ordered => {
                    info!("replica: not following {primary} any more");
                    return;
                }
                Ended::Lost(why) => why,
                Ended::Diverged(why) => {
                    self.position = None;
                    pauses.lengthen();
                    why
                }
            };
            // Each attempt that fails as the one before is one line for all of them.
            if why != logged {
                warn!("replica: {primary} {why}");
            }
            self.server.sessions.following.update(|link| {
                if link.stage == Stage::Connected || link.lost.is_none() {
                    link.lost = Some(Instant::now());
                }
                link.stage = Stage::Down;
                link.why.clone_from(&why);
            });
            logged = why;
            tokio::select! {
                biased;
                _ = orders.changed() => return,
                () = sleep(pauses.next()) => {}
            }
        }
    }

    /// One connection, from its beginning to its end.
    async fn live(
        &mut self,
        primary: &Address,
        orders: &mut watch::Receiver<Order>,
        pauses: &mut Pauses,
    ) -> Result<Infallible, Ended> {
        let (mut link, start) = tokio::select! {
            biased;
            _ = orders.changed() => return Err(Ended::Ordered),
            begun = self.connect(primary) => begun?,
        };
        match start {
            Start::Rest(id) => {
                if let (Some(position), Some(id)) = (&mut self.position, id) {
                    position.id = id;
                }
                info!("replica: {primary} sends what has changed since the link was lost");
            }
            Start::Copy(position) => {
                info!("replica: {primary} sends a copy of all data");
                self.position = None;
                tokio::select! {
                    biased;
                    _ = orders.changed() => return Err(Ended::Ordered),
                    loaded = self.load(&mut link) => loaded.inspect_err(|_| pauses.lengthen())?,
                }
                info!("replica: the copy of {primary} is complete");
                self.position = Some(position);
            }
        }
        let began = Instant::now();
        let Err(ended) = self.stream(&mut link, orders).await;
        pauses.shorten(began.elapsed());
        Err(ended)
    }

    /// Connects, and asks for what is missing.
    async fn connect(&self, primary: &Address) -> Result<(Link, Start), Ended> {
        let (server, config) = (&self.server, &self.server.config);
        let following = &server.sessions.following;
        if server.store.is_shared() && !following.is_registered() {
            let kept = self.keep(FOLLOWED).await;
            kept.map_err(|error| Ended::Lost(format!("cannot be followed: {}", error.text())))?;
            following.set_registered(true);
        }
        let tls = match config.tls_replication.get() {
            true => match server.process.certificates.outgoing() {
                Some(tls) => Some(tls),
                None => {
                    return Err(Ended::Lost("needs tls-ca-cert-file, as tls-replication is yes".to_owned()));
                }
            },
            false => None,
        };
        following.update(|link| link.stage = Stage::Connecting);
        let remote = Remote { address: primary.to_string(), name: None, tls };
        let time_limit = Duration::from_secs(config.repl_timeout.get());
        let mut link = Link::open(&remote, time_limit).await?;
        following.update(|link| link.stage = Stage::Handshake);
        let credentials = Credentials {
            user: config.masteruser.get(),
            password: config.masterauth.get(),
            port: server.process.resp_addr.port(),
        };
        link.introduce(&credentials).await?;
        let start = link.synchronize(self.position.as_ref()).await?;
        following.update(|link| link.heard = Some(Instant::now()));
        Ok((link, start))
    }

    /// Replaces all data by the copy that comes.
    async fn load(&mut self, link: &mut Link) -> Result<(), Ended> {
        self.server.sessions.following.update(|state| {
            (state.stage, state.copy_bytes, state.copied_bytes) = (Stage::Sync, None, 0);
        });
        let end = link.copy().await?;
        self.server.sessions.following.update(|state| state.copy_bytes = end.left());
        self.applier.end_loading();
        let (pieces, read) = tokio::sync::mpsc::channel(PIECES);
        let (batches, mut come) = tokio::sync::mpsc::channel(BATCHES);
        let (server, behind_ms) = (self.server.clone(), self.applier.behind_ms());
        let receiving = async { receive_copy(&server, link, end, pieces).await.map_err(Ended::Lost) };
        let reading = tokio::task::spawn_blocking(move || copy::read(read, &batches, behind_ms));
        let applying = async {
            while let Some(batch) = come.recv().await {
                if !self.applier.is_loading() {
                    self.keep(UNFINISHED).await.map_err(|error| Ended::Lost(own(error.text())))?;
                    self.server.sessions.following.set_mode(Mode::Loading);
                    self.applier.empty().await.map_err(|why| Ended::Lost(own(&why)))?;
                }
                self.applier.load(batch).await.map_err(|why| Ended::Lost(own(&why)))?;
            }
            match reading.await {
                Ok(read) => read.map_err(Ended::Lost),
                Err(error) => Err(Ended::Lost(own(&error.to_string()))),
            }
        };
        let loaded = tokio::try_join!(receiving, applying);
        self.applier.end_loading();
        loaded?;
        self.forget(&[UNFINISHED]).await.map_err(|error| Ended::Lost(own(error.text())))?;
        self.server.sessions.following.set_mode(Mode::Replica);
        Ok(())
    }

    /// Applies what changes, as it comes.
    async fn stream(
        &mut self,
        link: &mut Link,
        orders: &mut watch::Receiver<Order>,
    ) -> Result<Infallible, Ended> {
        self.server.sessions.following.update(|state| {
            (state.stage, state.lost, state.heard) = (Stage::Connected, None, Some(Instant::now()));
            state.why.clear();
        });
        self.report();
        let mut parser = apply::parser();
        let mut due = interval(ACKNOWLEDGED);
        due.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut heard = Instant::now();
        loop {
            if self.apply_received(link, &mut parser, orders).await? {
                due.reset_immediately();
            }
            self.report();
            tokio::select! {
                biased;
                _ = orders.changed() => return Err(Ended::Ordered),
                _ = due.tick() => {
                    let time_limit = Duration::from_secs(self.server.config.repl_timeout.get());
                    if heard.elapsed() >= time_limit {
                        return Err(Ended::Lost(silent(time_limit)));
                    }
                    tokio::select! {
                        biased;
                        _ = orders.changed() => return Err(Ended::Ordered),
                        done = self.acknowledge(link) => done?,
                    }
                }
                come = link.receive() => {
                    come?;
                    heard = Instant::now();
                    self.server.sessions.following.update(|state| state.heard = Some(heard));
                }
            }
        }
    }

    /// Applies all complete commands. Whether the primary wants to know how far this server is.
    async fn apply_received(
        &mut self,
        link: &mut Link,
        parser: &mut resp::Parser,
        orders: &watch::Receiver<Order>,
    ) -> Result<bool, Ended> {
        let mut is_asked = false;
        loop {
            // Between two commands, never within a transaction of the primary, as that is applied by one.
            if orders.has_changed().unwrap_or(true) {
                return Err(Ended::Ordered);
            }
            let (consumed, is_request) = match parser.next(link.rest()) {
                Ok(resp::Step::Request(request)) => {
                    let args = request.slices(link.rest());
                    is_asked |= self.applier.apply(&args).await.map_err(Ended::Diverged)?;
                    (request.consumed, true)
                }
                Ok(resp::Step::Incomplete { consumed, .. }) => (consumed, false),
                Err(error) => {
                    return Err(Ended::Diverged(format!("sends what is no command: {error}")));
                }
            };
            link.advance(consumed);
            self.applier.count(consumed);
            if let Some(position) = &mut self.position {
                position.offset += self.applier.take_applied();
            }
            if !is_request {
                return Ok(is_asked);
            }
        }
    }

    /// Says how far this server is: as far as durability promises that the changes stay.
    async fn acknowledge(&self, link: &mut Link) -> Result<(), Ended> {
        let Some(offset) = self.position.as_ref().map(|position| position.offset) else { return Ok(()) };
        if let Some(journal) = self.server.store.journal()
            && journal.settle(true).await.is_err()
        {
            return Ok(());
        }
        Ok(link.send(&[b"REPLCONF", b"ACK", offset.to_string().as_bytes()]).await?)
    }

    fn report(&self) {
        if let Some(position) = &self.position {
            self.server.sessions.following.update(|state| {
                state.offset = Some(position.offset);
                if state.id != position.id {
                    state.id.clone_from(&position.id);
                }
            });
        }
    }
}

/// Receives a copy, and hands it on in pieces.
async fn receive_copy(
    server: &Server,
    link: &mut Link,
    mut end: FileEnd,
    pieces: tokio::sync::mpsc::Sender<Vec<u8>>,
) -> Result<(), String> {
    loop {
        let (held, is_end) = end.of(link.rest());
        if held > 0 {
            // Who reads them has all it needs, or says what is wrong: in either case the rest is no more than received.
            let _ = pieces.send(link.rest()[..held].to_vec()).await;
            link.advance(held);
            end.take(held);
            server.sessions.following.update(|state| {
                (state.copied_bytes, state.heard) = (state.copied_bytes + held as u64, Some(Instant::now()));
            });
        }
        if is_end {
            link.advance(end.mark_bytes());
            return Ok(());
        }
        link.receive_in_time().await?;
    }
}

/// What has failed here, as the log says it of the primary.
fn own(why: &str) -> String {
    format!("has sent a copy that is not taken: {why}")
}
