//! Messages to a client that it has not asked for, such as those of its channels.

use std::io::{self, IoSlice};

use tokio::net::TcpStream;
use tokio::time::timeout_at;

use super::TIMED_OUT;
use crate::observe::Counters;
use crate::server::Server;
use crate::session::ClientInfo;

/// So many messages are given to the system at once.
const AT_ONCE: usize = 64;

/// Writes the messages of a client as they come. Does not end by itself; dropped, it may leave one half written, which
/// [`finish`] writes to its end.
pub async fn deliver(server: &Server, client: &ClientInfo, stream: &TcpStream) -> io::Result<()> {
    loop {
        client.mail.arrived().await;
        write(server, client, stream, AT_ONCE).await?;
    }
}

/// Writes the rest of a message that is half written.
pub async fn finish(server: &Server, client: &ClientInfo, stream: &TcpStream) -> io::Result<()> {
    while client.mail.is_halfway() {
        write(server, client, stream, 1).await?;
    }
    Ok(())
}

/// Writes some of the first `count` messages.
async fn write(server: &Server, client: &ClientInfo, stream: &TcpStream, count: usize) -> io::Result<()> {
    let messages = client.mail.first(count);
    let slices: Vec<IoSlice<'_>> = messages.iter().map(|message| IoSlice::new(message)).collect();
    if slices.is_empty() {
        return Ok(());
    }
    match stream.try_write_vectored(&slices) {
        Ok(0) => Err(io::ErrorKind::WriteZero.into()),
        Ok(written) => {
            client.mail.written(written, &server.config.client_output_buffer_limit.pubsub);
            Counters::add(&server.counters.bytes_out, written as u64);
            Ok(())
        }
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => match client.mail.tolerated_until() {
            // One more may be too much.
            None => tokio::select! {
                writable = stream.writable() => writable,
                () = client.mail.more() => Ok(()),
            },
            Some(until) => timeout_at(until.into(), stream.writable()).await.unwrap_or_else(|_| {
                Counters::add(&server.counters.slow_clients_cut, 1);
                Err(TIMED_OUT.into())
            }),
        },
        Err(error) => Err(error),
    }
}
