//! What holds for whatever a peer sends: nobody panics, a node goes on to answer, and a peer that is gone holds nothing.

use std::collections::HashMap;
use std::pin::Pin;
use std::time::Duration;

use prost::Message;
use proto::store::v1::request::Body as Ask;
use proto::store::v1::response::Body as Answer;
use proto::store::v1::store_client::StoreClient;
use proto::store::v1::store_server::{self, StoreServer};
use proto::store::v1::{self as wire, Request, Requests, Response, Responses};
use store::client::{Cluster, PeerCredentials};
use store::server::Service;
use store::topology::SlotMap;
use store::{Call, LockRequest, Mode, Node, ParsedCall, Store};
use store_engine::{Args, Protocol, Reply, command};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tokio_stream::{Stream, StreamExt};
use tonic::Status;

const NOW_MS: u64 = 1_700_000_000_000;
/// Nobody listens there.
const NOWHERE: &str = "127.0.0.1:1";
/// More is no other than this.
const MOST_REQUESTS: usize = 40;
/// The number of the last request.
const LAST: u64 = u64::MAX;
/// For an answer that comes at once if it comes at all.
const TIMEOUT: Duration = Duration::from_secs(60);

fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(work)
}

fn map(address: &str) -> wire::SlotMap {
    SlotMap::even(&[address.to_owned()]).expect("one node").founded().to_wire()
}

fn request(id: u64, body: Ask) -> Request {
    Request { id, body: Some(body) }
}

fn call(line: &str) -> wire::Call {
    let mut args = Vec::new();
    for word in line.split(' ') {
        args.push(u8::try_from(word.len()).expect("a short word"));
        args.extend_from_slice(word.as_bytes());
    }
    wire::Call { args: args.into(), ..wire::Call::default() }
}

/// Addresses become one where nobody is. Whether it is small: some would rightly make a value of half a gigabyte.
fn is_harmless(request: &mut Request) -> bool {
    let nowhere = |map: &mut Option<wire::SlotMap>| {
        for address in map.iter_mut().flat_map(|map| &mut map.nodes) {
            *address = NOWHERE.to_owned();
        }
    };
    let is_small = |bytes: &[u8]| !bytes.windows(6).any(|window| window.iter().all(u8::is_ascii_digit));
    let small_call = |call: &Option<wire::Call>| call.as_ref().is_none_or(|call| is_small(&call.args));
    match &mut request.body {
        Some(Ask::Handshake(hello)) => nowhere(&mut hello.map),
        Some(Ask::SetTopology(learn)) => nowhere(&mut learn.map),
        Some(Ask::Accept(accept)) => nowhere(&mut accept.map),
        Some(Ask::Acknowledge(forget)) => forget.node = NOWHERE.to_owned(),
        Some(Ask::ReceiveSlots(receive)) => {
            nowhere(&mut receive.map);
            receive.coordinator = NOWHERE.to_owned();
            // What effects do, the engine's own target tries.
            receive.changes.clear();
        }
        Some(Ask::Step(step)) => {
            step.others.iter_mut().for_each(|address| *address = NOWHERE.to_owned());
            step.changes.clear();
            return step.calls.iter().all(|call| is_small(&call.args));
        }
        Some(Ask::Execute(execute)) => return small_call(&execute.call),
        Some(Ask::ExecuteBlocking(wait)) => return small_call(&wait.call),
        _ => {}
    }
    true
}

/// The elements of a message, as far as they are some: one that is spoilt does not take the others along.
fn each<T: Message + Default>(mut input: &[u8]) -> Vec<T> {
    let mut found = Vec::new();
    // The field's number and kind.
    while let Some((10, mut rest)) = input.split_first() {
        let Ok(length) = prost::decode_length_delimiter(&mut rest) else { break };
        let (element, behind) = rest.split_at(length.min(rest.len()));
        found.extend(T::decode(element).ok());
        input = behind;
    }
    found
}

/// Requests to a node: each is answered at most once, the node answers a beat behind them, and what the peer held is free
/// when it has gone.
pub fn requests(input: &[u8]) {
    let mut requests: Vec<Request> = each(input);
    requests.retain_mut(is_harmless);
    requests.truncate(MOST_REQUESTS);
    requests.retain(|request| request.id != LAST);
    // Both go on when the peer has gone, until it is known what another node says.
    let outlasts = |request: &Request| matches!(request.body, Some(Ask::MoveSlots(_) | Ask::ReceiveSlots(_)));
    let outlasts = requests.iter().any(outlasts);
    block_on(async {
        let node = Node::new(2);
        let configure = Box::new(|_: &[(String, String)]| Ok(()));
        let service =
            Service::new(node, PeerCredentials::default(), || NOW_MS, configure, None, |_| ()).await;
        let service = StoreServer::new(service.expect("nothing is kept, so nothing can be wrong"));
        let heartbeat = request(LAST, Ask::Heartbeat(wire::Heartbeat::default()));
        let last = talk(&service, &requests, heartbeat).await;
        let Answer::Status(status) = last else { panic!("a beat is answered by {last:?}") };
        if status.prepared == 0 && !outlasts {
            let execute = wire::Execute { call: Some(call("DBSIZE")), sequence: 1, since: 0 };
            talk(&service, &[], request(LAST, Ask::Execute(execute))).await;
        }
    });
}

/// Sends a hello, these requests and a last one on a stream of its own. The answer to the last.
async fn talk(service: &StoreServer<Service>, requests: &[Request], last: Request) -> Answer {
    let hello =
        wire::Handshake { peer: 1, map: Some(map(NOWHERE)), gateway: true, ..wire::Handshake::default() };
    let mut asked: HashMap<u64, usize> = HashMap::new();
    requests.iter().for_each(|request| *asked.entry(request.id).or_default() += 1);
    let (sender, receiver) = mpsc::unbounded_channel();
    let handshake = Requests { requests: vec![request(LAST - 1, Ask::Handshake(Box::new(hello)))] };
    for message in [handshake, Requests { requests: requests.to_vec() }, Requests { requests: vec![last] }] {
        sender.send(message).expect("the receiver is here");
    }
    // The stream stays open until all is answered: its end takes back what is under way.
    let link = StoreClient::new(service.clone()).link(UnboundedReceiverStream::new(receiver)).await;
    let mut answers = link.expect("a stream").into_inner();
    loop {
        let message = timeout(TIMEOUT, answers.message()).await.expect("the node goes on to answer");
        let message = message.expect("the stream is whole").expect("the node does not end it");
        for Response { id, body } in message.responses {
            if id == LAST {
                drop(sender);
                return body.expect("an answer");
            }
            if id != 0 && id != LAST - 1 {
                let left = asked.get_mut(&id).filter(|left| **left > 0);
                *left.unwrap_or_else(|| panic!("{id} is answered, which is not open: {body:?}")) -= 1;
            }
        }
    }
}

/// A node that greets as it should and then says what it likes: its bodies one by one to whatever is asked, and those
/// without a number unasked.
struct Liar {
    address: String,
    says: Vec<Response>,
}

type Said = Pin<Box<dyn Stream<Item = Result<Responses, Status>> + Send>>;

#[tonic::async_trait]
impl store_server::Store for Liar {
    type LinkStream = Said;

    async fn link(
        &self,
        requests: tonic::Request<tonic::Streaming<Requests>>,
    ) -> Result<tonic::Response<Said>, Status> {
        let status = Some(wire::Status::default());
        let map = Some(map(&self.address));
        let welcome = wire::HandshakeReply { map, status, boot: 1, ..wire::HandshakeReply::default() };
        let mut welcome = Some(Answer::HandshakeReply(Box::new(welcome)));
        let mut says = self.says.clone().into_iter();
        let answers = requests.into_inner().map(move |message| {
            let mut responses = Vec::new();
            for Request { id, .. } in message?.requests {
                if let Some(welcome) = welcome.take() {
                    responses.push(Response { id, body: Some(welcome) });
                    continue;
                }
                let Some(said) = says.next() else { return Err(Status::aborted("that was all")) };
                let id = if said.id == 0 { 0 } else { id };
                responses.push(Response { id, body: said.body });
            }
            Ok(Responses { responses })
        });
        Ok(tonic::Response::new(Box::pin(answers)))
    }

    type CopyStream = tokio_stream::Empty<Result<wire::CopyPart, Status>>;

    async fn copy(
        &self,
        _: tonic::Request<wire::CopyRequest>,
    ) -> Result<tonic::Response<Self::CopyStream>, Status> {
        Err(Status::unimplemented("no replicas"))
    }

    async fn replicate(
        &self,
        _: tonic::Request<tonic::Streaming<wire::ReplicaMessages>>,
    ) -> Result<tonic::Response<wire::Done>, Status> {
        Err(Status::unimplemented("no replicas"))
    }

    async fn found(
        &self,
        _: tonic::Request<wire::FoundCluster>,
    ) -> Result<tonic::Response<wire::Done>, Status> {
        Err(Status::unimplemented("no replicas"))
    }

    async fn change(
        &self,
        _: tonic::Request<wire::ChangeRequest>,
    ) -> Result<tonic::Response<wire::Groups>, Status> {
        Err(Status::unimplemented("no replicas"))
    }

    async fn inspect(
        &self,
        _: tonic::Request<wire::InspectRequest>,
    ) -> Result<tonic::Response<wire::Inspection>, Status> {
        Err(Status::unimplemented("no replicas"))
    }
}

/// How long it is looked what a gateway makes of lies: it gives up later, which is another matter.
const A_WHILE: Duration = Duration::from_millis(40);

/// Answers of a node: a gateway that believes it refuses what cannot be.
pub fn responses(input: &[u8]) {
    let mut says: Vec<Response> = each(input);
    says.truncate(MOST_REQUESTS);
    // A gateway would follow a map to wherever it leads.
    let mut nowhere =
        |map: &mut wire::SlotMap| map.nodes.iter_mut().for_each(|node| *node = NOWHERE.to_owned());
    for response in &mut says {
        match &mut response.body {
            Some(Answer::Refusal(refusal)) => refusal.map.iter_mut().for_each(|map| nowhere(map)),
            Some(Answer::Status(status)) => status.map.iter_mut().for_each(&mut nowhere),
            Some(Answer::StepResult(stepped)) => stepped.map.iter_mut().for_each(&mut nowhere),
            Some(Answer::HandshakeReply(welcome)) => welcome.map.iter_mut().for_each(&mut nowhere),
            _ => {}
        }
    }
    block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let liar = StoreServer::new(Liar { address: address.clone(), says });
        let server = tonic::transport::Server::builder().add_service(liar);
        tokio::spawn(server.serve_with_incoming(connections(listener)));
        let cluster = Cluster::open(&[address], PeerCredentials::default(), 0).expect("one node");
        cluster.respond(Box::new(Clone::clone));
        cluster.set_invalidation_listener(Box::new(|_, _| {}));
        let store = Store::Distributed(cluster);
        let _ = timeout(A_WHILE, ask_all(&store)).await;
    });
}

/// Connections as tonic wants them.
fn connections(listener: TcpListener) -> UnboundedReceiverStream<std::io::Result<TcpStream>> {
    let (sender, receiver) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        loop {
            let come = listener.accept().await.map(|(stream, _)| stream);
            if sender.send(come).is_err() {
                return;
            }
        }
    });
    UnboundedReceiverStream::new(receiver)
}

/// Everything that a gateway asks.
async fn ask_all(store: &Store) {
    for line in ["GET key", "MGET key other", "SCAN 0", "DBSIZE", "RENAME key other", "SORT key BY other*"] {
        let mut out = Reply::new(Protocol::Resp3);
        with_call(line, async |call| {
            store.execute(call, 1, || NOW_MS, &mut 1, &mut out).await;
        })
        .await;
    }
    let _ = store.records(b"script/").await;
    let _ = store.put_record(b"script/", b"name", b"text").await;
    let locks =
        [&b"key"[..], b"other"].map(|key| LockRequest { db: 0, key: key.into(), mode: Mode::Exclusive });
    for everything in [false, true] {
        let Ok(mut unit) = store.begin(locks.to_vec(), everything, None, Vec::new()).await else { continue };
        for line in ["GET key", "APPEND other x", "LPUSH key a", "HSET third f v"] {
            let mut out = Reply::new(Protocol::Resp2);
            let _ = with_call(line, async |call| {
                unit.execute(call, Mode::Exclusive, &mut 1, &mut out).await.is_ok()
            })
            .await;
        }
        let _ = unit.commit().await;
    }
    if let Some(cluster) = store.cluster() {
        let _ = cluster.gather(b"question".to_vec().into()).await;
    }
    let _ = (store.usage(), store.counts());
}

async fn with_call<T>(line: &str, run: impl AsyncFnOnce(&Call<'_>) -> T) -> T {
    let items: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
    let args = Args::new(&items);
    let command = command::lookup(&args.name().to_ascii_lowercase()).expect("a command");
    let call = ParsedCall::new(command, args).expect("arguments").of_server();
    run(&call.at(0, NOW_MS)).await
}
