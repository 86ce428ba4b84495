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

/// Clients talk to gateways.
pub mod gateway {
    /// The first version.
    #[allow(missing_docs, reason = "generated; the .proto file documents it")]
    #[allow(clippy::all, reason = "generated")]
    pub mod v1 {
        tonic::include_proto!("moonshard.gateway.v1");

        /// The file that describes all this, compiled: for whoever asks the server what it can do.
        pub const DESCRIPTION: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/gateway.v1.bin"));
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
