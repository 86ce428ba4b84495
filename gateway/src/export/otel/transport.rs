//! The way of traces and metrics to the collector: one of two protocols, and when a message is sent again.
//!
//! Nothing is kept but the messages on their way, and they are given up in time: a collector that is away costs little.

mod failure;
mod grpc;
mod http;
mod way;

pub use self::way::{Signal, Way};

use std::io::Write as _;
use std::time::Duration;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use prost::Message;
use store::spans::chance;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use self::failure::Failure;
use self::grpc::GrpcClient;
use self::http::HttpClient;
use self::way::TIMEOUT;
use crate::config::{OtlpCompression, OtlpProtocol};

/// The pause after the first attempt that fails; each further one is twice as long,
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// up to this.
const LONGEST_PAUSE: Duration = Duration::from_secs(8);

/// Sends messages to the collector.
pub struct Transport {
    client: Client,
    compression: OtlpCompression,
    ending: watch::Sender<bool>,
}

enum Client {
    Grpc(GrpcClient),
    Http(HttpClient),
}

/// A message as it is sent.
pub struct Packed(Bytes);

impl Transport {
    /// Connects when a message is sent. Needs a runtime.
    pub fn new(way: Way) -> Result<Transport, tonic::transport::Error> {
        let compression = way.compression;
        let client = match way.protocol {
            OtlpProtocol::Grpc => Client::Grpc(GrpcClient::new(way)?),
            OtlpProtocol::HttpProtobuf => Client::Http(HttpClient::new(way)),
        };
        Ok(Transport { client, compression, ending: watch::Sender::new(false) })
    }

    /// Encodes a message, and compresses it if it is to be compressed.
    pub fn pack(&self, message: &impl Message) -> Packed {
        let is_grpc = matches!(self.client, Client::Grpc(_));
        let mut body = vec![0; if is_grpc { grpc::PREFIX } else { 0 }];
        match self.compression {
            OtlpCompression::None => message.encode(&mut body).expect("a vector grows"),
            OtlpCompression::Gzip => {
                let mut encoder = GzEncoder::new(body, Compression::fast());
                let written = encoder.write_all(&message.encode_to_vec());
                body = written.and_then(|()| encoder.finish()).expect("a vector takes all bytes");
            }
        }
        if is_grpc {
            grpc::fill_prefix(&mut body, self.compression);
        }
        Packed(body.into())
    }

    /// Sends a message until the collector takes it; else why it does not. What may be taken later is sent again after pauses, the
    /// last time when the limit has passed or the process ends.
    pub async fn send(&self, signal: Signal, message: Packed, limit: Duration) -> Result<(), String> {
        let until = Instant::now() + limit;
        let mut ending = self.ending.subscribe();
        let mut pause = FIRST_PAUSE;
        loop {
            let is_last = *ending.borrow() || Instant::now() >= until;
            let attempt = timeout(TIMEOUT, self.attempt(signal, message.0.clone())).await;
            let Err(failure) = attempt.unwrap_or_else(|_| Err(Failure::timeout())) else { return Ok(()) };
            let Some(wanted) = failure.again_after.filter(|_| !is_last) else { return Err(failure.why) };
            let left = until.saturating_duration_since(Instant::now());
            let wait = jittered(pause).max(wanted).min(left);
            let _ = timeout(wait, ending.wait_for(|ending| *ending)).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    async fn attempt(&self, signal: Signal, body: Bytes) -> Result<(), Failure> {
        match &self.client {
            Client::Grpc(client) => client.send(signal, body).await,
            Client::Http(client) => client.send(signal, body).await,
        }
    }

    /// The process is about to end: each message has one attempt more.
    pub fn end(&self) {
        self.ending.send_replace(true);
    }
}

/// A time from half of this to all of it: processes that have lost their collector at once do not come back at once.
fn jittered(pause: Duration) -> Duration {
    pause.mul_f64(0.5 + (chance() >> 11) as f64 / (1u64 << 54) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_are_between_half_and_all() {
        let pauses: Vec<Duration> = (0..1000).map(|_| jittered(FIRST_PAUSE)).collect();
        assert!(pauses.iter().all(|pause| (FIRST_PAUSE / 2..=FIRST_PAUSE).contains(pause)));
        assert!(pauses.iter().any(|pause| *pause < FIRST_PAUSE * 6 / 10));
        assert!(pauses.iter().any(|pause| *pause > FIRST_PAUSE * 9 / 10));
    }
}
