//! `moonshard health`: whether a server takes requests, for whoever starts and stops it.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tonic::transport::Endpoint;
use tonic_health::ServingStatus;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use crate::config::Address;

/// Whom to ask, and how.
#[derive(Debug, PartialEq, Eq)]
pub enum Task {
    /// Who serves HTTP here.
    Http(Address),
    /// Who serves gRPC here.
    Grpc(Address),
}

/// What an answer may take.
const PATIENCE: Duration = Duration::from_secs(4);

/// Asks; returns what the process exits with.
pub fn run(task: &Task) -> u8 {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("moonshard: cannot start a thread: {error}");
            return 1;
        }
    };
    let asked = async {
        let answer = async {
            match task {
                Task::Http(address) => http(reachable(address)?).await,
                Task::Grpc(address) => grpc(reachable(address)?).await,
            }
        };
        tokio::time::timeout(PATIENCE, answer).await.unwrap_or_else(|late| Err(late.into()))
    };
    let (Task::Http(address) | Task::Grpc(address)) = task;
    match runtime.block_on(asked) {
        Ok(()) => {
            println!("{address} takes requests");
            0
        }
        Err(why) => {
            eprintln!("moonshard: {address} does not take requests: {why}");
            1
        }
    }
}

/// Where to connect to whom listens on this address.
fn reachable(address: &Address) -> io::Result<SocketAddr> {
    let mut at = address.resolve()?;
    match at {
        SocketAddr::V4(v4) if v4.ip().is_unspecified() => at.set_ip(Ipv4Addr::LOCALHOST.into()),
        SocketAddr::V6(v6) if v6.ip().is_unspecified() => at.set_ip(Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    Ok(at)
}

async fn http(at: SocketAddr) -> Result<(), tonic::codegen::StdError> {
    let mut stream = TcpStream::connect(at).await?;
    let question = format!("GET /readyz HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\n\r\n");
    stream.write_all(question.as_bytes()).await?;
    // More than the head of an answer ever has; whoever else listens there may send more.
    let mut answer = Vec::new();
    stream.take(4096).read_to_end(&mut answer).await?;
    let answer = String::from_utf8_lossy(&answer);
    let status = answer.lines().next().unwrap_or_default();
    if status.starts_with("HTTP/1.1 200 ") { Ok(()) } else { Err(format!("it said {status:?}").into()) }
}

async fn grpc(at: SocketAddr) -> Result<(), tonic::codegen::StdError> {
    let channel = Endpoint::from_shared(format!("http://{at}"))?.connect().await?;
    let answer = HealthClient::new(channel).check(HealthCheckRequest::default()).await?.into_inner();
    let serving = ServingStatus::Serving as i32;
    if answer.status == serving { Ok(()) } else { Err(format!("it said {:?}", answer.status()).into()) }
}
