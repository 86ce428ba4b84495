//! What a process begins with that serves gateways and other processes: a listener that only they may use.

use std::net::SocketAddr;
use std::sync::Arc;

use store::Node;
use store::client::PeerCredentials;
use store::server::Configure;
use tokio::net::TcpListener;

use super::errors::StartError;
use super::{Signals, listen};
use crate::config::{Config, SettingError};
use crate::process::certificates::Certificates;
use crate::process::descriptors;
use crate::process::persistence::token;
use crate::telemetry::counters::Listener;
use crate::telemetry::log;

/// What a process that serves other processes begins with.
pub(super) struct Beginning {
    pub signals: Signals,
    pub certificates: Arc<Certificates>,
    pub credentials: PeerCredentials,
    pub listener: TcpListener,
    pub bound: SocketAddr,
}

/// Reads what is configured, and listens.
pub(super) fn begin(config: &Arc<Config>) -> Result<Beginning, StartError> {
    let signals = Signals::new()?;
    log::follow(config);
    descriptors::raise_limit();
    config.stores.set(Vec::new());
    let certificates = Arc::new(Certificates::load(config)?);
    // What is spoken here is spoken among nodes.
    let tls = certificates.of(Listener::Grpc).cloned();
    if tls.is_some() && config.tls_ca_cert_file.get().is_none() {
        let why = "tls-ca-cert-file is required to verify other nodes";
        return Err(SettingError::new("tls-cert-file", why).into());
    }
    let credentials = PeerCredentials { token: token(config)?, tls };
    let address = config.grpc.get().ok_or(SettingError::new("grpc", "no address is set"))?;
    let (listener, bound) = listen("grpc", &address, config)?;
    let knows_peers =
        credentials.token.is_some() || credentials.tls.as_ref().is_some_and(|tls| tls.knows_clients());
    if !knows_peers && !bound.ip().is_loopback() {
        let why = "the address is not a loopback address, so unauthenticated peers could change all data; set \
                   cluster-token-file, or enable TLS with tls-auth-clients";
        return Err(SettingError::new("grpc", format_args!("{bound}: {why}")).into());
    }
    Ok(Beginning { signals, certificates, credentials, listener, bound })
}

/// What changes parameters of a node as gateways ask for it.
pub(super) fn configure(config: &Arc<Config>, node: &Arc<Node>) -> Configure {
    let (node, config) = (node.clone(), config.clone());
    Box::new(move |settings: &[(String, String)]| {
        let pairs: Vec<_> =
            settings.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())).collect();
        config.set(&pairs)?;
        log::follow(&config);
        config.apply_settings_of_data(&node);
        Ok(())
    })
}
