//! Calls that concern more than the nodes of their keys: what each node is asked, and what its answers come to.

use store_engine::command::scan;
use store_engine::{Args, CommandError, Reply, number};

use crate::node::Call;
use crate::topology::NodeId;

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
    /// One page of many: it is this node's, of so many.
    Page(NodeId, usize),
}

/// How a call is spread.
pub(super) struct Plan {
    merge: Merge,
    /// The only node that is asked.
    only: Option<NodeId>,
    args: Vec<Vec<u8>>,
}

/// The plan for a call that is routed to all of `nodes` nodes. `chance` decides where that is left to it.
pub(super) fn plan(call: &Call<'_>, nodes: usize, node_of: impl Fn(&[u8]) -> NodeId, chance: &u64) -> Plan {
    let mut plan = Plan { merge: Merge::Agree, only: None, args: Vec::new() };
    match call.command.name {
        "dbsize" => plan.merge = Merge::Sum,
        "keys" => plan.merge = Merge::Join,
        "randomkey" => plan.merge = Merge::Any(*chance),
        "scan" => {
            let cursor = call.args.get(1).and_then(|text| scan::cursor(text).ok());
            // A cursor that is none is refused by whoever is asked.
            let (node, inner) = cursor
                .map_or((0, None), |cursor| ((cursor % nodes as u64) as usize, Some(cursor / nodes as u64)));
            plan.merge = Merge::Page(node, nodes);
            plan.only = Some(node);
            if let Some(inner) = inner {
                plan.args = call.args.items().iter().map(|item| item.to_vec()).collect();
                plan.args[1] = inner.to_string().into_bytes();
            }
        }
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

    /// What they are asked: the arguments, in place of those of the call if there are any.
    pub fn args(&self) -> Option<Vec<&[u8]>> {
        (!self.args.is_empty()).then(|| self.args.iter().map(|arg| &**arg).collect())
    }

    /// Makes one reply of those of the nodes that were asked.
    pub fn merge(&self, replies: impl IntoIterator<Item = bytes::Bytes>, out: &mut Reply) {
        let replies: Vec<bytes::Bytes> = replies.into_iter().collect();
        if let Some(error) = replies.iter().find(|reply| reply.first() == Some(&b'-')) {
            return out.buf.extend_from_slice(error);
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
                    count => out.buf.extend_from_slice(found[(chance % count) as usize]),
                }
            }
            Merge::Agree => out.buf.extend_from_slice(replies.first().map_or(b"+OK\r\n", |reply| &**reply)),
            Merge::Page(node, nodes) => page(replies.first().map_or(&[], |reply| &**reply), node, nodes, out),
        }
    }
}

/// The number behind the first byte of a reply, and what follows.
fn header(reply: &[u8]) -> Option<(i64, &[u8])> {
    let end = reply.iter().position(|byte| *byte == b'\r')?;
    Some((number::parse_i64(reply.get(1..end)?)?, reply.get(end + 2..)?))
}

/// A node's page of SCAN, with a cursor that says which node goes on.
fn page(reply: &[u8], node: NodeId, nodes: usize, out: &mut Reply) {
    let parsed = header(reply).and_then(|(_, rest)| {
        let (len, rest) = header(rest)?;
        let (digits, rest) = rest.split_at_checked(usize::try_from(len).ok()?)?;
        Some((scan::cursor(digits).ok()?, rest.get(2..)?))
    });
    let Some((inner, keys)) = parsed else {
        return out.error(&CommandError::new("ERR internal error: a node gave an answer of another kind"));
    };
    let next = match inner {
        0 if node + 1 == nodes => 0,
        0 => node as u64 + 1,
        inner => inner * nodes as u64 + node as u64,
    };
    out.array(2);
    out.bulk(next.to_string().as_bytes());
    out.buf.extend_from_slice(keys);
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
        let plan = Plan { merge, only: None, args: Vec::new() };
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
    fn pages_lead_from_node_to_node() {
        let page = |node, reply| merged(Merge::Page(node, 3), &[reply]);
        assert_eq!(page(0, b"*2\r\n$1\r\n0\r\n*0\r\n"), "*2\r\n$1\r\n1\r\n*0\r\n");
        assert_eq!(page(1, b"*2\r\n$2\r\n17\r\n*0\r\n"), "*2\r\n$2\r\n52\r\n*0\r\n");
        assert_eq!(page(2, b"*2\r\n$1\r\n0\r\n*0\r\n"), "*2\r\n$1\r\n0\r\n*0\r\n");
    }
}
