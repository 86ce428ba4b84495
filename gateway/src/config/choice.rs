//! Parameters whose value is one of some words: read once, and kept as what the word stands for.

use std::fmt;
use std::marker::PhantomData;

use script::{Compile, Instances};
use store::OnFull;
use store::journal::{Durability, Reads};
use store_engine::evict::{Order, Policy};
use tracing_subscriber::filter::LevelFilter;

use super::cell::Number;

/// What the words of a parameter stand for.
pub trait Choice: Copy + PartialEq + 'static {
    /// The words, separated by `|`.
    const WORDS: &'static str;
    /// What they stand for, in their order.
    const VALUES: &'static [Self];

    /// What a word stands for.
    fn named(word: &str) -> Option<Self> {
        let place = Self::WORDS.split('|').position(|known| known == word)?;
        Self::VALUES.get(place).copied()
    }

    /// The word for a value.
    fn word(self) -> &'static str {
        let mut words = Self::WORDS.split('|').zip(Self::VALUES);
        words.find(|(_, value)| **value == self).map_or("", |(word, _)| word)
    }
}

/// The value of a parameter, which any thread may read while it changes.
pub struct ChoiceCell<C> {
    /// The place of its word.
    pub(super) place: Number,
    choice: PhantomData<C>,
}

impl<C: Choice> ChoiceCell<C> {
    /// What it is now.
    #[inline]
    pub fn get(&self) -> C {
        // Only places of words are ever stored, and `choices!` gives each word its value.
        C::VALUES[self.place.get() as usize]
    }
}

impl<C> Default for ChoiceCell<C> {
    fn default() -> ChoiceCell<C> {
        ChoiceCell { place: Number::default(), choice: PhantomData }
    }
}

impl<C> fmt::Debug for ChoiceCell<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.place.fmt(f)
    }
}

/// What becomes of the writes of a script that ends with an error of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnError {
    /// They stay, as in Redis.
    Keep,
    /// They are undone.
    RollBack,
}

/// What happens when an atomic script comes to a key that it did not declare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UndeclaredKeys {
    /// The key is locked; if another transaction has it, the script is rolled back and runs again.
    Widen,
    /// The call fails, as in Dragonfly.
    Reject,
}

/// Which scripts collect calls whose results they do not use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AutoAsync {
    /// None.
    Never,
    /// Those that gave up atomicity.
    Async,
    /// All. Not by default: the store is a function call away, and a hundred INCR collected and sent together took 1.4
    /// times the CPU time of a hundred INCR.
    Always,
}

/// What becomes of a script whose client disconnects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientGone {
    /// It is ended and undone.
    RollBack,
    /// It goes on.
    Finish,
}

/// Whether TLS clients must present a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthClients {
    /// If it is known who may have signed it.
    Auto,
    /// They must.
    Yes,
    /// They may.
    Optional,
    /// They need not.
    No,
}

/// The channels of a new user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewUserChannels {
    /// All.
    All,
    /// None.
    None,
}

/// For whom log lines are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Pretty,
    /// For programs.
    Json,
}

/// How messages are sent to an OpenTelemetry collector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtlpProtocol {
    /// As calls of gRPC.
    Grpc,
    /// As bodies of HTTP/1.1 requests.
    HttpProtobuf,
}

/// How the messages to a collector are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtlpCompression {
    /// Not at all.
    None,
    /// With gzip.
    Gzip,
}

macro_rules! choices {
    ($($choice:ty { $first:literal => $value:expr $(, $word:literal => $other:expr)* })+) => {
        $(
            impl Choice for $choice {
                const WORDS: &'static str = concat!($first $(, "|", $word)*);
                const VALUES: &'static [Self] = &[$value $(, $other)*];
            }
        )+
    };
}

choices! {
    bool { "no" => false, "yes" => true }
    Reads { "lease" => Reads::Lease, "quorum" => Reads::Quorum }
    Durability { "periodic" => Durability::Periodic, "sync" => Durability::Sync }
    AuthClients {
        "auto" => AuthClients::Auto, "yes" => AuthClients::Yes, "optional" => AuthClients::Optional,
        "no" => AuthClients::No
    }
    OnError { "keep" => OnError::Keep, "rollback" => OnError::RollBack }
    UndeclaredKeys { "widen" => UndeclaredKeys::Widen, "reject" => UndeclaredKeys::Reject }
    AutoAsync { "never" => AutoAsync::Never, "async" => AutoAsync::Async, "always" => AutoAsync::Always }
    ClientGone { "rollback" => ClientGone::RollBack, "finish" => ClientGone::Finish }
    Instances { "rewind" => Instances::Rewind, "fresh" => Instances::Fresh }
    Compile { "auto" => Compile::Auto, "always" => Compile::Always, "never" => Compile::Never }
    OnFull { "rollback" => OnFull::RollBack, "refuse" => OnFull::Refuse, "allow" => OnFull::Allow }
    NewUserChannels { "allchannels" => NewUserChannels::All, "resetchannels" => NewUserChannels::None }
    LogFormat { "pretty" => LogFormat::Pretty, "json" => LogFormat::Json }
    OtlpProtocol { "grpc" => OtlpProtocol::Grpc, "http/protobuf" => OtlpProtocol::HttpProtobuf }
    OtlpCompression { "none" => OtlpCompression::None, "gzip" => OtlpCompression::Gzip }
    LevelFilter {
        "debug" => LevelFilter::DEBUG, "info" => LevelFilter::INFO, "warning" => LevelFilter::WARN
    }
    Option<Policy> {
        "volatile-lru" => policy(true, Order::Idle),
        "volatile-lfu" => policy(true, Order::Rare),
        "volatile-random" => policy(true, Order::Random),
        "volatile-ttl" => policy(true, Order::Soonest),
        "allkeys-lru" => policy(false, Order::Idle),
        "allkeys-lfu" => policy(false, Order::Rare),
        "allkeys-random" => policy(false, Order::Random),
        "noeviction" => None
    }
}

const fn policy(volatile: bool, order: Order) -> Option<Policy> {
    Some(Policy { volatile, order })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_values_are_told_from_each_other() {
        assert_eq!(Durability::named("sync"), Some(Durability::Sync));
        assert_eq!(Durability::named("Sync"), None);
        assert_eq!(Durability::Sync.word(), "sync");
        assert_eq!(Option::<Policy>::named("noeviction"), Some(None));
        let cell = ChoiceCell::<AutoAsync>::default();
        assert_eq!(cell.get(), AutoAsync::Never);
        cell.place.set(2);
        assert_eq!(cell.get(), AutoAsync::Always);
    }
}
