//! What connections are made of: TCP, or TLS over it, with certificates from files that are read again when they change.

mod error;
mod files;
mod roots;
mod wire;

pub use error::TlsError;
pub use files::{Clients, Files, Protocol, Tls};
pub use roots::Roots;
pub use wire::{Detached, Wire};
