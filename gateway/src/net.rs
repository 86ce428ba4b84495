//! The faces: protocols that turn into [`store_engine::Args`] and replies that turn into protocols.

pub mod acceptor;
mod eval;
pub mod grpc;
pub mod http;
mod report;
pub mod request;
pub mod resp;
mod traced;

pub use acceptor::Ready;
