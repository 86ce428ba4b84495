//! How the engine's vocabulary looks on the wire between processes, and on disk: the messages and services of the
//! `.proto` files of this crate, which document them. `make proto` generates the code after a change of a `.proto` file.

pub mod bounded;
mod reserving;

/// Store nodes keep records on disk.
pub mod disk {
    /// The first version.
    #[allow(missing_docs, reason = "generated; the .proto file documents it")]
    #[allow(clippy::all, reason = "generated")]
    pub mod v1 {
        include!("generated/moonshard.disk.v1.rs");
    }
}

/// Gateways ask each other.
pub mod fleet {
    /// The first version.
    #[allow(missing_docs, reason = "generated; the .proto file documents it")]
    #[allow(clippy::all, reason = "generated")]
    pub mod v1 {
        include!("generated/moonshard.fleet.v1.rs");
    }
}

/// Clients talk to gateways.
pub mod gateway {
    /// The first version.
    #[allow(missing_docs, reason = "generated; the .proto file documents it")]
    #[allow(clippy::all, reason = "generated")]
    pub mod v1 {
        include!("generated/moonshard.gateway.v1.rs");

        /// The compiled descriptor of this package, for clients that ask the server which services it has.
        pub const DESCRIPTION: &[u8] = include_bytes!("generated/gateway.v1.bin");
    }
}

/// Gateways talk to store nodes, and nodes among themselves.
pub mod store {
    /// The first version.
    #[allow(missing_docs, reason = "generated; the .proto file documents it")]
    #[allow(clippy::all, reason = "generated")]
    pub mod v1 {
        include!("generated/moonshard.store.v1.rs");
    }
}
