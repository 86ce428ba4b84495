//! Calls of one client over a stream: in their order, also behind one that is refused as its slot is another node's.

use std::collections::BTreeMap;
use std::time::Duration;

use proto::store::v1::refusal::Code;
use proto::store::v1::request::Body as Ask;
use proto::store::v1::response::Body as Answer;
use proto::store::v1::store_client::StoreClient;
use proto::store::v1::store_server::StoreServer;
use proto::store::v1::{self as wire, Request, Requests};
use store::Node;
use store::client::PeerCredentials;
use store::server::Service;
use store::topology::SlotMap;
use tokio::time::timeout;
use tokio_stream::StreamExt;

const TIMEOUT: Duration = Duration::from_secs(60);

/// What the first of two nodes answers to these requests, which come together: of each reply the text, of others what
/// they say in a word. The second node owns `foo`, this one `bar`.
fn answers(requests: Vec<(u64, Ask)>) -> BTreeMap<u64, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let configure = Box::new(|_: &[(String, String)]| Ok(()));
        let service =
            Service::new(Node::new(2), PeerCredentials::default(), || 1, configure, None, |_| ()).await;
        let service = StoreServer::new(service.expect("nothing is kept, so nothing can be wrong"));
        let nodes = ["127.0.0.1:1", "127.0.0.1:2"].map(str::to_owned);
        let map = SlotMap::even(&nodes).expect("two nodes").founded().to_wire();
        let hello = wire::Handshake { peer: 1, map: Some(map), ..wire::Handshake::default() };
        let count = requests.len();
        let mut all = vec![(1000, Ask::Handshake(Box::new(hello)))];
        all.extend(requests);
        let requests = all.into_iter().map(|(id, body)| Request { id, body: Some(body) }).collect();
        // Its end would take back what is under way.
        let stream = tokio_stream::iter([Requests { requests }]).chain(tokio_stream::pending());
        let mut answers = StoreClient::new(service).link(stream).await.expect("a stream").into_inner();
        let mut answers_by_id = BTreeMap::new();
        while answers_by_id.len() < count {
            let message = timeout(TIMEOUT, answers.message()).await.expect("all are answered");
            let responses =
                message.expect("the stream is whole").expect("the node does not end it").responses;
            for wire::Response { id, body } in responses {
                let answer = match body.expect("an answer") {
                    Answer::Reply(reply) => String::from_utf8_lossy(reply.trim_ascii()).into_owned(),
                    Answer::Refusal(refusal) => {
                        assert_eq!(refusal.map.is_some(), refusal.code() == Code::Moved);
                        refusal.code().as_str_name().to_owned()
                    }
                    Answer::StepResult(stepped) => stepped.outcome().as_str_name().to_owned(),
                    Answer::HandshakeReply(_) => continue,
                    other => panic!("{other:?}"),
                };
                answers_by_id.insert(id, answer);
            }
        }
        answers_by_id
    })
}

fn call(sequence: u64, since: u64, line: &str) -> Ask {
    let words = line.split(' ').map(|word| [&[word.len() as u8], word.as_bytes()].concat());
    let call = wire::Call { args: words.flatten().collect::<Vec<u8>>().into(), ..wire::Call::default() };
    Ask::Execute(wire::Execute { call: Some(call), sequence, since })
}

fn answers_by_id<const N: usize>(answers: [(u64, &str); N]) -> BTreeMap<u64, String> {
    answers.map(|(id, answer)| (id, answer.to_owned())).into()
}

#[test]
fn nothing_overtakes_a_call_that_has_to_be_sent_again() {
    let asked = vec![
        (1, call(7, 0, "RPUSH bar 1")),
        (2, call(7, 1, "RPUSH foo 2")),
        (3, call(7, 1, "RPUSH bar 3")),
        (4, call(7, 1, "LLEN bar")),
        // Of another client.
        (5, call(8, 1, "RPUSH bar 5")),
        // Sent when all of that was answered.
        (6, call(7, 0, "RPUSH bar 6")),
        (7, call(7, 6, "RPUSH bar 7")),
    ];
    let expected =
        [(1, ":1"), (2, "MOVED"), (3, "OUT_OF_ORDER"), (4, "OUT_OF_ORDER"), (5, ":2"), (6, ":3"), (7, ":4")];
    assert_eq!(answers(asked), answers_by_id(expected));
}

#[test]
fn nor_do_those_that_wait() {
    let lock = wire::Lock { key: "bar".into(), ..wire::Lock::default() };
    let begin = wire::Begin { locks: vec![lock], ..wire::Begin::default() };
    let holds = wire::Step { txn: 9, begin: Some(begin), ..wire::Step::default() };
    let mut lets_go = wire::Step { txn: 9, ..wire::Step::default() };
    lets_go.set_finish(wire::step::Finish::Commit);
    let asked = vec![
        (1, Ask::Step(Box::new(holds))),
        (2, call(7, 0, "RPUSH bar 2")),
        (3, call(7, 2, "RPUSH foo 3")),
        (4, call(7, 2, "RPUSH bar 4")),
        (5, Ask::Step(Box::new(lets_go))),
    ];
    let expected = [(1, "OK"), (2, ":1"), (3, "MOVED"), (4, "OUT_OF_ORDER"), (5, "OK")];
    assert_eq!(answers(asked), answers_by_id(expected));
}
