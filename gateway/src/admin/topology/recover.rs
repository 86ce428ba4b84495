//! How a cluster goes on when a majority of the replicas of groups is lost for good.

use std::fmt::Write as _;

use store::client::{Directory, PeerCredentials, RecoveredGroup, RecoveryPlan, SoleReplica, plan_recovery};

use super::errors::TopologyError;
use super::output::print;
use super::replicas;

/// Prints what is left of the cluster and what may be lost; recovers the cluster only with `accept_loss`.
pub(super) async fn run(
    stores: &[String],
    credentials: &PeerCredentials,
    accept_loss: bool,
) -> Result<(), TopologyError> {
    let plan = plan_recovery(stores, credentials).await?;
    print(&as_text(&plan));
    if !accept_loss {
        return Err(TopologyError::LossNotAccepted);
    }
    plan.carry_out(credentials).await?;
    let directory = Directory::of(plan.groups.clone());
    replicas::wait_for_all(stores, &directory, credentials).await?;
    let replicas = plan.groups.replicas;
    print(&format!(
        "recovered as the cluster {:016x}: each group has {replicas} {}\n\
         Processes that were given up serve nothing when they come back, and keep their data; with an empty data-dir they can \
         join. When enough have joined, `moonshard topology replicas 3` makes copies.\n\
         Transactions over several groups that were prepared end as the log of their coordinator says, or as another \
         participant knows. Others stay in doubt and hold their keys, since the decision may be lost: `moonshard topology \
         transactions --in-doubt` shows them, `moonshard topology decide` ends them.\n",
        plan.groups.cluster,
        if replicas == 1 { "replica" } else { "replicas" },
    ));
    Ok(())
}

fn as_text(plan: &RecoveryPlan) -> String {
    let mut text = format!("cluster {:016x}\n", plan.cluster());
    // Writing to a string cannot fail.
    for (process, error) in plan.lost() {
        let _ = writeln!(text, "given up: process {}, {} ({error})", process.id, process.address);
    }
    for group in plan.recovered() {
        let RecoveredGroup { name, voters, answering, goes_on_with } = group;
        let goes_on = match goes_on_with {
            None => "keeps its data".to_owned(),
            Some(SoleReplica { address, last: None, .. }) => {
                format!(
                    "starts with a new log on {address}, and with the list of groups that this process knows"
                )
            }
            Some(SoleReplica { address, last: Some(last), without_leader }) => format!(
                "goes on with the data of {address}, whose log ends with entry {} of term {}; changes after that, which a majority \
                 may have acknowledged, are lost. It has known no leader for {} s",
                last.index,
                last.term,
                without_leader.as_secs()
            ),
        };
        let _ = writeln!(text, "group {name}: {answering} of {voters} replicas answer; it {goes_on}");
    }
    text.push_str("Of a transaction over several groups a part may be lost.\n");
    text
}
