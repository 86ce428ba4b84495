//! How the parts of a cluster know that they are among themselves.

use std::sync::Arc;

use tls::Tls;

/// What a process of a cluster shows to others, and wants to see of them.
#[derive(Clone, Default)]
pub struct PeerCredentials {
    /// A word that all know.
    pub token: Option<String>,
    /// Connections are TLS, and those that are connected to must have certificates. Otherwise everything can be read
    /// on the way.
    pub tls: Option<Arc<Tls>>,
}
