//! Pipelined commands for nodes elsewhere: they are sent before the replies to those before them have come.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use resp::{Limits, Parser, Step};
use store::topology::SlotMap;
use store_engine::{Args, Reply};
use tls::Wire;

use super::wire::{give_buffer, hung_up, take_buffer};
use crate::commands::dispatch::{self, Sent, Waiting};
use crate::server::Server;
use crate::session::Session;

/// At first so many commands of a connection are on their way at the same time; then twice as many each time, while
/// their replies are small,
const FEW: usize = 8;
/// up to so many.
const MANY: usize = 1024;
/// After a reply of so many bytes they are awaited one by one, so that what is not read does not fill the memory.
const LARGE_BYTES: usize = 64 * 1024;

/// Of a request that was taken by whatever limits there were.
const ANY: Limits = Limits {
    max_bulk_bytes: u32::MAX,
    max_args: u32::MAX,
    max_inline_bytes: u32::MAX,
    max_request_bytes: u32::MAX,
};

/// Commands of a connection on their way.
pub struct Ahead {
    sent: Vec<OnTheWay>,
    /// By which they were sent: with another one they could overtake each other.
    map: Option<Arc<SlotMap>>,
    most: usize,
}

struct OnTheWay {
    command: Sent,
    /// Where in the input it begins.
    request: usize,
    /// Where in the replies its reply belongs.
    offset: usize,
}

impl Default for Ahead {
    fn default() -> Ahead {
        Ahead { sent: Vec::new(), map: None, most: FEW }
    }
}

impl Ahead {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.sent.is_empty()
    }

    /// Whether their replies should be awaited.
    pub fn is_full(&self) -> bool {
        self.sent.len() >= self.most
    }

    /// Sends a command, which stands at `request` in the input, if that is possible; otherwise it is given back, and has
    /// to wait until all before it are received.
    pub fn send<'a>(
        &mut self,
        server: &Server,
        session: &mut Session,
        waiting: Waiting<'a>,
        request: usize,
        out: &Reply,
    ) -> Option<Waiting<'a>> {
        let map = self.map.take().or_else(|| server.store.cluster().map(|cluster| cluster.map()));
        let Some(map) = map else { return Some(waiting) };
        let before = self.sent.iter().map(|sent| &sent.command);
        match dispatch::send(server, session, waiting, &map, before) {
            Ok(command) => {
                self.map = Some(map);
                self.sent.push(OnTheWay { command, request, offset: out.buf.len() });
                None
            }
            Err(waiting) => Some(waiting),
        }
    }

    /// Awaits all replies and puts each in its place. Ends early if the client hangs up.
    pub async fn receive(
        &mut self,
        server: &Arc<Server>,
        session: &mut Session,
        wire: &Wire,
        input: &[u8],
        out: &mut Reply,
    ) -> io::Result<()> {
        let mut all = pin!(self.receive_all(server, session, input, out));
        tokio::select! {
            biased;
            () = &mut all => Ok(()),
            () = hung_up(wire) => Err(io::ErrorKind::ConnectionAborted.into()),
        }
    }

    async fn receive_all(
        &mut self,
        server: &Arc<Server>,
        session: &mut Session,
        input: &[u8],
        out: &mut Reply,
    ) {
        let early = std::mem::replace(&mut out.buf, take_buffer());
        let (mut copied, mut largest, mut clock) = (0, 0, None);
        for OnTheWay { command, request, offset } in self.sent.drain(..) {
            out.buf.extend_from_slice(&early[copied..offset]);
            copied = offset;
            let start = out.buf.len();
            let received = dispatch::receive(server, &session.client, command, &mut clock, out).await;
            let is_slow = |took: Duration| server.telemetry.is_slow(took);
            if !matches!(received, Ok(took) if !took.is_some_and(is_slow)) {
                let mut parser = Parser::new(ANY);
                // It was parsed before.
                let Ok(Step::Request(call)) = parser.next(&input[request..]) else { continue };
                let args = call.slices(&input[request..]);
                let args = Args::new(&args);
                let took = match received {
                    Ok(took) => took,
                    Err(request) => {
                        Box::pin(dispatch::again(server, session, request, args, &mut clock, out)).await
                    }
                };
                if let Some(took) = took {
                    server.note_slow(&session.client, args, took);
                }
            }
            largest = largest.max(out.buf.len() - start);
        }
        out.buf.extend_from_slice(&early[copied..]);
        give_buffer(early);
        session.clock = None;
        self.map = None;
        self.most = if largest >= LARGE_BYTES { 1 } else { (self.most * 2).clamp(FEW, MANY) };
    }
}
