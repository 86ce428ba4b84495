//! Connections to others that this process opens itself, over TCP or over TLS.

use std::io;
use std::sync::Arc;

use hyper_util::rt::TokioIo;
use tls::{Protocol, Tls, Wire};
use tokio::net::TcpStream;
use tonic::transport::{Channel, Endpoint, Uri};
use tower::{Service, service_fn};

/// Somebody elsewhere.
#[derive(Clone)]
pub struct Remote {
    /// `HOST:PORT`
    pub address: String,
    /// What its certificate must name, if not the host.
    pub name: Option<String>,
    /// If it speaks TLS.
    pub tls: Option<Arc<Tls>>,
}

impl Remote {
    /// A connection to it.
    pub async fn connect(&self, protocol: Protocol) -> io::Result<Wire> {
        let tcp = TcpStream::connect(&self.address).await?;
        tcp.set_nodelay(true)?;
        let Some(tls) = &self.tls else { return Ok(tcp.into()) };
        let host = self.address.rsplit_once(':').map_or(&*self.address, |(host, _)| host);
        let wire = tls.connect(tcp, self.name.as_deref().unwrap_or(host), protocol)?;
        wire.agreed().await?;
        Ok(wire)
    }

    /// The same, after files of certificates that have changed have been read again.
    pub async fn reconnect(&self, protocol: Protocol) -> io::Result<Wire> {
        if let Some(tls) = &self.tls {
            // What was read before stays if they are not good.
            let _ = tls.refresh();
        }
        self.connect(protocol).await
    }

    /// A channel of gRPC, which connects when it is used first, and again whenever the connection is lost. Needs a runtime.
    pub fn channel(self, endpoint: Endpoint) -> Channel {
        endpoint.connect_with_connector_lazy(self.connector())
    }

    /// The same, connected.
    pub async fn connected(self, endpoint: Endpoint) -> Result<Channel, tonic::transport::Error> {
        endpoint.connect_with_connector(self.connector()).await
    }

    fn connector(
        self,
    ) -> impl Service<Uri, Response = TokioIo<Wire>, Error = io::Error, Future: Send> + Send + 'static {
        service_fn(move |_: Uri| {
            let remote = self.clone();
            async move { remote.reconnect(Protocol::Grpc).await.map(TokioIo::new) }
        })
    }
}
