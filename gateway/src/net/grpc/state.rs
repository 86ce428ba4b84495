//! What all gRPC connections share.

use std::sync::Arc;

use tonic::service::Routes;

use crate::net::acceptor::Ready;
use crate::server::Server;

/// What all connections share.
pub struct GrpcState {
    /// The server.
    pub server: Arc<Server>,
    /// Whether new calls are taken.
    pub ready: Ready,
    /// Health and reflection.
    pub others: Routes,
}
