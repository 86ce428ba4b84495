//! The faces: protocols that turn into [`store_engine::Args`] and replies that turn into protocols.

pub mod grpc;
pub mod http;
pub mod resp;
