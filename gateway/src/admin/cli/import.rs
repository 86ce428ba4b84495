//! The command line of `moonshard import`.

use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};

use super::server;
use crate::admin::import::{Policy, Task};

/// The target if none is given.
const TARGET: &str = "redis://127.0.0.1:6379";

const TO_PASSWORD_FILE: &str = "to-password-file";

/// `moonshard import`.
pub fn command() -> Command {
    let flag = |name: &'static str, help: &'static str| {
        Arg::new(name).long(name).action(ArgAction::SetTrue).help(help)
    };
    Command::new("import")
        .about("Copy all data of a Redis, Valkey or Moonshard server that serves, as it is at one moment, into another server")
        .after_help(
            "The source sends its data as to a replica (PSYNC); what it changes afterwards is not copied. Each key is sent \
             to the target by RESTORE, read back and compared; functions and scripts are loaded. On an error the keys that \
             were copied stay.\n\
             Exit codes: 0 all data is on the target and equal, 1 damaged data or a difference found, 2 failure, or \
             something was refused.",
        )
        .arg(Arg::new("URL").required(true).help(format!(
            "The source: {}; redis://HOST[:PORT]/DB copies the keys of one database",
            server::URL_FORM
        )))
        .arg(
            Arg::new("to")
                .long("to")
                .value_name("URL")
                .default_value(TARGET)
                .help("The target, a URL without a database"),
        )
        .arg(flag("merge", "Keep what the target has; it refuses keys and libraries that it has").conflicts_with("replace"))
        .arg(flag("replace", "Keep what the target has, but replace keys and libraries that the source has too"))
        .args(server::options())
        .arg(
            Arg::new(TO_PASSWORD_FILE)
                .long(TO_PASSWORD_FILE)
                .value_name("FILE")
                .value_parser(value_parser!(PathBuf))
                .help("File whose first line is the password of the target [default: the environment variable REDISCLI_AUTH]"),
        )
}

/// What `moonshard import` is to do.
pub fn task(matches: &ArgMatches) -> Result<Task, String> {
    let url = |name| matches.get_one::<String>(name).expect("clap requires it, or has a default").as_str();
    let (source, db, target) = server::pair([url("URL"), url("to")], matches, TO_PASSWORD_FILE)?;
    let policy = match (matches.get_flag("merge"), matches.get_flag("replace")) {
        (_, true) => Policy::Replace,
        (true, false) => Policy::Merge,
        (false, false) => Policy::Empty,
    };
    Ok(Task { source, db, target, policy })
}
