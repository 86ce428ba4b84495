//! Pipelined commands for nodes elsewhere: they are sent before the replies to those before them have come.

use std::io;
use std::pin::pin;
use std::sync::Arc;

use resp::{Parser, Step};
use store_engine::{Args, Reply};
use tls::Wire;

use super::{give_buffer, hung_up, limits, take_buffer};
use crate::dispatch::{self, Moved, Sent, Waiting};
use crate::observe::unix_ms;
use crate::server::Server;
use crate::session::Session;

/// At first so many commands of a connection are on their way at the same time; then twice as many each time, while
/// their replies are small,
const FEW: usize = 8;
/// up to so many.
const MANY: usize = 1024;
/// After a reply of so many bytes they are awaited one by one, so that what is not read does not fill the memory.
const LARGE_BYTES: usize = 64 * 1024;

/// Commands of a connection on their way.
pub struct Ahead {
    sent: Vec<OnTheWay>,
    most: usize,
}

struct OnTheWay {
    command: Sent,
    /// Where in the input it begins.
    request: usize,
    /// Where in the replies its reply belongs.
    place: usize,
}

impl Default for Ahead {
    fn default() -> Ahead {
        Ahead { sent: Vec::new(), most: FEW }
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

    /// Sends a command, which stands at `request` in the input, if that is possible; otherwise it is given back.
    pub fn send<'a>(
        &mut self,
        server: &Server,
        session: &mut Session,
        waiting: Waiting<'a>,
        request: usize,
        out: &Reply,
    ) -> Option<Waiting<'a>> {
        match dispatch::send(server, session, waiting, self.sent.iter().map(|sent| &sent.command)) {
            Ok(command) => {
                self.sent.push(OnTheWay { command, request, place: out.buf.len() });
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
        for OnTheWay { command, request, place } in self.sent.drain(..) {
            out.buf.extend_from_slice(&early[copied..place]);
            copied = place;
            let mark = out.buf.len();
            match dispatch::receive(server, command, &mut clock, out).await {
                Err(Moved) => again(server, session, &input[request..], out).await,
                Ok(Some(took)) if dispatch::is_slow(server, took) => {
                    if let Ok(Step::Request(call)) = Parser::new(limits(server)).next(&input[request..]) {
                        let args = call.slices(&input[request..]);
                        dispatch::note_slow(server, session, Args::new(&args), took);
                    }
                }
                Ok(_) => {}
            }
            largest = largest.max(out.buf.len() - mark);
        }
        out.buf.extend_from_slice(&early[copied..]);
        give_buffer(early);
        session.clock = None;
        self.most = if largest >= LARGE_BYTES { 1 } else { (self.most * 2).clamp(FEW, MANY) };
    }
}

/// Does a request again that a node has refused because its slot has moved.
async fn again(server: &Arc<Server>, session: &mut Session, input: &[u8], out: &mut Reply) {
    let mut parser = Parser::new(limits(server));
    // It was parsed before.
    let Ok(Step::Request(request)) = parser.next(input) else { return };
    let args = request.slices(input);
    session.clock = None;
    if let Some(waiting) = dispatch::begin(server, session, Args::new(&args), unix_ms(), out) {
        dispatch::finish(server, session, waiting, out).await;
    }
}
