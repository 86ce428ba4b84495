//! `moonshard topology` on the command line.

use std::fmt;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use store::topology::SLOTS;

use crate::admin::topology::Task;
use crate::admin::topology::replicas::Task as Replicas;
use crate::config::PARAMETERS;

/// The flag without which nothing is done that may lose data.
const ACCEPT_LOSS: &str = "accept-loss";

/// What `moonshard topology` is to do.
pub(super) fn task(matches: &ArgMatches) -> Task {
    let text =
        |matches: &ArgMatches, name| matches.get_one::<String>(name).cloned().expect("clap requires it");
    match matches.subcommand() {
        Some(("move", of)) => {
            let slots = *of.get_one::<(usize, usize)>("slots").expect("clap requires it");
            Task::Move { slots, to: text(of, "to") }
        }
        Some(("found", of)) => {
            Task::Found { replicas: *of.get_one::<usize>("replicas").expect("it has a default") }
        }
        Some(("adopt", _)) => Task::Adopt,
        Some(("recover", of)) => Task::Recover { accept_loss: of.get_flag(ACCEPT_LOSS) },
        Some(("groups", of)) => Task::Replicas(Replicas::Show { json: of.get_flag("json") }),
        Some(("join", of)) => Task::Replicas(Replicas::Join {
            process: text(of, "PROCESS"),
            replaces: None,
            if_missing: of.get_flag("if-missing"),
        }),
        Some(("replace", of)) => Task::Replicas(Replicas::Join {
            process: text(of, "NEW"),
            replaces: Some(text(of, "OLD")),
            if_missing: false,
        }),
        Some(("leave", of)) => Task::Replicas(Replicas::Leave { process: text(of, "PROCESS") }),
        Some(("replicas", of)) => Task::Replicas(Replicas::Replicas {
            count: *of.get_one::<usize>("COUNT").expect("clap requires it"),
        }),
        Some(("transfer", of)) => {
            Task::Replicas(Replicas::Transfer { group: text(of, "GROUP"), to: text(of, "PROCESS") })
        }
        Some(("add", of)) => Task::Add { node: text(of, "NODE") },
        Some(("drain", of)) => Task::Drain { node: text(of, "NODE") },
        Some(("accept", of)) => Task::Accept { node: text(of, "NODE") },
        Some(("transactions", of)) => Task::Transactions { in_doubt: of.get_flag("in-doubt") },
        Some(("decide", of)) => Task::Decide {
            transaction: *of.get_one::<u64>("TRANSACTION").expect("clap requires it"),
            commit: text(of, "DECISION") == "commit",
        },
        _ => Task::Show { json: matches.get_flag("json") },
    }
}

/// A text that names no slots.
#[derive(Debug)]
struct InvalidSlots;

impl std::error::Error for InvalidSlots {}

impl fmt::Display for InvalidSlots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected FIRST-LAST, from 0 to {}", SLOTS - 1)
    }
}

/// Slots as `FIRST-LAST`, or one.
fn slots(text: &str) -> Result<(usize, usize), InvalidSlots> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let number = |text: &str| text.parse().ok().filter(|slot| *slot < SLOTS).ok_or(InvalidSlots);
    let (first, last) = (number(first)?, number(last)?);
    if first <= last { Ok((first, last)) } else { Err(InvalidSlots) }
}

/// `moonshard topology` with its subcommands.
pub(super) fn command() -> Command {
    let parameter = |name: &'static str| {
        let row = PARAMETERS.iter().find(|row| row.name == name).expect("a parameter");
        Arg::new(name).long(name).value_name(row.kind.metavar()).global(true)
    };
    let node = || Arg::new("NODE").required(true).help("Address of the node, HOST:PORT");
    let process = |name: &'static str| Arg::new(name).required(true);
    let copied = "The data is copied while requests are served. The command waits until that is done; interrupted, it goes on \
                  in the cluster.";
    let repeated = "Requests are served meanwhile. An interrupted command is completed by running it again.";
    Command::new("topology")
        .about("Show or change which store node owns which slots, without downtime")
        .arg(parameter("stores").help("Store nodes of the cluster; one that is reachable is enough"))
        .arg(parameter("cluster-token-file").help("File with the secret token of the cluster"))
        .arg(parameter("tls-stores").help("Whether to connect to them over TLS"))
        .arg(parameter("tls-ca-cert-file").help("Certificate authorities that their certificates must be signed by"))
        .arg(parameter("tls-cert-file").help("Client certificate to present"))
        .arg(parameter("tls-key-file").help("Private key of that certificate"))
        .arg(Arg::new("json").long("json").action(ArgAction::SetTrue).global(true).help("Print JSON"))
        .subcommand(
            Command::new("show")
                .about("Show slots, keys, bytes, epoch and journal lag of each node; the default"),
        )
        .subcommand(
            Command::new("move")
                .about("Move slots to a node")
                .after_help(repeated)
                .arg(
                    Arg::new("slots")
                        .long("slots")
                        .value_name("FIRST-LAST")
                        .required(true)
                        .value_parser(slots)
                        .help("The slots to move, whichever nodes own them"),
                )
                .arg(
                    Arg::new("to")
                        .long("to")
                        .value_name("NODE")
                        .required(true)
                        .help("Address of the destination, HOST:PORT"),
                ),
        )
        .subcommand(
            Command::new("add")
                .about("Add an empty node and move an equal number of slots to it")
                .after_help(repeated)
                .arg(node()),
        )
        .subcommand(
            Command::new("drain")
                .about("Move all slots of a node to the other nodes, after which it can be stopped")
                .after_help(repeated)
                .arg(node()),
        )
        .subcommand(
            Command::new("found")
                .about("Make the processes of --stores, which must have no data, a cluster of replicated groups")
                .after_help(
                    "Each process leads one group at first, and each group has replicas on --replicas processes. \
                     Start gateways afterwards; store nodes with `replicated yes` refuse those that were started \
                     before. An interrupted command is completed by running it again; a cluster that is complete \
                     stays as it is.",
                )
                .arg(
                    Arg::new("replicas")
                        .long("replicas")
                        .value_name("COUNT")
                        .value_parser(value_parser!(usize))
                        .default_value("3")
                        .help("Replicas of each group: 1, 3 or 5"),
                ),
        )
        .subcommand(
            Command::new("adopt")
                .about("Make the nodes of a cluster, with their data, groups with one replica each")
                .after_help(
                    "Each node goes on as the group of its name. Requests fail with TRYAGAIN or CLUSTERDOWN for about a second \
                     meanwhile; gateways need not be restarted. `topology replicas 3` makes copies afterwards. An \
                     interrupted command is completed by running it again.",
                ),
        )
        .subcommand(
            Command::new("groups")
                .about("Show the processes and replicas of a cluster of replicated groups, and how far each replica is"),
        )
        .subcommand(
            Command::new("join")
                .about("Let a process without data join a cluster of replicated groups")
                .after_help(copied)
                .arg(Arg::new("if-missing").long("if-missing").action(ArgAction::SetTrue).help(
                    "If the process belongs to the cluster already, only wait until it has its replicas",
                ))
                .arg(process("PROCESS").help("Address of the process, HOST:PORT")),
        )
        .subcommand(
            Command::new("leave")
                .about("Let the other processes take over the replicas of a process, after which it can be stopped")
                .after_help(copied)
                .arg(process("PROCESS").help("Address of the process, HOST:PORT; it need not run")),
        )
        .subcommand(
            Command::new("replace")
                .about("Let a process without data take over the replicas of another one, which need not run")
                .after_help(copied)
                .arg(process("OLD").help("Address of the process that goes, HOST:PORT"))
                .arg(process("NEW").help("Address of the process that comes, HOST:PORT")),
        )
        .subcommand(
            Command::new("replicas").about("Change how many replicas each group has").after_help(copied).arg(
                Arg::new("COUNT")
                    .required(true)
                    .value_parser(value_parser!(usize))
                    .help("Replicas of each group: 1, 3 or 5"),
            ),
        )
        .subcommand(
            Command::new("transfer")
                .about("Let another process lead a group, now and whenever it runs")
                .arg(Arg::new("GROUP").required(true).help("Name of the group, as `topology groups` shows it"))
                .arg(process("PROCESS").help("Address of a process with a replica of the group, HOST:PORT")),
        )
        .subcommand(
            Command::new("recover")
                .about("Let a cluster of replicated groups go on when a majority of the replicas of a group is lost for good")
                .after_help(
                    "Each group without a majority goes on with the newest replica that answers. Name all processes that are \
                     left. Without --accept-loss the command only prints what would be done and what may be lost. It is \
                     refused while a majority of the replicas of each group answers, or while a process that answers hears \
                     of a leader. Processes that do not answer are given up: they serve nothing when they come back.",
                )
                .arg(
                    Arg::new(ACCEPT_LOSS)
                        .long(ACCEPT_LOSS)
                        .action(ArgAction::SetTrue)
                        .help("Do it, although changes may be lost that only the lost processes have"),
                ),
        )
        .subcommand(
            Command::new("accept")
                .about("Accept a node whose data was lost, with the data that its directory has now, or none")
                .arg(node()),
        )
        .subcommand(
            Command::new("transactions")
                .about("List prepared transactions, which hold locks until their coordinator decides")
                .arg(Arg::new("in-doubt").long("in-doubt").action(ArgAction::SetTrue).help(
                    "Only transactions in doubt, whose coordinator has been unreachable for 5 seconds",
                )),
        )
        .subcommand(
            Command::new("decide")
                .about("Commit or roll back a transaction in doubt whose coordinator is lost")
                .after_help(
                    "The coordinator may have decided differently, and some participants may have followed it: then a \
                     part of the transaction is committed and a part is rolled back. Restart the coordinator with \
                     its data instead if that is possible.",
                )
                .arg(
                    Arg::new("TRANSACTION")
                        .required(true)
                        .value_parser(|text: &str| u64::from_str_radix(text, 16))
                        .help("Number of the transaction, as transactions shows it"),
                )
                .arg(
                    Arg::new("DECISION")
                        .required(true)
                        .value_parser(["commit", "rollback"])
                        .help("What all participants that wait for the coordinator do"),
                ),
        )
}
