//! The command line of `moonshard backup`.

use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};

use super::{server, store};
use crate::admin::backup::Task;

/// `moonshard backup`.
pub fn command() -> Command {
    Command::new("backup")
        .about("Write all data of a server that serves, as it is at one moment, to an RDB file that Redis can read")
        .after_help(
            "The file has keys, scripts and libraries of functions; `moonshard store restore` makes a data-dir of it. \
             It is written under another name beside FILE, checked, flushed to disk and renamed.\n\
             Exit codes: 0 success, 1 failure, 2 usage error.",
        )
        .arg(Arg::new("URL").required(true).help(format!("The server: {}", server::URL_FORM)))
        .arg(
            Arg::new("FILE")
                .required(true)
                .value_parser(value_parser!(PathBuf))
                .help("The RDB file; - is standard output"),
        )
        .arg(
            Arg::new("force")
                .long("force")
                .action(ArgAction::SetTrue)
                .help("Replace FILE if it exists"),
        )
        .arg(store::version_option())
        .args(server::options())
}

/// What `moonshard backup` is to do.
pub fn task(matches: &ArgMatches) -> Result<Task, String> {
    let url = matches.get_one::<String>("URL").expect("clap requires it");
    let server = server::address(url, matches)?;
    let file = matches.get_one::<PathBuf>("FILE").cloned().expect("clap requires it");
    Ok(Task { server, file, force: matches.get_flag("force"), version: store::version(matches) })
}
