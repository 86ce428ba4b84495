//! Calls that concern more than the nodes of their keys: what each node is asked, and what its answers come to.

use store_engine::command::scan;
use store_engine::{Args, CommandError, Reply, number};

use crate::call::Call;
use crate::topology::{MOST_NODES, NodeId};

/// What becomes of the answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Merge {
    /// The sum of all numbers.
    Sum,
    /// All elements of all lists.
    Join,
    /// Any that is something.
    Any(u64),
    /// The first error, or what all say.
    Agree,
}

/// How a call is spread.
pub(super) struct Plan {
    merge: Merge,
    /// The only node that is asked.
    only: Option<NodeId>,
}

/// The plan for a call that is routed to all nodes. `chance` decides where that is left to it.
pub(super) fn plan(call: &Call<'_>, node_of: impl Fn(&[u8]) -> NodeId, chance: &u64) -> Plan {
    let mut plan = Plan { merge: Merge::Agree, only: None };
    match call.command.name {
        "dbsize" => plan.merge = Merge::Sum,
        "keys" => plan.merge = Merge::Join,
        "randomkey" => plan.merge = Merge::Any(*chance),
        // What it sorts by may be anywhere.
        "sort" | "sort_ro" => {}
        // Those that name a key but need more than it: other databases of its node.
        _ => {
            let mut keys = call.keys().map(|(key, _)| node_of(key));
            if let Some(first) = keys.next()
                && keys.all(|node| node == first)
            {
                plan.only = Some(first);
            }
        }
    }
    plan
}

impl Plan {
    /// The nodes that are asked.
    pub fn nodes(&self, all: &[NodeId]) -> Vec<NodeId> {
        self.only.map_or_else(|| all.to_vec(), |only| vec![only])
    }

    /// Makes one reply of those of the nodes that were asked.
    pub fn merge(&self, replies: impl IntoIterator<Item = bytes::Bytes>, out: &mut Reply) {
        let replies: Vec<bytes::Bytes> = replies.into_iter().collect();
        if let Some(error) = replies.iter().find(|reply| reply.first() == Some(&b'-')) {
            return out.relay(error);
        }
        match self.merge {
            Merge::Sum => out.integer(replies.iter().filter_map(|reply| header(reply)).map(|(n, _)| n).sum()),
            Merge::Join => {
                let parts: Vec<(i64, &[u8])> = replies.iter().filter_map(|reply| header(reply)).collect();
                out.array(parts.iter().map(|(count, _)| usize::try_from(*count).unwrap_or(0)).sum());
                parts.iter().for_each(|(_, elements)| out.buf.extend_from_slice(elements));
            }
            Merge::Any(chance) => {
                let something = |reply: &&bytes::Bytes| !matches!(&***reply, b"$-1\r\n" | b"_\r\n");
                let found: Vec<&bytes::Bytes> = replies.iter().filter(something).collect();
                match found.len() as u64 {
                    0 => out.null(),
                    count => out.relay(found[(chance % count) as usize]),
                }
            }
            Merge::Agree => out.relay(replies.first().map_or(b"+OK\r\n", |reply| &**reply)),
        }
    }
}

/// The number behind the first byte of a reply, and what follows.
fn header(reply: &[u8]) -> Option<(i64, &[u8])> {
    let end = reply.iter().position(|byte| *byte == b'\r')?;
    Some((number::parse_i64(reply.get(1..end)?)?, reply.get(end + 2..)?))
}

/// A cursor of SCAN is where a node goes on, times this, and the number of the node;
const CURSORS: u64 = MOST_NODES as u64;
/// all that times this, and a mark of the map by which the scan began. Small, as some clients read cursors as numbers
/// with 53 bits: one of so many scans is misled if slots move between two of its steps.
const MAP_TAGS: u64 = 4096;

/// The mark of a map; never 0, so that a cursor is 0 only at the end.
fn map_tag_of(digest: u64) -> u64 {
    digest % (MAP_TAGS - 1) + 1
}

/// A step of SCAN, which goes from node to node. Its cursors say which node goes on, and where.
pub(super) struct Scan {
    /// Those that have something, ascending.
    nodes: Vec<NodeId>,
    /// The node that is asked next, with its own cursor.
    at: (NodeId, u64),
    map_tag: u64,
    count: usize,
    args: Vec<Vec<u8>>,
    found: usize,
    keys: Vec<u8>,
}

/// How far a step of SCAN has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ScanProgress {
    /// There is another node to be asked.
    More,
    /// It is over, and its reply is written.
    Over,
    /// No node is left: [`Scan::finish`].
    Through,
}

impl Scan {
    /// The step that a call asks for over `nodes`, those of the map with this digest; the first one refuses what is
    /// wrong with it.
    pub fn new(call: &Call<'_>, nodes: Vec<NodeId>, digest: u64) -> Scan {
        let args: Vec<Vec<u8>> = call.args.items().iter().map(|item| item.to_vec()).collect();
        let (cursor, map_tag) = match call.args.get(1).and_then(|text| scan::cursor(text).ok()).unwrap_or(0) {
            0 => (0, map_tag_of(digest)),
            cursor => (cursor / MAP_TAGS, cursor % MAP_TAGS),
        };
        let (node, cursor) = ((cursor % CURSORS) as NodeId, cursor / CURSORS);
        // What a node had that has nothing any more is on others.
        let from = nodes.iter().copied().find(|held| *held >= node).unwrap_or_else(|| nodes[0]);
        let at = (from, if from == node { cursor } else { 0 });
        let count = scan::ScanOptions::parse(call.args.cursor(2), scan::Scanned::Keys)
            .map_or(0, |options| options.count);
        Scan { nodes, at, map_tag, count, args, found: 0, keys: Vec::new() }
    }

    /// The node to be asked next, and what.
    pub fn next(&mut self) -> (NodeId, Vec<&[u8]>) {
        if self.args.get(1).is_some_and(|text| scan::cursor(text).is_ok()) {
            self.args[1] = self.at.1.to_string().into_bytes();
        }
        (self.at.0, self.args.iter().map(|arg| &**arg).collect())
    }

    /// Takes the reply of that node.
    pub fn take(&mut self, reply: &[u8], out: &mut Reply) -> ScanProgress {
        if reply.first() == Some(&b'-') {
            out.relay(reply);
            return ScanProgress::Over;
        }
        let parsed = header(reply).and_then(|(_, rest)| {
            let (len, rest) = header(rest)?;
            let (digits, rest) = rest.split_at_checked(usize::try_from(len).ok()?)?;
            let (count, keys) = header(rest.get(2..)?)?;
            Some((scan::cursor(digits).ok()?, usize::try_from(count).ok()?, keys))
        });
        let Some((cursor, count, keys)) = parsed else {
            out.error(&CommandError::new("ERR internal error: unexpected type of answer from a node"));
            return ScanProgress::Over;
        };
        self.found += count;
        self.keys.extend_from_slice(keys);
        let next = match cursor {
            0 => self.nodes.iter().find(|node| **node > self.at.0).map(|node| (*node, 0)),
            _ => Some((self.at.0, cursor)),
        };
        let Some(next) = next else { return ScanProgress::Through };
        self.at = next;
        if cursor == 0 && self.found < self.count {
            return ScanProgress::More;
        }
        self.write(Some(next), self.map_tag, out);
        ScanProgress::Over
    }

    /// Writes the reply of the last step, by the map with this digest. If slots have moved since the scan began, what was in
    /// them may have gone from a node that it had before it to one that it had behind it: then it goes on from the
    /// beginning.
    pub fn finish(&self, digest: u64, out: &mut Reply) {
        let map_tag = map_tag_of(digest);
        self.write((map_tag != self.map_tag).then_some((0, 0)), map_tag, out);
    }

    fn write(&self, next: Option<(NodeId, u64)>, map_tag: u64, out: &mut Reply) {
        let cursor = |(node, cursor): (NodeId, u64)| {
            cursor
                .wrapping_mul(CURSORS)
                .wrapping_add(node as u64)
                .wrapping_mul(MAP_TAGS)
                .wrapping_add(map_tag)
        };
        out.array(2);
        out.bulk(next.map_or(0, cursor).to_string().as_bytes());
        out.array(self.found);
        out.buf.extend_from_slice(&self.keys);
    }
}

/// The database that a call names beside its own, if it names one.
pub(super) fn other_database(args: Args<'_>) -> Option<usize> {
    let options = args.rest(2);
    let at = options.iter().position(|word| word.eq_ignore_ascii_case(b"db"))?;
    number::parse_i64(options.get(at + 1)?).and_then(|db| usize::try_from(db).ok())
}

#[cfg(test)]
mod tests {
    use store_engine::Protocol;

    use super::*;

    fn merged(merge: Merge, replies: &[&'static [u8]]) -> String {
        let plan = Plan { merge, only: None };
        let mut out = Reply::new(Protocol::Resp2);
        plan.merge(replies.iter().map(|reply| bytes::Bytes::from_static(reply)), &mut out);
        String::from_utf8(out.buf).expect("text")
    }

    #[test]
    fn answers_become_one() {
        assert_eq!(merged(Merge::Sum, &[b":3\r\n", b":4\r\n"]), ":7\r\n");
        assert_eq!(
            merged(Merge::Join, &[b"*1\r\n$1\r\na\r\n", b"*0\r\n", b"*1\r\n$1\r\nb\r\n"]),
            "*2\r\n$1\r\na\r\n$1\r\nb\r\n"
        );
        assert_eq!(merged(Merge::Any(5), &[b"$-1\r\n", b"$1\r\na\r\n"]), "$1\r\na\r\n");
        assert_eq!(merged(Merge::Any(5), &[b"$-1\r\n"]), "$-1\r\n");
        assert_eq!(merged(Merge::Agree, &[b"+OK\r\n", b"-ERR no\r\n"]), "-ERR no\r\n");
    }

    #[test]
    fn scan_goes_from_node_to_node() {
        let items: [&[u8]; 4] = [b"SCAN", b"0", b"COUNT", b"2"];
        let command = store_engine::command::lookup(b"scan").expect("a command");
        let call = Call { command, args: Args::new(&items), keys: &[], db: 0, now_ms: 0, no_touch: false };
        let mut scan = Scan::new(&call, vec![0, 1, 3], 6);
        let mut out = Reply::new(Protocol::Resp2);
        assert_eq!(scan.next(), (0, vec![&b"SCAN"[..], b"0", b"COUNT", b"2"]));
        let more = scan.take(b"*2\r\n$1\r\n0\r\n*1\r\n$1\r\na\r\n", &mut out);
        assert_eq!(more, ScanProgress::More, "there is room for one");
        assert_eq!(scan.next().0, 1);
        assert_eq!(scan.take(b"*2\r\n$2\r\n17\r\n*1\r\n$1\r\nb\r\n", &mut out), ScanProgress::Over);
        let cursor = (17_001 * MAP_TAGS + 7).to_string();
        assert_eq!(
            String::from_utf8_lossy(&out.buf),
            format!("*2\r\n$8\r\n{cursor}\r\n*2\r\n$1\r\na\r\n$1\r\nb\r\n")
        );
        let items: [&[u8]; 2] = [b"SCAN", cursor.as_bytes()];
        let mut scan = Scan::new(&Call { args: Args::new(&items), ..call }, vec![0, 1, 3], 6);
        assert_eq!(scan.next(), (1, vec![&b"SCAN"[..], b"17"]));
        assert_eq!(scan.take(b"*2\r\n$1\r\n0\r\n*0\r\n", &mut out), ScanProgress::More);
        assert_eq!(scan.take(b"*2\r\n$1\r\n0\r\n*0\r\n", &mut out), ScanProgress::Through);
        let mut finished = |digest| {
            out.buf.clear();
            scan.finish(digest, &mut out);
            String::from_utf8_lossy(&out.buf).into_owned()
        };
        assert_eq!(finished(6), "*2\r\n$1\r\n0\r\n*0\r\n");
        assert_eq!(finished(7), "*2\r\n$1\r\n8\r\n*0\r\n", "slots have moved: once more from the beginning");
    }
}
