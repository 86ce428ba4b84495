//! `moonshard health`: whether a server accepts requests, for the supervisor that starts and stops it.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tls::{Files, Protocol, Tls};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tonic::transport::Endpoint;
use tonic_health::ServingStatus;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use super::runtime;
use crate::config::Address;
use crate::process::dial::Remote;
use crate::telemetry::counters::Listener;

/// Whom to ask, and how.
#[derive(Debug, PartialEq, Eq)]
pub struct Task {
    /// By which protocol.
    pub listener: Listener,
    /// Who serves it there.
    pub address: Address,
    /// How its certificate is known, and how this is known to it, if it speaks TLS.
    pub tls: Option<Files>,
    /// What its certificate must name, if not the address.
    pub name: Option<String>,
}

/// What an answer may take.
const TIMEOUT: Duration = Duration::from_secs(4);

/// Asks; returns what the process exits with.
pub fn run(task: &Task) -> u8 {
    let Some(runtime) = runtime() else { return 1 };
    let tls = match task.tls.clone().map(Tls::load).transpose() {
        Ok(tls) => tls.map(Arc::new),
        Err(why) => {
            eprintln!("moonshard: tls: {why}");
            return 2;
        }
    };
    let probe = async {
        let answer = async {
            let at = reachable(&task.address)?;
            let host = task.address.host.trim_matches(['[', ']']);
            let named = host.parse::<IpAddr>().is_err().then(|| host.to_owned());
            let name = task.name.clone().or(named);
            let remote = Remote { address: at.to_string(), name, tls };
            match task.listener {
                Listener::Grpc => grpc(remote).await,
                Listener::Http => http(remote).await,
                Listener::Resp => resp(remote).await,
            }
        };
        tokio::time::timeout(TIMEOUT, answer).await.unwrap_or_else(|late| Err(late.into()))
    };
    let address = &task.address;
    match runtime.block_on(probe) {
        Ok(()) => {
            println!("{address} accepts requests");
            0
        }
        Err(why) => {
            eprintln!("moonshard: {address} does not accept requests: {}", innermost(&*why));
            1
        }
    }
}

/// What is behind an error that only says that there is one.
fn innermost(error: &dyn std::error::Error) -> &dyn std::error::Error {
    error.source().map_or(error, innermost)
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

async fn http(remote: Remote) -> Result<(), tonic::codegen::StdError> {
    let mut stream = remote.connect(Protocol::Http).await?;
    let question = format!("GET /readyz HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", remote.address);
    stream.write_all(question.as_bytes()).await?;
    stream.flush().await?;
    // More than the head of an answer ever has; another kind of server at that address may send more.
    let mut answer = Vec::new();
    stream.take(4096).read_to_end(&mut answer).await?;
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.lines().next().unwrap_or_default();
    match body.lines().next() {
        _ if status.starts_with("HTTP/1.1 200 ") => Ok(()),
        // Of another kind of server, the body is of no interest.
        Some(reason) if reason.starts_with("not ready") => Err(format!("{status:?}: {reason}").into()),
        _ => Err(format!("it answered {status:?}").into()),
    }
}

/// The server answers, whether or not it wants a password first.
async fn resp(remote: Remote) -> Result<(), tonic::codegen::StdError> {
    let mut stream = remote.connect(Protocol::Resp).await?;
    stream.write_all(b"*1\r\n$4\r\nPING\r\n").await?;
    stream.flush().await?;
    let mut answer = String::new();
    // Longer than any of the answers; another kind of server at that address may send more.
    BufReader::new(stream.take(512)).read_line(&mut answer).await?;
    match answer.trim_end() {
        "+PONG" => Ok(()),
        refused if refused.starts_with("-NOAUTH ") => Ok(()),
        other => Err(format!("it answered {other:?}").into()),
    }
}

async fn grpc(remote: Remote) -> Result<(), tonic::codegen::StdError> {
    let endpoint = Endpoint::from_shared(format!("http://{}", remote.address))?;
    let channel = remote.connected(endpoint).await?;
    let answer = HealthClient::new(channel).check(HealthCheckRequest::default()).await?.into_inner();
    let serving = ServingStatus::Serving as i32;
    if answer.status == serving { Ok(()) } else { Err(format!("it answered {:?}", answer.status()).into()) }
}
