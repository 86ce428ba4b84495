//! Which connections are TLS, and who has to show a certificate.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use store::client::Trust;
use tls::{Clients, Files, Protocol, Tls, Wire};
use tokio::net::TcpStream;

use crate::config::Config;
use crate::log;
use crate::observe::Face;
use crate::persistence::token;

/// How often it is looked whether the files have changed.
const LOOK: Duration = Duration::from_secs(2);

/// What the parameters that begin with `tls-` say.
#[derive(Default)]
pub struct Certificates {
    tls: Option<Arc<Tls>>,
    /// Those faces are TLS, as bits in the order of `tls-faces`.
    faces: u64,
    stores: bool,
}

impl Certificates {
    /// Reads the files; else which parameter is wrong, and why.
    pub fn load(config: &Config) -> Result<Certificates, String> {
        let [cert, key, roots] =
            [&config.tls_cert_file, &config.tls_key_file, &config.tls_ca_cert_file].map(|file| file.get());
        let stores = config.tls_stores.get() == 1;
        if stores && roots.is_none() {
            return Err(
                "tls-stores: tls-ca-cert-file is needed to know the certificates of store nodes".into()
            );
        }
        let own: Option<(PathBuf, PathBuf)> = match (cert, key) {
            (Some(cert), Some(key)) => Some((cert, key)),
            (None, None) => None,
            (Some(_), None) => return Err("tls-cert-file: tls-key-file is needed with it".into()),
            (None, Some(_)) => return Err("tls-key-file: tls-cert-file is needed with it".into()),
        };
        let clients = match (config.tls_auth_clients.get(), &roots) {
            (0, None) | (3, _) => Clients::Anyone,
            (0 | 1, Some(_)) => Clients::Known,
            (2, Some(_)) => Clients::Optional,
            _ => return Err("tls-auth-clients: tls-ca-cert-file is needed to know their certificates".into()),
        };
        if own.is_none() && roots.is_none() {
            return Ok(Certificates::default());
        }
        let faces = if own.is_some() { config.tls_faces.get() } else { 0 };
        let tls = Tls::load(Files { own, roots, clients }).map_err(|why| format!("tls: {why}"))?;
        Ok(Certificates { tls: Some(Arc::new(tls)), faces, stores })
    }

    /// A connection of a client.
    pub fn wire(&self, tcp: TcpStream, face: Face) -> io::Result<Wire> {
        match self.of(face) {
            Some(tls) => tls.accept(tcp, spoken(face).1),
            None => Ok(tcp.into()),
        }
    }

    /// The certificates of a face, if it is TLS.
    pub fn of(&self, face: Face) -> Option<&Arc<Tls>> {
        self.tls.as_ref().filter(|_| self.faces & 1 << spoken(face).0 != 0)
    }

    /// How store nodes are known, and how this is known to them.
    pub fn trust(&self, config: &Config) -> Result<Trust, String> {
        Ok(Trust { token: token(config)?, tls: self.tls.clone().filter(|_| self.stores) })
    }

    /// Takes up what changes in the files, for new connections. Never returns.
    pub async fn follow(&self) {
        let Some(tls) = &self.tls else { return std::future::pending().await };
        let mut told = String::new();
        loop {
            tokio::time::sleep(LOOK).await;
            let why = match tls.refresh() {
                Ok(false) => String::new(),
                Ok(true) => {
                    log::notice("certificates are read again");
                    String::new()
                }
                Err(why) => why,
            };
            if !why.is_empty() && why != told {
                log::notice(&format!("certificates stay as they were: {why}"));
            }
            told = why;
        }
    }
}

/// The place of a face in `tls-faces`, and what is spoken there.
fn spoken(face: Face) -> (u32, Protocol) {
    match face {
        Face::Resp => (0, Protocol::Resp),
        Face::Http => (1, Protocol::Http),
        Face::Grpc => (2, Protocol::Grpc),
    }
}
