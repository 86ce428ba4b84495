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

/// Most bytes of the section of INFO about a thousand store nodes; another kind of server may send more.
const MOST_INFO_BYTES: u64 = 1 << 20;

/// The server answers, and reaches a store node if its data is on some. One that wants a password first only has to answer.
async fn resp(remote: Remote) -> Result<(), tonic::codegen::StdError> {
    let mut stream = remote.connect(Protocol::Resp).await?;
    stream.write_all(b"*2\r\n$4\r\nINFO\r\n$6\r\nstores\r\n").await?;
    stream.flush().await?;
    let mut answer = BufReader::new(stream.take(MOST_INFO_BYTES));
    let mut head = String::new();
    answer.read_line(&mut head).await?;
    let head = head.trim_end();
    let Some(length) = head.strip_prefix('$').and_then(|length| length.parse().ok()) else {
        let may_not_ask = head.starts_with("-NOAUTH ") || head.starts_with("-NOPERM ");
        return if may_not_ask { Ok(()) } else { Err(format!("it answered {head:?}").into()) };
    };
    let mut info = String::new();
    answer.take(length).read_to_string(&mut info).await?;
    if reaches_stores(&info) { Ok(()) } else { Err("no store node can be used".into()) }
}

/// Whether a server with this section `stores` of INFO has its data itself, or reaches a store node.
fn reaches_stores(info: &str) -> bool {
    let states = || info.lines().filter_map(|line| line.split_once(",state=")).map(|(_, state)| state);
    states().next().is_none() || states().any(|state| state.starts_with("up,"))
}

async fn grpc(remote: Remote) -> Result<(), tonic::codegen::StdError> {
    let endpoint = Endpoint::from_shared(format!("http://{}", remote.address))?;
    let channel = remote.connected(endpoint).await?;
    let answer = HealthClient::new(channel).check(HealthCheckRequest::default()).await?.into_inner();
    let serving = ServingStatus::Serving as i32;
    if answer.status == serving { Ok(()) } else { Err(format!("it answered {:?}", answer.status()).into()) }
}

#[cfg(test)]
mod tests {
    use super::reaches_stores;

    #[test]
    fn one_store_node_is_enough() {
        let node = |state: &str| format!("store0:addr=a:1,state={state},slots=0-1,keys=0,why=x\r\n");
        let info = |states: &[&str]| states.iter().map(|state| node(state)).collect::<String>();
        assert!(reaches_stores("# Stores\r\nstores:0\r\n"));
        assert!(reaches_stores(&info(&["down", "up"])));
        assert!(!reaches_stores(&info(&["down", "down"])));
    }
}
