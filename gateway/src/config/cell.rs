//! Where values are kept: cells that any thread may read while one of them changes.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::RwLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// A number. Nothing else is published with it, so `Relaxed` is enough.
#[derive(Debug, Default)]
pub struct Number(AtomicU64);

impl Number {
    /// What it is now.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// The same, for sizes and counts in memory; what does not fit is as good as no limit.
    #[inline]
    pub fn get_usize(&self) -> usize {
        usize::try_from(self.get()).unwrap_or(usize::MAX)
    }

    /// Changes it for everybody.
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }
}

/// When a client that does not read is cut off.
#[derive(Debug, Default)]
pub struct OutputLimits {
    /// Of its replies.
    pub normal: OutputLimit,
    /// Of what it has subscribed to.
    pub pubsub: OutputLimit,
}

impl OutputLimits {
    /// The classes of clients with their limits.
    pub(super) fn classes(&self) -> [(&'static str, &OutputLimit); 2] {
        [("normal", &self.normal), ("pubsub", &self.pubsub)]
    }
}

/// The limit of one class of clients.
#[derive(Debug, Default)]
pub struct OutputLimit {
    /// Bytes waiting that end the connection at once; 0 is no limit.
    pub hard: Number,
    /// Bytes waiting that end it if they stay that many; 0 is no limit.
    pub soft: Number,
    /// How long `soft` may be exceeded.
    pub soft_seconds: Number,
}

/// How long the name of a host may be: that of a domain name.
const MOST_HOST_BYTES: usize = 253;

/// A host and a port to listen on. Names are resolved when they are used, not when they are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// An IP address or a name.
    pub host: String,
    /// 0 lets the system choose.
    pub port: u16,
}

impl Address {
    /// `HOST:PORT`; an IPv6 address stands in brackets.
    pub fn parse(text: &str) -> Option<Address> {
        let (host, port) = text.rsplit_once(':')?;
        let digits = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
        let port = port.parse().ok().filter(|_| digits)?;
        let host = match host.strip_prefix('[') {
            Some(inner) => inner.strip_suffix(']').filter(|inner| inner.parse::<IpAddr>().is_ok())?,
            None => {
                let named = !host.is_empty()
                    && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte));
                named.then_some(host)?
            }
        };
        Some(Address { host: host.to_owned(), port })
    }

    /// A host and a port, as two words.
    pub fn of_words(host: &str, port: i64) -> Option<Address> {
        let is_host = (1..=MOST_HOST_BYTES).contains(&host.len())
            && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_:".contains(&byte));
        let port = u16::try_from(port).ok()?;
        is_host.then(|| Address { host: host.to_owned(), port })
    }

    /// The first socket address it stands for.
    pub fn resolve(&self) -> io::Result<SocketAddr> {
        let missing = || io::Error::new(io::ErrorKind::NotFound, format!("{} has no address", self.host));
        (self.host.as_str(), self.port).to_socket_addrs()?.next().ok_or_else(missing)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// A value that is read rarely.
#[derive(Debug, Default)]
pub struct ValueCell<T>(RwLock<T>);

impl<T: Clone> ValueCell<T> {
    /// What it is now.
    pub fn get(&self) -> T {
        self.0.read().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }

    /// Replaces it.
    pub fn set(&self, value: T) {
        *self.0.write().unwrap_or_else(|poisoned| poisoned.into_inner()) = value;
    }
}

/// An address; none means off. Set while the server starts; the listener writes down the port that it got.
pub type AddressCell = ValueCell<Option<Address>>;
/// Addresses of others. Set while the server starts.
pub type AddressesCell = ValueCell<Vec<Address>>;
/// A folder or file, if there is one. Set while the server starts.
pub type DirCell = ValueCell<Option<PathBuf>>;
/// A text.
pub type TextCell = ValueCell<String>;
/// Names. Set while the server starts.
pub type NamesCell = ValueCell<Vec<String>>;

impl NamesCell {
    /// Whether `name` is among them, or all are.
    pub fn allow(&self, name: &str) -> bool {
        let names = self.0.read().unwrap_or_else(|poisoned| poisoned.into_inner());
        names.iter().any(|known| known == "*" || known.eq_ignore_ascii_case(name))
    }
}

/// A text that is shown to administrators only.
#[derive(Default)]
pub struct Secret(ValueCell<String>);

impl Secret {
    /// The text.
    pub fn get(&self) -> String {
        self.0.get()
    }

    /// Replaces it.
    pub fn set(&self, text: String) {
        self.0.set(text);
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(redacted)")
    }
}

#[cfg(test)]
mod tests {
    use super::Address;

    #[test]
    fn addresses_survive_a_round_trip() {
        for text in ["127.0.0.1:6379", "localhost:0", "[::1]:6379", "my-host.example:65535", "0.0.0.0:80"] {
            assert_eq!(Address::parse(text).expect(text).to_string(), text);
        }
    }

    #[test]
    fn half_addresses_are_refused() {
        for text in [
            "",
            "6379",
            ":6379",
            "localhost",
            "localhost:",
            "localhost:65536",
            "::1:6379",
            "[::1]",
            "[x]:1",
            "a:+1",
        ] {
            assert_eq!(Address::parse(text), None, "{text}");
        }
    }
}
