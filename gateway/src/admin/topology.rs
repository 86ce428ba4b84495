//! `moonshard topology`: which store node has which slots, and how that is changed while all serve.

mod errors;
mod output;
mod recover;
pub mod replicas;

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use store::Cluster;
use store::client::{
    Decided, Founded, Member, NodeError, PreparedTransaction, TopologyError as ClusterError, Unfinished,
    accept, adopt, drain_timeout, found, look,
};
use store::topology::{NodeId, SLOTS, SlotMap};

use self::errors::{StillNeeded, TopologyError};
use self::output::{print, table};
use super::runtime;
use crate::config::{Address, Config};
use crate::process::certificates::Certificates;

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Task {
    /// Tell who has what.
    Show {
        /// As JSON.
        json: bool,
    },
    /// Make processes without data a cluster of replicated groups.
    Found {
        /// How many replicas each group has.
        replicas: usize,
    },
    /// Make the nodes of a cluster without replicas groups with one replica.
    Adopt,
    /// Show or change processes and replicas.
    Replicas(replicas::Task),
    /// Let a cluster go on with what is left of it.
    Recover {
        /// Although data may be lost.
        accept_loss: bool,
    },
    /// Move slots to a node.
    Move {
        /// First and last.
        slots: (usize, usize),
        /// Its address.
        to: String,
    },
    /// Add a node and give it its share.
    Add {
        /// Its address.
        node: String,
    },
    /// Take all slots from a node.
    Drain {
        /// Its address.
        node: String,
    },
    /// Let a node go on without the data it had.
    Accept {
        /// Its address.
        node: String,
    },
    /// Tell of transactions that cannot find out how they end.
    Transactions {
        /// Only those in doubt.
        in_doubt: bool,
    },
    /// Say how one of them ends.
    Decide {
        /// Its number.
        transaction: u64,
        /// It is kept, not undone.
        commit: bool,
    },
}

/// How long a node that cannot move slots is asked again, and how often.
const RETRIES: (Duration, Duration) = (Duration::from_secs(30), Duration::from_millis(200));

/// How often a drained node is asked what still needs it.
const ASK_AGAIN: Duration = Duration::from_millis(200);

/// Slots that a node is to get.
type SlotMove = ((usize, usize), NodeId);

/// Does it with the cluster of the nodes that the configuration names; returns what the process exits with.
pub fn run(config: &Config, task: &Task) -> u8 {
    let Some(runtime) = runtime() else { return 1 };
    match runtime.block_on(done(config, task)) {
        Ok(()) => 0,
        Err(why) => {
            eprintln!("moonshard: {why}");
            1
        }
    }
}

async fn done(config: &Config, task: &Task) -> Result<(), TopologyError> {
    let stores: Vec<String> = config.stores.get().iter().map(Address::to_string).collect();
    let peer_credentials = Certificates::load(config)?.peer_credentials(config)?;
    if let Task::Found { replicas } = task {
        let Founded { groups, was_there } = found(&stores, *replicas, &peer_credentials).await?;
        let (count, processes) = (groups.groups.len(), groups.processes.len());
        print(&format!(
            "cluster {:016x} {}: {count} groups with {} replicas each on {processes} processes\n",
            groups.cluster,
            if was_there { "was founded before" } else { "founded" },
            groups.replicas,
        ));
        return Ok(());
    }
    if let Task::Adopt = task {
        let groups = adopt(&stores, &peer_credentials).await?;
        print(&format!(
            "cluster {:016x} adopted: {} nodes are groups with one replica; `moonshard topology replicas 3` makes copies\n",
            groups.cluster,
            groups.groups.len()
        ));
        return Ok(());
    }
    if let Task::Recover { accept_loss } = task {
        return recover::run(&stores, &peer_credentials, *accept_loss).await;
    }
    if let Task::Replicas(task) = task {
        return replicas::run(&stores, &peer_credentials, task).await;
    }
    let (map, directory) = look(&stores, &peer_credentials).await?;
    let cluster = Cluster::of(map, directory, peer_credentials.clone());
    for link in cluster.links() {
        // A node that is not there is reported where it is needed.
        let _ = link.connected().await;
    }
    match task {
        // Done above.
        Task::Found { .. } | Task::Adopt | Task::Recover { .. } | Task::Replicas(_) => Ok(()),
        Task::Show { json } => {
            let rows = cluster.members();
            print(&if *json { as_json(cluster.map().epoch(), &rows) } else { as_table(&rows) });
            Ok(())
        }
        Task::Move { slots, to } => {
            let to = known(&cluster.map(), to)?;
            go(&cluster, &[(*slots, to)]).await
        }
        Task::Add { node } => {
            let node = cluster.add_node(node).await?;
            let link = cluster.link(node);
            let unreachable = |why| ClusterError::Node(link.address().to_owned(), NodeError::Lost(why));
            link.connected().await.map_err(unreachable)?;
            let steps = shares(&cluster.map(), node);
            go(&cluster, &steps).await
        }
        Task::Drain { node } => {
            let node = known(&cluster.map(), node)?;
            let steps = rest(&cluster.map(), node)?;
            go(&cluster, &steps).await?;
            finished(&cluster, node).await?;
            print("all connected gateways use the new slot map; the node can be stopped\n");
            Ok(())
        }
        Task::Accept { node } => {
            accept(&cluster, node, &peer_credentials).await?;
            print(&format!("{node} accepted with the data that it has\n"));
            Ok(())
        }
        Task::Transactions { in_doubt } => {
            print(&as_list(&cluster.transactions(*in_doubt).await));
            Ok(())
        }
        Task::Decide { transaction, commit } => {
            let Decided { nodes, missed } = cluster.decide(*transaction, *commit).await?;
            if nodes.is_empty() && missed.is_empty() {
                return Err(TopologyError::NotInDoubt(*transaction));
            }
            let decision = if *commit { "committed" } else { "rolled back" };
            print(&format!("transaction {transaction:016x} {decision} on {} nodes\n", nodes.len()));
            if missed.is_empty() { Ok(()) } else { Err(TopologyError::Missed(missed)) }
        }
    }
}

fn known(map: &SlotMap, address: &str) -> Result<NodeId, TopologyError> {
    let found = map.nodes().iter().position(|node| node == address);
    found.ok_or_else(|| ClusterError::unknown_node(map, address).into())
}

/// Waits until nothing needs a node that has no slots left: the gateways that have a link to it know the new slot map, and
/// no participant has to ask it for the decision of a transaction.
async fn finished(cluster: &Cluster, node: NodeId) -> Result<(), TopologyError> {
    let since = Instant::now();
    loop {
        let needed = match cluster.unfinished(node).await {
            Ok(Unfinished { gateways_behind: 0, prepared: 0, decided: 0 }) => return Ok(()),
            Ok(unfinished) => StillNeeded::By(unfinished),
            Err(why) => StillNeeded::Unknown(why),
        };
        if since.elapsed() > drain_timeout() {
            return Err(TopologyError::StillNeeded(needed));
        }
        tokio::time::sleep(ASK_AGAIN).await;
    }
}

/// What a new node is to get, so that all have equal shares.
fn shares(map: &SlotMap, to: NodeId) -> Vec<SlotMove> {
    let mut members = map.owners();
    if !members.contains(&to) {
        members.push(to);
    }
    let mut wanted = (SLOTS / members.len()).saturating_sub(map.count_of(to));
    let most = SLOTS.div_ceil(members.len());
    let mut steps = Vec::new();
    for member in members.into_iter().filter(|member| *member != to) {
        let spare = map.count_of(member).saturating_sub(most).min(wanted);
        let taken = last_of(map, member, spare);
        wanted -= spare;
        steps.extend(taken.into_iter().map(|run| (run, to)));
    }
    steps
}

/// The last `count` slots of a node, in runs.
fn last_of(map: &SlotMap, node: NodeId, mut count: usize) -> Vec<(usize, usize)> {
    let mut taken = Vec::new();
    for (first, last) in map.runs_of(node).into_iter().rev() {
        let len = (last - first + 1).min(count);
        if len > 0 {
            taken.push((last + 1 - len, last));
        }
        count -= len;
    }
    taken
}

/// Where the slots of a drained node go, so that all others have equal shares.
fn rest(map: &SlotMap, from: NodeId) -> Result<Vec<SlotMove>, TopologyError> {
    let mut others: Vec<(usize, NodeId)> =
        map.owners().into_iter().map(|node| (map.count_of(node), node)).collect();
    others.retain(|(_, node)| *node != from);
    if others.is_empty() {
        return Err(TopologyError::NoOtherOwner);
    }
    let fair = SLOTS.div_ceil(others.len());
    let mut steps = Vec::new();
    for (mut first, last) in map.runs_of(from) {
        while first <= last {
            let (count, to) = others.iter_mut().min().expect("there is one");
            let len = (last - first + 1).min(fair.saturating_sub(*count).max(1));
            steps.push(((first, first + len - 1), *to));
            *count += len;
            first += len;
        }
    }
    Ok(steps)
}

/// Moves slots and reports that.
async fn go(cluster: &Arc<Cluster>, steps: &[SlotMove]) -> Result<(), TopologyError> {
    let outside = |map: &SlotMap| {
        let left = |((first, last), to): &SlotMove| {
            (*first..=*last).filter(|slot| map.owner(*slot as u16) != *to).count()
        };
        steps.iter().map(left).sum::<usize>()
    };
    let all = outside(&cluster.map());
    let mut sum = (0, 0);
    for (range, to) in steps {
        let name = cluster.link(*to).address().to_owned();
        for from in 0..cluster.map().nodes().len() {
            let has = |map: &SlotMap| (range.0..=range.1).any(|slot| map.owner(slot as u16) == from);
            while from != *to && has(&cluster.map()) {
                let moved = patiently(cluster, from, *range, *to).await?;
                (sum.0, sum.1) = (sum.0 + moved.keys, sum.1 + moved.bytes);
                let done = all - outside(&cluster.map());
                print(&format!("{done} of {all} slots moved, {} keys, {} bytes, to {name}\n", sum.0, sum.1));
            }
        }
    }
    print(&format!(
        "done: {all} slots moved, {} keys, {} bytes; epoch {}\n",
        sum.0,
        sum.1,
        cluster.map().epoch()
    ));
    Ok(())
}

/// Moves a batch, although that may fail for a while.
async fn patiently(
    cluster: &Arc<Cluster>,
    from: NodeId,
    range: (usize, usize),
    to: NodeId,
) -> Result<store::client::Moved, TopologyError> {
    let since = Instant::now();
    loop {
        match cluster.move_some(from, range, to).await {
            Err(error) if !error.may_pass || since.elapsed() > RETRIES.0 => {
                return Err(TopologyError::NotMoved(error));
            }
            Err(_) => tokio::time::sleep(RETRIES.1).await,
            Ok(moved) => return Ok(moved),
        }
    }
}

fn as_list(transactions: &[PreparedTransaction]) -> String {
    let line = |prepared: &PreparedTransaction| {
        let PreparedTransaction { transaction, node, coordinator, in_doubt_ms, keys, count, .. } = prepared;
        let names: Vec<String> = keys.iter().map(|key| quoted(&String::from_utf8_lossy(key))).collect();
        let held = match count {
            None => "all keys".to_owned(),
            Some(count) if *count as usize > keys.len() => format!("{} … {count} keys", names.join(" ")),
            Some(_) => names.join(" "),
        };
        let state = match in_doubt_ms {
            Some(ms) => format!("in doubt for {} s", ms / 1000),
            None => "prepared".to_owned(),
        };
        format!("{transaction:016x}  node {node}  coordinator {coordinator}  {state}  locks {held}\n")
    };
    match transactions {
        [] => "no transactions\n".to_owned(),
        transactions => transactions.iter().map(line).collect(),
    }
}

fn as_table(rows: &[Member]) -> String {
    let head = ["node", "slots", "keys", "bytes", "epoch", "lag", "in doubt", "clock", "reachable", "ranges"]
        .map(str::to_owned);
    let row = |row: &Member| {
        let up = row.up.as_ref().map_or_else(|why| format!("no: {why}"), |()| "yes".to_owned());
        let clock =
            row.clock.map_or_else(|| "unknown".to_owned(), |clock| format!("{:+} ms", clock.ahead_ms));
        let numbers = [row.count as u64, row.keys, row.bytes, row.epoch, row.lag, row.in_doubt]
            .map(|number| number.to_string());
        let [count, keys, bytes, epoch, lag, in_doubt] = numbers;
        [row.node.clone(), count, keys, bytes, epoch, lag, in_doubt, clock, up, row.slots.clone()]
    };
    let lines: Vec<[String; 10]> = std::iter::once(head).chain(rows.iter().map(row)).collect();
    table(&lines)
}

fn as_json(epoch: u64, rows: &[Member]) -> String {
    let row = |row: &Member| {
        let Member { keys, bytes, epoch, lag, prepared, decided, in_doubt, contradicted, .. } = row;
        let clock = row.clock.map_or_else(|| "null".to_owned(), |clock| clock.ahead_ms.to_string());
        let error = row.up.as_ref().err().map_or_else(|| "null".to_owned(), |why| quoted(&why.to_string()));
        format!(
            "{{\"node\":{},\"slots\":{},\"ranges\":{},\"keys\":{keys},\"bytes\":{bytes},\"epoch\":{epoch},\
             \"lag\":{lag},\"prepared\":{prepared},\"decided\":{decided},\"in_doubt\":{in_doubt},\
             \"contradicted\":{contradicted},\"clock_ahead_ms\":{clock},\"reachable\":{},\"error\":{error}}}",
            quoted(&row.node),
            row.count,
            quoted(&row.slots),
            row.up.is_ok(),
        )
    };
    let rows: Vec<String> = rows.iter().map(row).collect();
    format!("{{\"epoch\":{epoch},\"nodes\":[{}]}}\n", rows.join(","))
}

/// As a string of JSON.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => out.extend(['\\', letter]),
            // Writing to a string cannot fail.
            control if control < ' ' => _ = write!(out, "\\u{:04x}", u32::from(control)),
            letter => out.push(letter),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use store::client::{ClockOffset, LinkError};

    use super::*;

    fn map(nodes: usize) -> SlotMap {
        let names: Vec<String> = (0..nodes).map(|at| format!("node{at}:1")).collect();
        SlotMap::even(&names).expect("good names").founded()
    }

    fn after(mut map: SlotMap, steps: &[SlotMove]) -> SlotMap {
        for ((first, last), to) in steps {
            let slots: Vec<u16> = (*first..=*last).map(|slot| slot as u16).collect();
            map = map.moved(&slots, *to);
        }
        map
    }

    fn counts(map: &SlotMap) -> Vec<usize> {
        (0..map.nodes().len()).map(|node| map.count_of(node)).collect()
    }

    #[test]
    fn shares_are_equal_after_nodes_have_come_and_gone() {
        let mut map = map(3).with_node("node3:1").expect("a good name");
        map = after(map.clone(), &shares(&map, 3));
        assert_eq!(counts(&map), [4096; 4]);
        assert_eq!(shares(&map, 3), [], "repeated, there is nothing to do");
        map = after(map.clone(), &rest(&map, 0).expect("there are others"));
        assert_eq!(counts(&map)[0], 0);
        assert!(counts(&map)[1..].iter().all(|count| (5460..=5462).contains(count)), "{:?}", counts(&map));
        map = after(map.clone(), &rest(&map, 2).expect("there are others"));
        assert_eq!(counts(&map), [0, 8192, 0, 8192]);
        map = after(map.clone(), &rest(&map, 1).expect("there is another"));
        assert_eq!(counts(&map), [0, 0, 0, 16384]);
        assert!(rest(&map, 3).is_err());
    }

    #[test]
    fn a_table_and_json_tell_the_same() {
        let row = |up: Result<(), LinkError>| Member {
            node: "a:1".to_owned(),
            slots: "0-9".to_owned(),
            count: 10,
            keys: 2,
            bytes: 300,
            epoch: 4,
            lag: 5,
            prepared: 6,
            decided: 7,
            in_doubt: 8,
            contradicted: 9,
            clock: up.is_ok().then_some(ClockOffset { ahead_ms: 12, error_ms: 1 }),
            up,
        };
        let rows = [row(Ok(())), row(Err(LinkError::Refused("no \"way\"".to_owned())))];
        let table = "node  slots  keys  bytes  epoch  lag  in doubt  clock    reachable     ranges\n\
                     a:1   10     2     300    4      5    8         +12 ms   yes           0-9\n\
                     a:1   10     2     300    4      5    8         unknown  no: no \"way\"  0-9\n";
        assert_eq!(as_table(&rows), table);
        let start = r#"{"node":"a:1","slots":10,"ranges":"0-9","keys":2,"bytes":300,"epoch":4,"lag":5,"prepared":6,"decided":7,"in_doubt":8,"contradicted":9,"clock_ahead_ms":"#;
        let (up, down) =
            (r#"12,"reachable":true,"error":null}"#, r#"null,"reachable":false,"error":"no \"way\""}"#);
        let json = format!("{{\"epoch\":7,\"nodes\":[{start}{up},{start}{down}]}}\n");
        assert_eq!(as_json(7, &rows), json);
    }
}
