//! What `store.proto` promises to peers of other versions: whoever does not know a field ignores it, whoever does not
//! know a request refuses it, and both go on. Here a gateway of a later version talks to this version's store node.

use prost::Message;
use proto::store::v1::{Done, HandshakeReply, Heartbeat, Responses, Status, refusal, response::Body};
use tests::cluster::Member;
use tests::process::TestServer;
use tests::wait_until;
use tokio_stream::StreamExt;
use tonic::transport::Endpoint;
use tonic_prost::ProstCodec;

/// `Requests` as a later version may have them: what is there, and more.
#[derive(Clone, PartialEq, Message)]
struct LaterRequests {
    #[prost(message, repeated, tag = "1")]
    requests: Vec<LaterRequest>,
    #[prost(string, tag = "100")]
    about: String,
}

#[derive(Clone, PartialEq, Message)]
struct LaterRequest {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(message, optional, tag = "2")]
    handshake: Option<LaterHandshake>,
    #[prost(message, optional, tag = "3")]
    heartbeat: Option<Heartbeat>,
    /// A request that nobody knows yet.
    #[prost(message, optional, tag = "100")]
    done: Option<Done>,
    #[prost(uint64, tag = "101")]
    urgency: u64,
}

#[derive(Clone, PartialEq, Message)]
struct LaterHandshake {
    #[prost(uint64, tag = "1")]
    peer: u64,
    #[prost(string, tag = "4")]
    token: String,
    #[prost(string, repeated, tag = "100")]
    knows: Vec<String>,
}

/// `HandshakeReply` of a later version.
#[derive(Clone, PartialEq, Message)]
struct LaterHandshakeReply {
    #[prost(string, tag = "2")]
    version: String,
    #[prost(message, optional, tag = "3")]
    status: Option<Status>,
    #[prost(uint64, tag = "4")]
    boot: u64,
    #[prost(string, repeated, tag = "100")]
    knows: Vec<String>,
}

fn requests(requests: impl IntoIterator<Item = LaterRequest>) -> LaterRequests {
    LaterRequests { requests: requests.into_iter().collect(), about: "later".into() }
}

fn request(id: u64) -> LaterRequest {
    LaterRequest { id, urgency: 7, ..LaterRequest::default() }
}

/// What a store node answers to these messages on a path, or how it refuses them.
fn answers(
    node: &TestServer,
    path: &'static str,
    messages: Vec<LaterRequests>,
    count: usize,
) -> Result<Vec<Body>, tonic::Status> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let endpoint = Endpoint::from_shared(format!("http://{}", node.grpc_address())).expect("an address");
        let mut client = tonic::client::Grpc::new(endpoint.connect().await.expect("a connection"));
        client.ready().await.expect("a connection");
        // Open for as long as answers are waited for: the node ends what a peer has begun when its stream ends.
        let stream = tokio_stream::iter(messages).chain(tokio_stream::pending());
        let codec = ProstCodec::<LaterRequests, Responses>::default();
        let path = tonic::codegen::http::uri::PathAndQuery::from_static(path);
        let mut stream = client.streaming(tonic::Request::new(stream), path, codec).await?.into_inner();
        let mut reported = Vec::new();
        while reported.len() < count {
            let responses = stream.message().await?.expect("the stream stays open").responses;
            reported.extend(
                responses.into_iter().filter(|response| response.id > 0).filter_map(|response| response.body),
            );
        }
        Ok(reported)
    })
}

fn node() -> Member {
    let mut node = Member::store(None, &[]);
    node.start();
    node
}

#[test]
fn a_later_gateway_is_served() {
    let node = node();
    let hello = LaterHandshake { peer: 1, token: String::new(), knows: vec!["more".into()] };
    let messages = vec![
        requests([LaterRequest { handshake: Some(hello), ..request(1) }]),
        requests([
            LaterRequest { done: Some(Done {}), ..request(2) },
            LaterRequest { heartbeat: Some(Heartbeat::default()), ..request(3) },
        ]),
    ];
    let reported = answers(node.server(), "/moonshard.store.v1.Store/Link", messages, 3).expect("answers");
    let [Body::HandshakeReply(welcome), Body::Refusal(refused), Body::Status(_)] = &reported[..] else {
        panic!("{reported:?}");
    };
    assert_eq!(welcome.version, env!("CARGO_PKG_VERSION"));
    assert_eq!((refused.code(), &*refused.reason), (refusal::Code::Invalid, "an unknown request"));
}

#[test]
fn another_version_of_the_protocol_is_refused() {
    let node = node();
    let hello = LaterRequest { handshake: Some(LaterHandshake::default()), ..request(1) };
    let refused = answers(node.server(), "/moonshard.store.v2.Store/Link", vec![requests([hello])], 1);
    assert_eq!(refused.expect_err("nobody serves it").code(), tonic::Code::Unimplemented);
    // And goes on.
    wait_until("the node still answers", || {
        let hello = LaterRequest { handshake: Some(LaterHandshake::default()), ..request(1) };
        answers(node.server(), "/moonshard.store.v1.Store/Link", vec![requests([hello])], 1).is_ok()
    });
}

#[test]
fn what_a_later_node_says_of_itself_is_understood() {
    let later = LaterHandshakeReply {
        version: "0.2.0".into(),
        status: Some(Status::default()),
        boot: 5,
        knows: vec!["more".into()],
    };
    let known =
        HandshakeReply::decode(&*later.encode_to_vec()).expect("fields that are not known are ignored");
    assert_eq!((&*known.version, known.boot, known.status), ("0.2.0", 5, Some(Status::default())));
}
