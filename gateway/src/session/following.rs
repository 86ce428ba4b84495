//! Which server this one follows as its replica, how far it is with that, and what clients may do meanwhile.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::config::Address;

/// What clients may do with the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// Everything: no server is followed.
    Primary,
    /// Read, as another server says what is written.
    Replica,
    /// Nothing: a part of the data of another server is there.
    Loading,
}

/// All modes by their numbers.
const MODES: [Mode; 3] = [Mode::Primary, Mode::Replica, Mode::Loading];

/// What was ordered last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Order {
    /// Each order has a number of its own, and later ones have larger ones.
    pub number: u64,
    /// The server that is to be followed.
    pub primary: Option<Address>,
    /// Another gateway has to do with the data now.
    pub is_left: bool,
}

/// How far the link to the primary is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stage {
    /// There is none.
    #[default]
    Down,
    /// The connection is being opened.
    Connecting,
    /// Says to the primary who asks, and what for.
    Handshake,
    /// A copy of all data is received.
    Sync,
    /// Changes are received.
    Connected,
}

impl Stage {
    /// As ROLE of Redis names it.
    pub fn word(self) -> &'static str {
        match self {
            Stage::Down => "connect",
            Stage::Connecting => "connecting",
            Stage::Handshake => "handshake",
            Stage::Sync => "sync",
            Stage::Connected => "connected",
        }
    }
}

/// What is known of the link to the primary.
#[derive(Clone, Debug, Default)]
pub struct LinkState {
    /// How far it is.
    pub stage: Stage,
    /// When something came last.
    pub heard: Option<Instant>,
    /// When it was lost; none before it was there for the first time.
    pub lost: Option<Instant>,
    /// Why it is down.
    pub why: String,
    /// The history that the data belongs to, as the primary names it.
    pub id: String,
    /// How many bytes of that history are applied; none before the first copy.
    pub offset: Option<u64>,
    /// Bytes that the copy has, if the primary says so.
    pub copy_bytes: Option<u64>,
    /// Bytes of the copy that were received.
    pub copied_bytes: u64,
}

/// The server that this one follows, if it does.
#[derive(Default)]
pub struct Following {
    orders: watch::Sender<Order>,
    /// The number of the newest order that was taken up.
    taken: watch::Sender<u64>,
    /// The place of the mode among all.
    mode: AtomicU8,
    /// The same, as far as another gateway of the same store nodes has to do with it.
    elsewhere: AtomicU8,
    /// Other gateways know that this one follows a server.
    registered: AtomicBool,
    /// The client that applies what the primary sends; 0: there is none yet.
    applier: AtomicU64,
    link: Mutex<LinkState>,
}

impl Following {
    /// What clients may do.
    #[inline]
    pub fn mode(&self) -> Mode {
        let (own, elsewhere) = (self.mode.load(Ordering::Relaxed), self.elsewhere.load(Ordering::Relaxed));
        // Only places of modes are ever stored, and the later ones restrict more.
        MODES[usize::from(own.max(elsewhere))]
    }

    /// What clients may do as this process follows a server, or does not.
    pub fn own_mode(&self) -> Mode {
        MODES[usize::from(self.mode.load(Ordering::Relaxed))]
    }

    /// Says what clients may do as another gateway follows a server, or does not.
    pub fn set_elsewhere(&self, mode: Mode) {
        self.elsewhere.store(mode as u8, Ordering::Relaxed);
    }

    /// Whether another gateway follows a server.
    pub fn is_elsewhere(&self) -> bool {
        self.elsewhere.load(Ordering::Relaxed) != Mode::Primary as u8
    }

    /// Whether other gateways know that this one follows a server.
    pub fn is_registered(&self) -> bool {
        self.registered.load(Ordering::Relaxed)
    }

    /// Says whether they do.
    pub fn set_registered(&self, registered: bool) {
        self.registered.store(registered, Ordering::Relaxed);
    }

    /// What this client may do.
    #[inline]
    pub fn mode_for(&self, client: u64) -> Mode {
        match self.mode() {
            Mode::Primary => Mode::Primary,
            _ if self.applier.load(Ordering::Relaxed) == client => Mode::Primary,
            restricted => restricted,
        }
    }

    /// Says what clients may do from now on.
    pub fn set_mode(&self, mode: Mode) {
        self.mode.store(mode as u8, Ordering::Relaxed);
    }

    /// Says which client applies what the primary sends.
    pub fn set_applier(&self, client: u64) {
        self.applier.store(client, Ordering::Relaxed);
    }

    /// The server that is to be followed.
    pub fn primary(&self) -> Option<Address> {
        self.orders.borrow().primary.clone()
    }

    /// Orders to follow this server; `false`: that was ordered before. Clients may only read from now on.
    pub fn follow(&self, primary: Address) -> bool {
        let is_new = self.orders.send_if_modified(|order| {
            let is_new = order.primary.as_ref() != Some(&primary);
            if is_new {
                *order = Order { number: order.number + 1, primary: Some(primary), is_left: false };
            }
            is_new
        });
        if is_new && self.own_mode() == Mode::Primary {
            self.set_mode(Mode::Replica);
        }
        is_new
    }

    /// Orders to follow no server, also where another gateway does. The number of the order.
    pub fn stop_everywhere(&self) -> u64 {
        let mut number = 0;
        self.orders.send_modify(|order| {
            *order = Order { number: order.number + 1, primary: None, is_left: false };
            number = order.number;
        });
        number
    }

    /// Orders to follow no server. The number of the order, if one is followed.
    pub fn stop(&self) -> Option<u64> {
        self.end(false)
    }

    /// The same as another gateway has to do with the data now. Whether one is followed.
    pub fn leave(&self) -> bool {
        self.end(true).is_some()
    }

    fn end(&self, is_left: bool) -> Option<u64> {
        let mut number = None;
        self.orders.send_if_modified(|order| {
            if order.primary.is_some() {
                *order = Order { number: order.number + 1, primary: None, is_left };
                number = Some(order.number);
            }
            number.is_some()
        });
        number
    }

    /// Hears of orders.
    pub fn orders(&self) -> watch::Receiver<Order> {
        self.orders.subscribe()
    }

    /// The order of this number is taken up: nothing happens any more that an earlier one has asked for.
    pub fn take_up(&self, number: u64) {
        self.taken.send_replace(number);
    }

    /// Waits until the order of this number, or a later one, is taken up.
    pub async fn taken_up(&self, number: u64) {
        let mut taken = self.taken.subscribe();
        // An error is impossible: the sender is a part of this.
        let _ = taken.wait_for(|taken| *taken >= number).await;
    }

    /// What is known of the link.
    pub fn link(&self) -> LinkState {
        self.link.lock().clone()
    }

    /// Changes what is known of the link.
    pub fn update(&self, change: impl FnOnce(&mut LinkState)) {
        change(&mut self.link.lock());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(port: u16) -> Address {
        Address { host: "localhost".to_owned(), port }
    }

    #[tokio::test]
    async fn orders_are_numbered_and_taken_up() {
        let following = Following::default();
        assert_eq!((following.mode(), following.stop(), following.primary()), (Mode::Primary, None, None));
        assert!(following.follow(address(1)));
        assert!(!following.follow(address(1)), "that is done already");
        assert!(following.follow(address(2)));
        assert_eq!((following.mode(), following.primary()), (Mode::Replica, Some(address(2))));
        let number = following.stop().expect("a server was followed");
        assert_eq!(number, 3);
        following.take_up(number);
        following.taken_up(number).await;
    }

    #[test]
    fn what_another_gateway_does_restricts_too() {
        let following = Following::default();
        following.set_elsewhere(Mode::Loading);
        assert_eq!((following.mode(), following.own_mode()), (Mode::Loading, Mode::Primary));
        following.set_mode(Mode::Replica);
        assert_eq!(following.mode(), Mode::Loading);
        following.set_elsewhere(Mode::Primary);
        assert_eq!((following.mode(), following.is_elsewhere()), (Mode::Replica, false));
        assert_eq!(following.stop_everywhere(), 1);
    }

    #[test]
    fn only_the_client_that_applies_changes_is_free() {
        let following = Following::default();
        following.set_applier(7);
        for mode in [Mode::Replica, Mode::Loading] {
            following.set_mode(mode);
            assert_eq!([following.mode_for(7), following.mode_for(8)], [Mode::Primary, mode]);
        }
    }
}
