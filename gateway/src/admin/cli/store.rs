//! The command line of `moonshard store` with its subcommands.

use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use store_engine::rdb::Version;

use super::server;
use crate::admin::merge;
use crate::admin::offline_tools::Task;

/// The numbers of [`Version::ALL`], the default first.
const VERSIONS: [&str; 3] = ["10", "12", "80"];

/// `moonshard store`. `flags` are those of a node.
pub fn command(flags: Vec<Arg>) -> Command {
    let path = |name: &'static str, help: &'static str| {
        Arg::new(name).value_parser(value_parser!(PathBuf)).help(help)
    };
    let codes = "Exit codes: 0 success, 1 damaged data found, 2 failure.";
    Command::new("store")
        .about("Run a store node, which holds a part of the data of gateways; or check, dump or restore a data-dir")
        .after_help(codes)
        .args_conflicts_with_subcommands(true)
        .args(flags)
        .subcommand(
            Command::new("check")
                .about("Read all of a data-dir without changing it, and report its contents and any damage")
                .after_help(codes)
                .arg(path("DIR", "The data-dir").required(true)),
        )
        .subcommand(
            Command::new("dump")
                .about(
                    "Write the keys, scripts and libraries of a data-dir to an RDB file that Redis can read; of a \
                     damaged one, what can be read",
                )
                .after_help(codes)
                .arg(path("DIR", "The data-dir").required(true))
                .arg(path("FILE", "The RDB file; - is standard output").required(true))
                .arg(version_option()),
        )
        .subcommand(
            Command::new("restore")
                .about(
                    "Create a data-dir from an RDB file of this server, of Redis up to 8.10 or of Valkey up to 9.2, or \
                     add its contents to a server that serves",
                )
                .after_help(
                    "With --merge, each key is sent to the server by RESTORE, and scripts and libraries are loaded. A key \
                     or library that the server refuses is reported, and the others are restored. A FILE that is damaged \
                     is refused before anything is sent, unless it is standard input.\n\
                     Exit codes: 0 success, 1 damaged data found, 2 failure, or something was refused.",
                )
                .arg(path("FILE", "The RDB file; - is standard input").required(true))
                .arg(
                    path("DIR", "The new data-dir, which must be empty or not exist")
                        .required_unless_present("merge")
                        .conflicts_with("merge"),
                )
                .arg(
                    Arg::new("merge")
                        .long("merge")
                        .value_name("URL")
                        .help(format!("Add to the data of this server: {}", server::URL_FORM)),
                )
                .arg(
                    Arg::new("replace")
                        .long("replace")
                        .action(ArgAction::SetTrue)
                        .conflicts_with("DIR")
                        .help("Replace keys and libraries that the server has"),
                )
                .args(server::options().map(|option| option.conflicts_with("DIR"))),
        )
}

/// What a subcommand is to do.
pub fn task(name: &str, matches: &ArgMatches) -> Task {
    match name {
        "check" => Task::Check { dir: path("DIR", matches) },
        "dump" => {
            Task::Dump { dir: path("DIR", matches), file: path("FILE", matches), version: version(matches) }
        }
        _ => Task::Restore { file: path("FILE", matches), dir: path("DIR", matches) },
    }
}

/// What `restore` is to do, if it is to add to what a server has.
pub fn merge_task(matches: &ArgMatches) -> Option<Result<merge::Task, String>> {
    let url = matches.try_get_one::<String>("merge").ok().flatten()?;
    Some(server::address(url, matches).map(|server| merge::Task {
        file: path("FILE", matches),
        server,
        replace: matches.get_flag("replace"),
    }))
}

fn path(name: &str, matches: &ArgMatches) -> PathBuf {
    matches.get_one::<PathBuf>(name).cloned().expect("clap requires it")
}

/// The version of the file that is written.
pub fn version_option() -> Arg {
    Arg::new("rdb-version")
        .long("rdb-version")
        .value_name("N")
        .value_parser(VERSIONS)
        .default_value(VERSIONS[0])
        .help(
            "The RDB version of the file: 10 for Redis 7.0, 12 for Redis 7.4, 80 for Valkey 9. Hashes whose fields expire \
             need 80 for Valkey, and are written for Redis 7.4 otherwise",
        )
}

/// What [`version_option`] was set to.
pub fn version(matches: &ArgMatches) -> Version {
    let number = matches.get_one::<String>("rdb-version").and_then(|text| text.parse().ok());
    number.and_then(Version::of_number).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_named_by_their_numbers() {
        assert_eq!(Version::ALL.map(|version| version.number().to_string()), VERSIONS);
        assert_eq!(Version::default(), Version::ALL[0]);
    }
}
