//! Where a link leads, and the connection there.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use prost::Message as _;
use proto::store::v1::Groups;
use tls::{Protocol, Tls, Wire};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tonic::transport::{Channel, Endpoint, Uri};
use tower::service_fn;

use super::directory::{Directory, GROUPS};
use super::link_error::LinkError;
use super::silence::{CountedWire, Signs};
use crate::journal::fail_point;

/// What may be under way unread, for a stream and for a connection.
pub(crate) const WINDOW_BYTES: u32 = 16 << 20;
/// How long a connection may take to be made.
pub(super) const CONNECT: Duration = Duration::from_secs(2);
/// After so long without a frame from the other side of a connection with streams, one is asked for,
const PROBE_INTERVAL: Duration = Duration::from_secs(5);
/// and so many times as long later the connection is given up. What is under way on a slow network comes first: a window takes
/// 20 seconds at 1 MB per second.
const PROBES: u32 = 4;

/// Where a link leads.
pub(super) struct Way {
    /// Of the node: its address, or its group.
    pub name: String,
    /// Knows the leaders of groups; none if the name can only be an address.
    pub directory: Option<Arc<Directory>>,
    pub tls: Option<Arc<Tls>>,
}

impl Way {
    /// What knows the leaders of the group of this name, if there is such a group: a node may become one.
    pub fn groups(&self) -> Option<&Arc<Directory>> {
        self.directory.as_ref().filter(|directory| directory.has(&self.name))
    }

    /// Where to connect to with this attempt.
    pub fn address(&self, attempt: usize) -> String {
        let leader = self.directory.as_ref().and_then(|directory| directory.address(&self.name, attempt));
        leader.unwrap_or_else(|| self.name.clone())
    }
}

/// A connection for gRPC, over TLS if that is given. Whatever the address says: the way there is known here.
pub(crate) async fn connect(address: &str, tls: Option<&Arc<Tls>>) -> Result<Channel, LinkError> {
    connect_counted(address, tls, &Signs::default()).await
}

/// The same with a count of what moves over it.
pub(crate) async fn connect_counted(
    address: &str,
    tls: Option<&Arc<Tls>>,
    signs: &Signs,
) -> Result<Channel, LinkError> {
    let endpoint = Endpoint::from_shared(format!("http://{address}"))
        .map_err(|error| LinkError::InvalidAddress(Box::new((address.to_owned(), error.to_string()))))?;
    let probe = fail_point::time("probe-ms", PROBE_INTERVAL);
    let endpoint = endpoint
        .connect_timeout(CONNECT)
        .http2_keep_alive_interval(probe)
        .keep_alive_timeout(probe * PROBES)
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES);
    let (to, tls, signs) = (address.to_owned(), tls.cloned(), signs.clone());
    let connector = service_fn(move |_: Uri| {
        let (opened, signs) = (open(to.clone(), tls.clone()), signs.clone());
        async move { Ok::<_, io::Error>(TokioIo::new(CountedWire::new(opened.await?, signs))) }
    });
    match timeout(CONNECT, endpoint.connect_with_connector(connector)).await {
        Ok(connected) => connected.map_err(|error| LinkError::Connect(innermost(&error))),
        Err(_) => Err(LinkError::ConnectTimeout),
    }
}

/// The groups that a process has, if it refuses a stream because of them.
pub(crate) fn groups_of(status: &tonic::Status) -> Option<Groups> {
    let bytes = status.metadata().get_bin(GROUPS)?.to_bytes().ok()?;
    Groups::decode(bytes).ok()
}

/// The connection itself. Its failures are described here, where they are known best.
async fn open(address: String, tls: Option<Arc<Tls>>) -> io::Result<Wire> {
    let tcp = TcpStream::connect(&address).await?;
    tcp.set_nodelay(true)?;
    let Some(tls) = tls else { return Ok(tcp.into()) };
    let host = address.rsplit_once(':').map_or(&*address, |(host, _)| host);
    let wire = tls.connect(tcp, host, Protocol::Grpc)?;
    wire.agreed().await?;
    // The other side speaks first, or says what it has against us.
    wire.readable().await?;
    Ok(wire)
}

pub(super) fn innermost(error: &dyn std::error::Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}
