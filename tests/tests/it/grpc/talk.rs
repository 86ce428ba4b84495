//! Talking gRPC to a server, and telling in few words what it says.

use prost::Message;
use prost::bytes::Bytes;
use proto::gateway::v1::gateway_client::GatewayClient;
use proto::gateway::v1::reply::Kind;
use proto::gateway::v1::*;
use tests::{TIMEOUT, TestServer};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status, Streaming};
use tonic_types::StatusExt;

/// A connection whose calls are waited for, or not.
pub struct Grpc {
    pub runtime: Runtime,
    pub channel: Channel,
    client: GatewayClient<Channel>,
}

impl Grpc {
    pub fn connect(server: &TestServer) -> Grpc {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
        let endpoint =
            Endpoint::from_shared(format!("http://{}", server.grpc_address())).expect("an address");
        let channel = runtime.block_on(endpoint.connect()).expect("a connection");
        let client = GatewayClient::new(channel.clone()).max_decoding_message_size(64 << 20);
        Grpc { runtime, channel, client }
    }

    /// The answer to a call.
    pub fn wait<T>(&self, call: impl Future<Output = T>) -> T {
        self.runtime.block_on(async { tokio::time::timeout(TIMEOUT, call).await }).expect("an answer in time")
    }

    pub fn client(&self) -> GatewayClient<Channel> {
        self.client.clone()
    }

    pub fn execute(&self, args: &[&[u8]]) -> Result<Reply, Status> {
        let request = ExecuteRequest { args: owned(args), db: 0 };
        let answer = self.wait(self.client().execute(request))?;
        Ok(answer.into_inner().reply.expect("a reply"))
    }

    pub fn eval(&self, request: EvalRequest) -> Result<EvalResponse, Status> {
        Ok(self.wait(self.client().eval(request))?.into_inner())
    }

    /// Begins a call that nobody waits for.
    pub fn spawn(&self, request: Request<EvalRequest>) -> tokio::task::JoinHandle<Result<(), Status>> {
        let mut client = self.client();
        self.runtime.spawn(async move { client.eval(request).await.map(drop) })
    }
}

pub fn owned(args: &[&[u8]]) -> Vec<Bytes> {
    args.iter().map(|arg| Bytes::copy_from_slice(arg)).collect()
}

pub fn command(line: &str) -> Command {
    Command { args: line.split(' ').map(|word| word.as_bytes().to_vec().into()).collect() }
}

pub fn batch(id: u64, lines: &[&str]) -> PipelineRequest {
    let commands = lines.iter().map(|line| command(line)).collect();
    PipelineRequest { id, commands, ..PipelineRequest::default() }
}

pub fn script(text: &str) -> EvalRequest {
    EvalRequest { script: text.as_bytes().to_vec().into(), ..EvalRequest::default() }
}

pub fn on_key(text: &str, key: &'static str) -> EvalRequest {
    EvalRequest { keys: vec![key.into()], ..script(text) }
}

/// A reply in few words.
pub fn shown(reply: &Reply) -> String {
    let text = |bytes: &[u8]| format!("\"{}\"", bytes.escape_ascii());
    let items = |items: &[Reply]| items.iter().map(shown).collect::<Vec<_>>().join(", ");
    let entries = |entries: &[Entry]| {
        let side = |side: &Option<Reply>| shown(side.as_ref().expect("both sides"));
        let entry = |entry: &Entry| format!("{}: {}", side(&entry.key), side(&entry.value));
        entries.iter().map(entry).collect::<Vec<_>>().join(", ")
    };
    match reply.kind.as_ref().expect("a kind") {
        Kind::Null(_) => "null".into(),
        Kind::Bulk(bytes) => text(bytes),
        Kind::Integer(number) => number.to_string(),
        Kind::Status(word) => format!("+{}", word.escape_ascii()),
        Kind::Array(list) => format!("[{}]", items(&list.items)),
        Kind::Map(map) => format!("{{{}}}", entries(&map.entries)),
        Kind::Set(list) => format!("set({})", items(&list.items)),
        Kind::Error(error) => format!("-{}: {}", error.code, error.message),
        Kind::Double(number) => format!("double({number})"),
        Kind::Boolean(value) => value.to_string(),
        Kind::BigNumber(digits) => format!("big({digits})"),
        Kind::Verbatim(verbatim) => format!("{}:{}", verbatim.format, text(&verbatim.text)),
        Kind::Attributed(of) => {
            format!("|{}|{}", entries(&of.attributes), shown(of.value.as_ref().expect("a value")))
        }
        Kind::Resp(bytes) => format!("resp({})", text(bytes)),
    }
}

/// A status with what its details say; of numbers only that they are there.
pub fn reported(status: &Status) -> String {
    let details = status.get_error_details();
    let info = details.error_info().map_or_else(String::new, |info| {
        assert_eq!(info.domain, "moonshard");
        let mut names: Vec<&str> = info.metadata.keys().map(String::as_str).collect();
        names.sort_unstable();
        format!("{} [{}] ", info.reason, names.join(" "))
    });
    format!("{:?} {info}{}", status.code(), status.message())
}

/// A message as it travels.
pub fn framed(request: &EvalRequest) -> Vec<u8> {
    let body = request.encode_to_vec();
    let length = u32::try_from(body.len()).expect("a short message").to_be_bytes();
    [&[0], &length[..], &body].concat()
}

pub fn pipeline(grpc: &Grpc) -> (mpsc::Sender<PipelineRequest>, Streaming<PipelineResponse>) {
    let (send, requests) = mpsc::channel(1000);
    let answer = grpc.wait(grpc.client().pipeline(ReceiverStream::new(requests)));
    (send, answer.expect("a stream").into_inner())
}
