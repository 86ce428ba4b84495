//! Which connections are TLS, and who has to show a certificate.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use store::client::PeerCredentials;
use tls::{Clients, Files, Protocol, Roots, Tls, Wire};
use tokio::net::TcpStream;
use tracing::info;

use crate::config::{AuthClients, Config, SettingError};
use crate::process::persistence::token;
use crate::telemetry::counters::Listener;

/// How often it is looked whether the files have changed.
const LOOK: Duration = Duration::from_secs(2);

/// What the parameters that begin with `tls-` say.
#[derive(Default)]
pub struct Certificates {
    tls: Option<Arc<Tls>>,
    /// Listeners that use TLS, as bits in the order of `tls-listeners`.
    listeners: u64,
    stores: bool,
}

impl Certificates {
    /// Reads the files; else which parameter is wrong, and why.
    pub fn load(config: &Config) -> Result<Certificates, SettingError> {
        let [cert, key, roots] =
            [&config.tls_cert_file, &config.tls_key_file, &config.tls_ca_cert_file].map(|file| file.get());
        let stores = config.tls_stores.get();
        if stores && roots.is_none() {
            let reason = "tls-ca-cert-file is required to verify the certificates of store nodes";
            return Err(SettingError::new("tls-stores", reason));
        }
        if config.tls_replication.get() && roots.is_none() {
            let reason =
                "tls-ca-cert-file is required to verify the certificate of the server that is followed";
            return Err(SettingError::new("tls-replication", reason));
        }
        let own: Option<(PathBuf, PathBuf)> = match (cert, key) {
            (Some(cert), Some(key)) => Some((cert, key)),
            (None, None) => None,
            (Some(_), None) => return Err(SettingError::new("tls-cert-file", "requires tls-key-file")),
            (None, Some(_)) => return Err(SettingError::new("tls-key-file", "requires tls-cert-file")),
        };
        let clients = match (config.tls_auth_clients.get(), &roots) {
            (AuthClients::Auto, None) | (AuthClients::No, _) => Clients::Anyone,
            (AuthClients::Auto | AuthClients::Yes, Some(_)) => Clients::Known,
            (AuthClients::Optional, Some(_)) => Clients::Optional,
            _ => {
                let reason = "tls-ca-cert-file is required to verify client certificates";
                return Err(SettingError::new("tls-auth-clients", reason));
            }
        };
        if own.is_none() && roots.is_none() {
            return Ok(Certificates::default());
        }
        let listeners = if own.is_some() { config.tls_listeners.get() } else { 0 };
        let roots = roots.map(Roots::from);
        let tls = Tls::load(Files { own, roots, clients }).map_err(|why| SettingError::new("tls", why))?;
        Ok(Certificates { tls: Some(Arc::new(tls)), listeners, stores })
    }

    /// A connection of a client.
    pub fn wire(&self, tcp: TcpStream, listener: Listener) -> io::Result<Wire> {
        match self.of(listener) {
            Some(tls) => tls.accept(tcp, spoken(listener).1),
            None => Ok(tcp.into()),
        }
    }

    /// A connection of a health probe of a store node: probes have no certificate to show.
    pub fn wire_of_probe(&self, tcp: TcpStream) -> io::Result<Wire> {
        match self.of(Listener::Http) {
            Some(tls) => tls.accept_anyone(tcp, Protocol::Http),
            None => Ok(tcp.into()),
        }
    }

    /// The certificates of a face, if it is TLS.
    pub fn of(&self, listener: Listener) -> Option<&Arc<Tls>> {
        self.tls.as_ref().filter(|_| self.listeners & 1 << spoken(listener).0 != 0)
    }

    /// What is needed to connect to a server that is followed.
    pub fn outgoing(&self) -> Option<Arc<Tls>> {
        self.tls.clone()
    }

    /// How store nodes are known, and how this is known to them.
    pub fn peer_credentials(&self, config: &Config) -> Result<PeerCredentials, SettingError> {
        Ok(PeerCredentials { token: token(config)?, tls: self.tls.clone().filter(|_| self.stores) })
    }

    /// Takes up what changes in the files, for new connections. Never returns.
    pub async fn follow(&self) {
        let Some(tls) = &self.tls else { return std::future::pending().await };
        let mut last_logged = String::new();
        loop {
            tokio::time::sleep(LOOK).await;
            let why = match tls.refresh() {
                Ok(false) => String::new(),
                Ok(true) => {
                    info!("certificates reloaded");
                    String::new()
                }
                Err(error) => error.to_string(),
            };
            if !why.is_empty() && why != last_logged {
                info!("certificates not reloaded, the old ones stay in use: {why}");
            }
            last_logged = why;
        }
    }
}

/// What is needed to ask a server of this configuration whether it is well, if that face of it is TLS; `insists` says that
/// it is although the configuration has no certificate of it.
pub fn to_ask(config: &Config, listener: Listener, insists: bool) -> Result<Option<Files>, SettingError> {
    let own = config.tls_cert_file.get().zip(config.tls_key_file.get());
    if config.tls_listeners.get() & 1 << spoken(listener).0 == 0 || (own.is_none() && !insists) {
        return Ok(None);
    }
    let roots = config.tls_ca_cert_file.get().map(Roots::from);
    if roots.is_none() {
        let reason = "required to verify the server's certificate";
        return Err(SettingError::new("tls-ca-cert-file", reason));
    }
    Ok(Some(Files { own, roots, clients: Clients::Anyone }))
}

/// The position of a listener in `tls-listeners`, and its protocol.
fn spoken(listener: Listener) -> (u32, Protocol) {
    match listener {
        Listener::Resp => (0, Protocol::Resp),
        Listener::Http => (1, Protocol::Http),
        Listener::Grpc => (2, Protocol::Grpc),
    }
}
