//! Where connections of HTTP and gRPC come in, and where it is known who is there.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use socket2::SockRef;
use tls::Wire;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::config::Config;
use crate::server::{PROTECTED, Server};
use crate::session::ClientInfo;
use crate::telemetry::counters::Listener;

/// Whether the process is starting or serving, or draining.
pub type Ready = watch::Receiver<bool>;

/// How long a connection of HTTP or gRPC may take to ask for something or to read any of its answer, one of TLS to agree
/// on how it is sealed, and one of a Redis client that has to say who it is to read its replies.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// Most bytes of the head of a request of HTTP/1. The path may name a long key.
pub const HEAD_BYTES: usize = 64 * 1024;

/// How long a connection may take until it is known what it wants: not longer than idle ones are kept.
pub fn time_limit(config: &Config) -> Duration {
    match config.timeout.get() {
        0 => IDLE_TIMEOUT,
        seconds => IDLE_TIMEOUT.min(Duration::from_secs(seconds)),
    }
}

/// Lets connections in until `ready` turns to false, and has each served by `live` on a thread that has time for it.
/// `full` is sent to one too many, unless it speaks TLS; `refused` encodes the error for an address that is refused. Those that
/// were let in finish what they are doing, which the caller waits for. Gives the listener back.
pub async fn keep<Live, Life>(
    server: Arc<Server>,
    kind: Listener,
    listener: TcpListener,
    mut ready: Ready,
    full: &[u8],
    refused: fn(&str) -> Vec<u8>,
    live: Live,
) -> TcpListener
where
    Live: Fn(Wire, Arc<ConnectionGuard>) -> Life + Clone + Send + 'static,
    Life: Future<Output = ()> + Send,
{
    loop {
        let accepted = tokio::select! {
            biased;
            _ = ready.wait_for(|ready| !ready) => return listener,
            accepted = listener.accept() => accepted,
        };
        let Ok((stream, peer)) = accepted else {
            // Out of file descriptors, most likely: connections that end will free some.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        if !lets_in(&server, kind, &stream, peer.ip(), full, refused) {
            continue;
        }
        // A socket that refuses these still works. Whoever reads none of its answer for so long is cut off by the system.
        let _ = stream.set_nodelay(true);
        let _ = SockRef::from(&stream).set_tcp_user_timeout(Some(time_limit(&server.config)));
        // Messages of gRPC are decoded where the connection lives, however large they are: not beside those of RESP.
        let slot = (kind != Listener::Grpc).then(|| server.process.io.slot());
        let runtime = slot.as_ref().map_or(&server.scripting.compute, |slot| slot.runtime()).clone();
        let Some((stream, entry)) = ConnectionGuard::new(&server, kind, stream) else { continue };
        let (server, live) = (server.clone(), live.clone());
        runtime.spawn(async move {
            // Its result is not needed: the client is gone, or has the error.
            let stream = TcpStream::from_std(stream);
            if let Ok(wire) = stream.and_then(|stream| server.process.certificates.wire(stream, kind)) {
                live(wire, entry).await;
            }
            drop(slot);
        });
    }
}

/// Whether a connection from this address is let in, and counted. Otherwise it is sent what [`keep`] says.
pub fn lets_in(
    server: &Server,
    kind: Listener,
    stream: &TcpStream,
    peer: IpAddr,
    full: &[u8],
    refused: fn(&str) -> Vec<u8>,
) -> bool {
    let why = match server.is_protected_from(peer) {
        true => refused(PROTECTED),
        false if server.lets_in() => return true,
        false => full.to_vec(),
    };
    if server.process.certificates.of(kind).is_none() {
        let _ = stream.try_write(&why);
    }
    false
}

/// Waits until it is agreed how a connection is sealed, if it is. Whether it was, in time and before CLIENT KILL and the end of
/// the process.
pub async fn agrees(wire: &Wire, entry: &ConnectionGuard, mut ready: Ready) -> bool {
    let limit = time_limit(&entry.listed.server.config);
    tokio::select! {
        biased;
        agreed = tokio::time::timeout(limit, wire.agreed()) => matches!(agreed, Ok(Ok(()))),
        () = entry.client().wake.notified() => false,
        _ = ready.wait_for(|ready| !ready) => false,
    }
}

/// A place in the list of clients.
pub struct Listed {
    server: Arc<Server>,
    /// What is listed.
    pub client: Arc<ClientInfo>,
}

impl Listed {
    /// Lists a client that comes from `addr` and has arrived at `laddr`.
    pub fn new(server: &Arc<Server>, addr: String, laddr: String) -> Listed {
        let account = server.acl.default_account().clone();
        let client = server.sessions.new_client(addr, laddr, account);
        server.sessions.clients.lock().insert(client.id, client.clone());
        Listed { server: server.clone(), client }
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.server.sessions.clients.lock().remove(&self.client.id);
    }
}

/// A connection's place in the list of clients, and in the count of connections.
pub struct ConnectionGuard {
    listed: Listed,
    kind: Listener,
    /// The address it came to.
    pub local: IpAddr,
}

impl ConnectionGuard {
    fn new(
        server: &Arc<Server>,
        kind: Listener,
        stream: TcpStream,
    ) -> Option<(std::net::TcpStream, Arc<ConnectionGuard>)> {
        let addresses = stream.peer_addr().and_then(|peer| Ok((peer, stream.local_addr()?)));
        let Ok((peer, local)) = addresses else {
            server.telemetry.counters.connections.fetch_sub(1, Ordering::Relaxed);
            return None;
        };
        let listed = Listed::new(server, peer.to_string(), local.to_string());
        server.telemetry.counters.enter(kind);
        let entry = ConnectionGuard { listed, kind, local: local.ip() };
        Some((stream.into_std().ok()?, Arc::new(entry)))
    }

    /// The connection as a client.
    pub fn client(&self) -> &Arc<ClientInfo> {
        &self.listed.client
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        let counters = &self.listed.server.telemetry.counters;
        counters.connections.fetch_sub(1, Ordering::Relaxed);
        counters.leave(self.kind);
    }
}
