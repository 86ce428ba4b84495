//! Messages to a client that it has not asked for, such as those of its channels.

use std::future::pending;
use std::io::{self, IoSlice};

use tls::Wire;
use tokio::time::timeout_at;

use super::wire::TIMED_OUT;
use crate::server::Server;
use crate::session::ClientInfo;
use crate::telemetry::counters::Counters;

/// So many pieces are given to the system at once.
const AT_ONCE: usize = 64;

/// Writes the messages of a client as they come. Does not end by itself; dropped, it may leave one half written, which
/// [`finish`] writes to its end.
pub async fn deliver(server: &Server, client: &ClientInfo, wire: &Wire) -> io::Result<()> {
    loop {
        tokio::select! {
            biased;
            () = client.pushes.arrived() => {}
            error = pushed_out(wire) => return error,
        }
        write(server, client, wire, AT_ONCE).await?;
    }
}

/// Writes the rest of what is half written.
pub async fn finish(server: &Server, client: &ClientInfo, wire: &Wire) -> io::Result<()> {
    while client.pushes.is_halfway() {
        write(server, client, wire, 1).await?;
    }
    Ok(())
}

/// Sees to it that what the connection has taken leaves it. Ends with an error only.
async fn pushed_out(wire: &Wire) -> io::Result<()> {
    wire.flushed().await?;
    pending().await
}

/// Writes some of the first `count` pieces.
async fn write(server: &Server, client: &ClientInfo, wire: &Wire, count: usize) -> io::Result<()> {
    let limit = &server.config.client_output_buffer_limit.pubsub;
    let (chunks, from) = client.pushes.first(count);
    let mut slices: Vec<IoSlice<'_>> = chunks.iter().map(|chunk| IoSlice::new(chunk)).collect();
    let Some(first) = slices.first_mut() else { return Ok(()) };
    first.advance(from);
    let written = wire.try_write_vectored(&slices);
    client.pushes.written(chunks, *written.as_ref().unwrap_or(&0), limit);
    client.held.report();
    match written {
        Ok(0) => Err(io::ErrorKind::WriteZero.into()),
        Ok(written) => {
            Counters::add(&server.telemetry.counters.bytes_out, written as u64);
            Ok(())
        }
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => match client.pushes.tolerated_until() {
            // One more may be too much.
            None => tokio::select! {
                writable = wire.writable() => writable,
                () = client.pushes.more() => Ok(()),
            },
            Some(until) => timeout_at(until.into(), wire.writable()).await.unwrap_or(Err(TIMED_OUT.into())),
        },
        Err(error) => Err(error),
    }
}
