//! What the rows of several families have in common.

use store_engine::spec::{Access, flags};
use store_engine::{Arity, Command, Group, KeyPart, Routing};

/// A command about the connection or the server.
pub const CONNECTION: Command = Command {
    group: Group::Connection,
    arity: Arity::Exactly(1),
    keys: KeyPart::NONE,
    access: Access::Read,
    flags: flags::FAST,
    routing: Routing::Anywhere,
    ..Command::BASE
};

/// A command of transactions.
pub const TRANSACTIONS: Command = Command {
    group: Group::Transactions,
    arity: Arity::Exactly(1),
    keys: KeyPart::NONE,
    access: Access::Read,
    flags: flags::NO_SCRIPT | flags::FAST,
    routing: Routing::Anywhere,
    ..Command::BASE
};

/// The version of Redis whose behaviour is followed; clients choose their features by it.
pub const REDIS_VERSION: &str = "7.0.15";
