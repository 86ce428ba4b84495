//! Certificates and keys, from files of PEM.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::RwLock;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, Connection, RootCertStore, ServerConfig};
use tokio::net::TcpStream;

use crate::Wire;
use crate::error::TlsError;
use crate::roots::{Roots, certificates};

/// Where certificates are, and who must have one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Files {
    /// Certificate that this process shows, with those that lead to its root behind it; and the key of it.
    pub own: Option<(PathBuf, PathBuf)>,
    /// The roots that certificates of others must lead to.
    pub roots: Option<Roots>,
    /// Whether those who connect must show one.
    pub clients: Clients,
}

/// Whether those who connect must show a certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Clients {
    /// They are not asked.
    #[default]
    Anyone,
    /// They need not; if they do, it must be a good one.
    Optional,
    /// They must.
    Known,
}

/// What is spoken over a connection, which both sides agree on at its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Nothing is said about it.
    Resp,
    /// HTTP/1.1
    Http,
    /// HTTP/2, as gRPC has it.
    Grpc,
}

impl Protocol {
    fn names(self) -> Vec<Vec<u8>> {
        match self {
            Protocol::Resp => Vec::new(),
            Protocol::Http => vec![b"http/1.1".to_vec()],
            Protocol::Grpc => vec![b"h2".to_vec()],
        }
    }
}

/// What the files say.
pub struct Tls {
    files: Files,
    current: RwLock<Current>,
}

struct Current {
    contents: Contents,
    /// Missing without a certificate of our own.
    server: Option<Arc<ServerConfig>>,
    /// The same that asks nobody for one.
    open: Option<Arc<ServerConfig>>,
    /// Missing without roots.
    client: Option<Arc<ClientConfig>>,
}

/// What was read: certificate, key, roots.
#[derive(PartialEq, Eq)]
struct Contents {
    own: Option<(Vec<u8>, Vec<u8>)>,
    roots: Option<Vec<CertificateDer<'static>>>,
}

impl Tls {
    /// Reads the files; else which one is wrong, and why.
    pub fn load(files: Files) -> Result<Tls, TlsError> {
        let current = Current::of(&files, Contents::read(&files)?)?;
        Ok(Tls { files, current: RwLock::new(current) })
    }

    /// Reads them again; whether they have changed. If they are not good, what was read before stays.
    pub fn refresh(&self) -> Result<bool, TlsError> {
        let contents = Contents::read(&self.files)?;
        if contents == self.current.read().contents {
            return Ok(false);
        }
        let current = Current::of(&self.files, contents)?;
        *self.current.write() = current;
        Ok(true)
    }

    /// Whether those who connect must show a certificate.
    pub fn knows_clients(&self) -> bool {
        self.files.clients == Clients::Known
    }

    /// A connection that somebody else has opened.
    pub fn accept(&self, tcp: TcpStream, protocol: Protocol) -> io::Result<Wire> {
        accepted(self.current.read().server.clone(), tcp, protocol)
    }

    /// The same of somebody who need not show a certificate, whatever others have to.
    pub fn accept_anyone(&self, tcp: TcpStream, protocol: Protocol) -> io::Result<Wire> {
        accepted(self.current.read().open.clone(), tcp, protocol)
    }

    /// A connection to `host`, whose certificate must name it so.
    pub fn connect(&self, tcp: TcpStream, host: &str, protocol: Protocol) -> io::Result<Wire> {
        let config = self.current.read().client.clone();
        let config =
            config.ok_or_else(|| io::Error::other("no roots are given that a certificate could lead to"))?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        let mut config = ClientConfig::clone(&config);
        config.alpn_protocols = protocol.names();
        let tls = rustls::ClientConnection::new(Arc::new(config), name).map_err(io::Error::other)?;
        Ok(Wire::sealed(tcp, Connection::Client(tls)))
    }
}

fn accepted(config: Option<Arc<ServerConfig>>, tcp: TcpStream, protocol: Protocol) -> io::Result<Wire> {
    let config = config.ok_or_else(|| io::Error::other("no certificate is configured"))?;
    let mut config = ServerConfig::clone(&config);
    config.alpn_protocols = protocol.names();
    let tls = rustls::ServerConnection::new(Arc::new(config)).map_err(io::Error::other)?;
    Ok(Wire::sealed(tcp, Connection::Server(tls)))
}

impl Contents {
    fn read(files: &Files) -> Result<Contents, TlsError> {
        let read = |path: &Path| fs::read(path).map_err(|error| TlsError::Read(path.to_owned(), error));
        let own = match &files.own {
            Some((certificate, key)) => Some((read(certificate)?, read(key)?)),
            None => None,
        };
        Ok(Contents { own, roots: files.roots.as_ref().map(Roots::read).transpose()? })
    }
}

impl Current {
    fn of(files: &Files, contents: Contents) -> Result<Current, TlsError> {
        let provider = Arc::new(ring::default_provider());
        let roots = match (&files.roots, &contents.roots) {
            (Some(roots), Some(certificates)) => Some(Arc::new(roots.store(certificates)?)),
            _ => None,
        };
        let own = match (&files.own, &contents.own) {
            (Some((certificate, key)), Some(pems)) => Some(Own::read((certificate, key), pems)?),
            _ => None,
        };
        let serves = |clients| {
            let server = own.as_ref().map(|own| own.server(clients, roots.clone(), &provider));
            server.transpose().map(|server| server.map(Arc::new))
        };
        let (server, open) = (serves(files.clients)?, serves(Clients::Anyone)?);
        let client = roots.map(|roots| client(roots, own.as_ref(), &provider)).transpose()?;
        Ok(Current { contents, server, open, client: client.map(Arc::new) })
    }
}

/// Our certificate and its key.
struct Own<'a> {
    path: &'a Path,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

impl<'a> Own<'a> {
    fn read(paths: (&'a Path, &Path), pems: &(Vec<u8>, Vec<u8>)) -> Result<Own<'a>, TlsError> {
        let key = PrivateKeyDer::from_pem_slice(&pems.1)
            .map_err(|error| TlsError::Pem(paths.1.to_owned(), error))?;
        Ok(Own { path: paths.0, chain: certificates(paths.0, &pems.0)?, key })
    }

    fn server(
        &self,
        clients: Clients,
        roots: Option<Arc<RootCertStore>>,
        provider: &Arc<CryptoProvider>,
    ) -> Result<ServerConfig, TlsError> {
        let builder = ServerConfig::builder_with_provider(provider.clone());
        let builder = builder.with_safe_default_protocol_versions().map_err(TlsError::Versions)?;
        let builder = match (clients, roots) {
            (Clients::Anyone, _) => builder.with_no_client_auth(),
            (_, None) => return Err(TlsError::NoRoots),
            (clients, Some(roots)) => {
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider.clone());
                let verifier =
                    if clients == Clients::Optional { verifier.allow_unauthenticated() } else { verifier };
                builder.with_client_cert_verifier(verifier.build().map_err(TlsError::Verifier)?)
            }
        };
        let config = builder.with_single_cert(self.chain.clone(), self.key.clone_key());
        config.map_err(|error| TlsError::Certificate(self.path.to_owned(), error))
    }
}

fn client(
    roots: Arc<RootCertStore>,
    own: Option<&Own<'_>>,
    provider: &Arc<CryptoProvider>,
) -> Result<ClientConfig, TlsError> {
    let builder = ClientConfig::builder_with_provider(provider.clone());
    let builder = builder.with_safe_default_protocol_versions().map_err(TlsError::Versions)?;
    let builder = builder.with_root_certificates(roots);
    match own {
        None => Ok(builder.with_no_client_auth()),
        Some(own) => builder
            .with_client_auth_cert(own.chain.clone(), own.key.clone_key())
            .map_err(|error| TlsError::Certificate(own.path.to_owned(), error)),
    }
}
