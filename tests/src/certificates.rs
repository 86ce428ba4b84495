//! Certificates for tests, and a way through TLS for clients that do not speak it.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use tls::{Clients, Files, Protocol, Tls};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};

use crate::temp_dir::TempDir;

/// Gives out certificates that lead to it.
pub struct Authority {
    dir: TempDir,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// A new one, which nobody knows yet.
    pub fn new() -> Authority {
        let dir = TempDir::made("certificates");
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        // Two of the same name would only differ in their signatures.
        params.distinguished_name.push(DnType::CommonName, dir.text());
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let root = params.self_signed(&key).expect("a certificate");
        fs::write(dir.child("root.pem"), pem("CERTIFICATE", root.der())).expect("a small file");
        Authority { dir, issuer: Issuer::new(params, key) }
    }

    /// File with the root.
    pub fn root(&self) -> String {
        self.dir.child("root.pem")
    }

    /// Files with a new certificate for these hosts, and its key.
    pub fn certificate(&self, name: &str, hosts: &[&str]) -> (String, String) {
        let files = (self.dir.child(&format!("{name}.pem")), self.dir.child(&format!("{name}.key")));
        let key = KeyPair::generate().expect("a key");
        let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
        let params = CertificateParams::new(hosts).expect("names of hosts");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        fs::write(&files.0, pem("CERTIFICATE", certificate.der())).expect("a small file");
        fs::write(&files.1, pem("PRIVATE KEY", key.serialized_der())).expect("a small file");
        files
    }

    /// The same as flags of a server, which knows the root too.
    pub fn flags(&self, name: &str, hosts: &[&str]) -> Vec<String> {
        let (certificate, key) = self.certificate(name, hosts);
        let flags = [("cert", certificate), ("key", key), ("ca-cert", self.root())];
        flags.into_iter().flat_map(|(what, file)| [format!("--tls-{what}-file"), file]).collect()
    }
}

impl Default for Authority {
    fn default() -> Authority {
        Authority::new()
    }
}

fn pem(what: &str, content: &[u8]) -> String {
    let text = STANDARD.encode(content);
    let lines: Vec<&str> =
        text.as_bytes().chunks(64).map(|line| str::from_utf8(line).expect("letters")).collect();
    format!("-----BEGIN {what}-----\n{}\n-----END {what}-----\n", lines.join("\n"))
}

/// A port that speaks TLS for somebody who does not.
pub struct Entrance {
    address: SocketAddr,
    _runtime: Runtime,
}

impl Entrance {
    /// Leads to this address, where this is spoken, and shows a certificate for `localhost`.
    pub fn new(authority: &Authority, to: SocketAddr, protocol: Protocol) -> Entrance {
        let (certificate, key) = authority.certificate("entrance", &["localhost"]);
        let own = Some((PathBuf::from(certificate), PathBuf::from(key)));
        let tls = Tls::load(Files { own, ..Files::default() }).expect("good certificates");
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
        let listening = TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
        let listener = runtime.block_on(listening).expect("a free port");
        let address = listener.local_addr().expect("an address");
        runtime.spawn(async move {
            while let Ok((far, _)) = listener.accept().await {
                let Ok(mut wire) = tls.accept(far, protocol) else { continue };
                tokio::spawn(async move {
                    if wire.agreed().await.is_ok()
                        && let Ok(mut near) = TcpStream::connect(to).await
                    {
                        let _ = tokio::io::copy_bidirectional(&mut near, &mut wire).await;
                    }
                });
            }
        });
        Entrance { address, _runtime: runtime }
    }

    /// Where it begins.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// A port beyond which it is TLS.
pub struct Tunnel {
    address: SocketAddr,
    _runtime: Runtime,
}

impl Tunnel {
    /// Leads to this address, whose certificate must lead to `root` and name `host`; shows `own`.
    pub fn new(
        to: SocketAddr,
        protocol: Protocol,
        host: &'static str,
        root: &str,
        own: Option<(String, String)>,
    ) -> Tunnel {
        let own = own.map(|(certificate, key)| (PathBuf::from(certificate), PathBuf::from(key)));
        let files = Files { own, roots: Some(PathBuf::from(root).into()), clients: Clients::Anyone };
        let tls = Tls::load(files).expect("good certificates");
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
        let listening = TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
        let listener = runtime.block_on(listening).expect("a free port");
        let address = listener.local_addr().expect("an address");
        runtime.spawn(async move {
            while let Ok((mut near, _)) = listener.accept().await {
                let Ok(far) = TcpStream::connect(to).await else { continue };
                let Ok(mut wire) = tls.connect(far, host, protocol) else { continue };
                tokio::spawn(async move {
                    if wire.agreed().await.is_ok() {
                        let _ = tokio::io::copy_bidirectional(&mut near, &mut wire).await;
                    }
                });
            }
        });
        Tunnel { address, _runtime: runtime }
    }

    /// Where it begins.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}
