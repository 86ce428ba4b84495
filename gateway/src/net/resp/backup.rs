//! RDB files on their way to clients that have sent SYNC.

use std::io;
use std::time::Duration;

use tls::Wire;
use tokio::io::AsyncWriteExt;
use tokio::runtime::Handle;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout};
use tracing::{info, warn};

use super::wire::TIMED_OUT;
use crate::server::Server;
use crate::session::ClientInfo;
use crate::session::replica::RdbStream;
use crate::telemetry::counters::Counters;

/// A client that takes nothing for so long is disconnected: the `repl-timeout` of Redis.
const STALLED: Duration = Duration::from_secs(60);
/// While a client takes nothing, it is looked this often whether the file can still be completed.
const CHECK: Duration = Duration::from_millis(500);

/// Writes the file, piece by piece as the client takes them. A file that cannot be completed ends the connection, so that
/// no client takes it for a whole one.
pub async fn send(server: &Server, client: &ClientInfo, wire: &mut Wire, file: RdbStream) -> io::Result<()> {
    let began = Instant::now();
    info!("a backup to {} begins", client.addr);
    let sent = send_all(server, client, wire, file).await;
    client.held.set_output(0, 0);
    let seconds = began.elapsed().as_secs_f64();
    match &sent {
        Ok((keys, bytes)) => {
            info!("the backup to {} has {keys} keys and {bytes} bytes: {seconds:.1} s", client.addr);
        }
        Err(error) => warn!("the backup to {} was ended after {seconds:.1} s: {error}", client.addr),
    }
    sent.map(drop)
}

/// [`send`]; gives the numbers of keys and bytes.
async fn send_all(
    server: &Server,
    client: &ClientInfo,
    wire: &mut Wire,
    mut file: RdbStream,
) -> io::Result<(u64, u64)> {
    let mut bytes = 0;
    loop {
        // Elsewhere, since other connections of this thread would wait while a piece is made.
        let making = spawn_blocking(move || {
            let piece = Handle::current().block_on(file.next());
            (file, piece)
        });
        let piece;
        (file, piece) = making.await.map_err(io::Error::other)?;
        let Some(piece) = piece.map_err(io::Error::other)? else { break };
        let mut rest = &piece[..];
        while !rest.is_empty() {
            client.held.set_output(rest.len(), piece.capacity() + file.held_bytes());
            let written = write(wire, rest, &file).await?;
            if written == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            rest = &rest[written..];
            bytes += written as u64;
            Counters::add(&server.telemetry.counters.bytes_out, written as u64);
        }
    }
    timeout(STALLED, wire.flushed()).await.unwrap_or(Err(TIMED_OUT.into()))?;
    Ok((file.keys(), bytes))
}

/// Writes some of `bytes`; gives how many.
async fn write(wire: &mut Wire, bytes: &[u8], file: &RdbStream) -> io::Result<usize> {
    let until = Instant::now() + STALLED;
    loop {
        match timeout(CHECK, wire.write(bytes)).await {
            Ok(written) => return written,
            Err(_) if Instant::now() >= until => return Err(TIMED_OUT.into()),
            Err(_) => file.check().map_err(io::Error::other)?,
        }
    }
}
