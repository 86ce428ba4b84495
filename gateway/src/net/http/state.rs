//! What all HTTP connections share.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use tower_http::cors::CorsLayer;

use crate::net::acceptor::Ready;
use crate::server::Server;

/// What all connections share.
pub struct HttpState {
    /// The server.
    pub server: Arc<Server>,
    /// Whether new requests are taken.
    pub ready: Ready,
    /// State of the random source of requests, and part of their names.
    pub requests: AtomicU64,
    /// Answers preflights, and says to browsers what other origins may read.
    pub cors: CorsLayer,
    /// The paths of [`super::routes`].
    pub paths: Vec<&'static str>,
}
