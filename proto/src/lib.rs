//! How the engine's vocabulary looks on the wire between processes: the messages and services of the `.proto` files
//! of this crate, which document them.

/// Gateways ask each other.
pub mod fleet {
    /// The first version.
    #[allow(missing_docs, reason = "generated; the .proto file documents it")]
    #[allow(clippy::all, reason = "generated")]
    pub mod v1 {
        tonic::include_proto!("moonshard.fleet.v1");
    }
}

/// Gateways talk to store nodes, and nodes among themselves.
pub mod store {
    /// The first version.
    #[allow(missing_docs, reason = "generated; the .proto file documents it")]
    #[allow(clippy::all, reason = "generated")]
    pub mod v1 {
        tonic::include_proto!("moonshard.store.v1");
    }
}
