//! The faces: protocols that turn into [`store_engine::Args`] and replies that turn into protocols.

mod acceptor;
mod eval;
pub mod grpc;
pub mod http;
pub mod resp;
mod told;
mod traced;
mod work;

pub use acceptor::Ready;
