//! The versions of files and payloads: those that are read and those that are written.

/// The newest version of Redis that is read, that of 8.10.
const NEWEST_OF_REDIS: u16 = 15;
/// Those of Valkey 9.0 and 9.2, which has left the numbers between to Redis.
const OF_VALKEY: [u16; 2] = [80, 81];

/// Whose form a file or a payload has: above some number, Redis and Valkey use the same ones for different things.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// That of Redis, and of Valkey before 9.0.
    Redis,
    /// That of Valkey since 9.0.
    Valkey,
}

impl Dialect {
    /// That of a version, if it is one that is read.
    pub fn of_version(version: u16) -> Option<Dialect> {
        match version {
            ..=NEWEST_OF_REDIS => Some(Dialect::Redis),
            version if OF_VALKEY.contains(&version) => Some(Dialect::Valkey),
            _ => None,
        }
    }
}

/// A version that is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Version {
    /// That of Redis 7.0, which cannot read it if fields of a hash expire.
    #[default]
    Redis7_0,
    /// That of Redis 7.4.
    Redis7_4,
    /// That of Valkey 9.0.
    Valkey9_0,
}

impl Version {
    /// All of them.
    pub const ALL: [Version; 3] = [Version::Redis7_0, Version::Redis7_4, Version::Valkey9_0];

    /// The number in files and payloads.
    pub fn number(self) -> u16 {
        match self {
            Version::Redis7_0 => 10,
            Version::Redis7_4 => 12,
            Version::Valkey9_0 => 80,
        }
    }

    /// The version with this number, if it is one that is written.
    pub fn of_number(number: u16) -> Option<Version> {
        Version::ALL.into_iter().find(|version| version.number() == number)
    }

    /// Whose form it is.
    pub fn dialect(self) -> Dialect {
        match self {
            Version::Redis7_0 | Version::Redis7_4 => Dialect::Redis,
            Version::Valkey9_0 => Dialect::Valkey,
        }
    }
}
