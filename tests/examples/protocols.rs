//! What a script costs the server by each face: CPU time per call of `EVALSHA` of a script that does nothing, one call at
//! a time on one connection, and in pipelines of a hundred. The faces take turns, so that whatever else the machine does
//! meets all of them.
//!
//! MOONSHARD_BIN=target/release/moonshard cargo run --package tests --example protocols [ROUNDS]

use std::io::{Read, Write};
use std::net::TcpStream;

use proto::gateway::v1::gateway_client::GatewayClient;
use proto::gateway::v1::{Command, EvalShaRequest, PipelineRequest};
use serde_json::json;
use tests::TestServer;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use tonic::transport::Channel;

/// Calls of each face in a round. A multiple of [`DEEP`].
const CALLS: usize = 5000;
/// Calls in a batch.
const DEEP: usize = 100;

struct Listeners {
    runtime: Runtime,
    sha: String,
    resp: TcpStream,
    http: tests::Http,
    grpc: GatewayClient<Channel>,
    send: mpsc::Sender<PipelineRequest>,
    replies: Streaming<proto::gateway::v1::PipelineResponse>,
}

impl Listeners {
    fn new(server: &TestServer) -> Listeners {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        let sha = server.client().run("SCRIPT LOAD 'return 1'");
        let sha = String::from_utf8_lossy(sha.text().expect("a digest")).into_owned();
        let resp = TcpStream::connect(server.address()).expect("a connection");
        resp.set_nodelay(true).expect("a socket option");
        let address = format!("http://{}", server.grpc_address());
        let (send, requests) = mpsc::channel(1);
        let (grpc, replies) = runtime.block_on(async {
            let mut grpc = GatewayClient::connect(address).await.expect("a connection");
            let replies = grpc.pipeline(ReceiverStream::new(requests)).await.expect("a stream");
            (grpc, replies.into_inner())
        });
        Listeners { runtime, sha, resp, http: server.http(), grpc, send, replies }
    }

    fn resp(&mut self, deep: usize) {
        let call = format!("*3\r\n$7\r\nEVALSHA\r\n$40\r\n{}\r\n$1\r\n0\r\n", self.sha).repeat(deep);
        let mut replies = vec![0; ":1\r\n".len() * deep];
        for _ in 0..CALLS / deep {
            self.resp.write_all(call.as_bytes()).expect("it reads");
            self.resp.read_exact(&mut replies).expect("replies");
            assert!(replies.starts_with(b":1\r\n"));
        }
    }

    fn http(&mut self) {
        let path = format!("/v1/evalsha/{}", self.sha);
        for _ in 0..CALLS {
            assert_eq!(self.http.post(&path, &json!({})).status, 200);
        }
    }

    fn grpc(&mut self) {
        let request = EvalShaRequest { sha: self.sha.clone(), ..EvalShaRequest::default() };
        for _ in 0..CALLS {
            self.runtime.block_on(self.grpc.eval_sha(request.clone())).expect("an answer");
        }
    }

    fn pipeline(&mut self) {
        let args = vec!["EVALSHA".into(), self.sha.clone().into(), "0".into()];
        let commands = vec![Command { args }; DEEP];
        let (send, replies) = (&self.send, &mut self.replies);
        self.runtime.block_on(async {
            for id in 0..(CALLS / DEEP) as u64 {
                let batch = PipelineRequest { id, commands: commands.clone(), ..PipelineRequest::default() };
                send.send(batch).await.expect("the stream is open");
                let answer = replies.message().await.expect("no status").expect("a message");
                assert_eq!((answer.id, answer.replies.len()), (id, DEEP));
            }
        });
    }
}

/// A face, and how it is called.
type Way = (&'static str, fn(&mut Listeners));

fn main() {
    let rounds = std::env::args().nth(1).map_or(7, |rounds| rounds.parse().expect("a number of rounds"));
    let server = TestServer::start(&["--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--threads", "1"]);
    let mut listeners = Listeners::new(&server);
    let ways: [Way; 5] = [
        ("RESP one by one", |listeners| listeners.resp(1)),
        ("HTTP /v1/evalsha", Listeners::http),
        ("gRPC EvalSha", Listeners::grpc),
        ("gRPC Pipeline 100 deep", Listeners::pipeline),
        ("RESP 100 deep", |listeners| listeners.resp(DEEP)),
    ];
    let mut spent = vec![Vec::new(); ways.len()];
    // The first round warms up.
    for round in 0..=rounds {
        for (at, (_, call)) in ways.iter().enumerate() {
            let before = server.cpu_nanos();
            call(&mut listeners);
            if round > 0 {
                spent[at].push((server.cpu_nanos() - before) as f64 / 1000.0 / CALLS as f64);
            }
        }
    }
    let median = |mut all: Vec<f64>| {
        all.sort_by(f64::total_cmp);
        all[all.len() / 2]
    };
    let medians: Vec<f64> = spent.into_iter().map(median).collect();
    for ((name, _), micros) in ways.iter().zip(&medians) {
        println!("{name:24} {micros:6.2} microseconds of CPU per call, {:5.2} x", micros / medians[0]);
    }
}
