//! The command line: from arguments, environment and config file to what is to be done. Pure.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};

use crate::admin::offline_tools::Task;
use crate::admin::{
    self, backup as online_backup, health, import as online_import, merge, reference, script,
};
use crate::config::{self, Config, PARAMETERS, ParameterKind, SettingError, Sources};
use crate::export::metrics;
use crate::process::certificates::to_ask;
use crate::process::version;
use crate::telemetry::counters::Listener;

mod backup;
mod import;
mod pages;
mod scripts;
mod server;
mod store;
mod topology;

/// What the command line asks for.
#[derive(Debug)]
pub enum Action {
    /// Run the server.
    Serve {
        /// With these settings.
        config: Box<Config>,
        /// Although data is lost.
        accept_loss: bool,
    },
    /// Run a store node.
    Store {
        /// With these settings.
        config: Box<Config>,
        /// Although data is lost.
        accept_loss: bool,
    },
    /// Look at or change who has which slots.
    Topology {
        /// With these settings.
        config: Box<Config>,
        /// What is to be done.
        task: admin::topology::Task,
    },
    /// Get all data of a server that serves.
    Backup(online_backup::Task),
    /// Copy all data of a server that serves into another one.
    Import(online_import::Task),
    /// Do something with the data of a server that does not run.
    Tool(Task),
    /// Put the contents of an RDB file into a server that serves.
    Merge(merge::Task),
    /// Ask whether a server accepts requests.
    Health(health::Task),
    /// Run, check, test or measure scripts.
    Script(script::Task),
    /// Write this to standard output and exit.
    Print(String),
    /// Compile what starts of a server need.
    Precompile {
        /// Into this directory; none: beside the program.
        directory: Option<PathBuf>,
    },
    /// Write the manual pages.
    Manual {
        /// Into this directory.
        directory: PathBuf,
    },
}

/// Why nothing is done: one line for standard error.
#[derive(Debug, PartialEq, Eq)]
pub struct UsageError(String);

impl UsageError {
    /// What the process exits with.
    pub const EXIT_CODE: u8 = 2;
}

impl From<SettingError> for UsageError {
    fn from(error: SettingError) -> UsageError {
        UsageError(error.to_string())
    }
}

impl fmt::Display for UsageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "moonshard: {}", self.0)
    }
}

/// The variable that stands for `--config`.
const CONFIG_VARIABLE: &str = "MOONSHARD_CONFIG";

/// The flag that is for one start, and therefore no parameter.
const ACCEPT_LOSS: &str = "accept-loss";

/// Reads the command line. `args` begins with the program's name; `variables` are the names of all environment variables.
pub fn parse(
    args: impl IntoIterator<Item = OsString>,
    environment: impl Fn(&str) -> Option<OsString>,
    variables: &[OsString],
    read_file: impl Fn(&Path) -> io::Result<String>,
) -> Result<Action, UsageError> {
    let args: Vec<OsString> = args.into_iter().collect();
    let matches = match command().try_get_matches_from(&args) {
        Ok(matches) => matches,
        Err(error) => return printed_or_wrong(&error, &args),
    };
    let (part, flags) = match matches.subcommand() {
        Some(("config", _)) => return Ok(Action::Print(config::reference())),
        Some(("metrics", _)) => return Ok(Action::Print(metrics::table::reference())),
        Some(("reference", of)) => {
            let name = of.get_one::<String>("PAGE").expect("clap requires it");
            return Ok(Action::Print(reference::page(name).expect("clap knows the pages")));
        }
        Some(("backup", of)) => return backup::task(of).map(Action::Backup).map_err(UsageError),
        Some(("import", of)) => return import::task(of).map(Action::Import).map_err(UsageError),
        Some(("script", of)) => return Ok(Action::Script(scripts::task(of))),
        Some(("completions", of)) => return Ok(Action::Print(pages::completions(command(), of))),
        Some(("precompile", of)) => {
            return Ok(Action::Precompile { directory: of.get_one::<PathBuf>("DIR").cloned() });
        }
        Some(("man", of)) => return Ok(Action::Manual { directory: pages::directory(of) }),
        Some(("store", matches)) if let Some((name, matches)) = matches.subcommand() => {
            return match store::merge_task(matches) {
                Some(task) => task.map(Action::Merge).map_err(UsageError),
                None => Ok(Action::Tool(store::task(name, matches))),
            };
        }
        Some((part, flags)) => (part, flags),
        None => ("serve", &matches),
    };
    let variable = || environment(CONFIG_VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from);
    let sources = Sources {
        file: flags.try_get_one::<PathBuf>("config").ok().flatten().cloned().or_else(variable),
        read_file: &read_file,
        environment: &environment,
        variables,
        flags: given(flags),
    };
    let config = config::load(&sources).map_err(|wrong| UsageError(wrong.to_string()))?;
    if part == "store" && !config.is_given("http") {
        // Nodes live beside each other, and most are looked at by their gateways only.
        config.http.set(None);
    }
    let config = Box::new(config);
    if part == "topology" {
        if config.stores.get().is_empty() {
            return Err(UsageError("no store node is given: set --stores HOST:PORT,...".into()));
        }
        return Ok(Action::Topology { config, task: topology::task(flags) });
    }
    if part == "health" {
        return health_task(flags, &config).map(Action::Health);
    }
    let accept_loss = flags.get_flag(ACCEPT_LOSS);
    match part {
        "store" => Ok(Action::Store { config, accept_loss }),
        "gateway" if config.stores.get().is_empty() => {
            Err(UsageError("a gateway needs store nodes: set --stores HOST:PORT,...".into()))
        }
        _ => Ok(Action::Serve { config, accept_loss }),
    }
}

/// The parameters set by flags.
fn given(matches: &ArgMatches) -> Vec<(&'static str, String)> {
    // Not every subcommand has them all.
    let value = |name| {
        let text = matches.try_get_one::<String>(name).ok().flatten()?;
        Some((name, text.clone()))
    };
    PARAMETERS.iter().filter_map(|row| value(row.name)).collect()
}

/// Whom `moonshard health` asks.
fn health_task(flags: &ArgMatches, config: &Config) -> Result<health::Task, UsageError> {
    let off = || UsageError("no address to check: set --http, --grpc or --resp HOST:PORT".into());
    let listeners = [
        ("http", Listener::Http, config.http.get()),
        ("grpc", Listener::Grpc, config.grpc.get()),
        ("resp", Listener::Resp, config.resp.get()),
    ];
    let names_one = listeners.iter().any(|(name, ..)| flags.contains_id(name));
    let (listener, address) = listeners
        .into_iter()
        .filter(|(name, ..)| !names_one || flags.contains_id(name))
        .find_map(|(_, listener, address)| Some((listener, address?)))
        .ok_or_else(off)?;
    let tls = to_ask(config, listener, flags.contains_id("tls-ca-cert-file"))?;
    let name = flags.get_one::<String>("name").cloned();
    Ok(health::Task { listener, address, tls, name })
}

/// `moonshard health`.
fn health_command() -> Command {
    let own = [
        "config",
        "http",
        "grpc",
        "resp",
        "tls-ca-cert-file",
        "tls-cert-file",
        "tls-key-file",
        "tls-listeners",
    ];
    Command::new("health")
        .about("Check whether a server accepts requests, at the given address, or else over HTTP, gRPC or RESP, the first that is on")
        .after_help(
            "The check uses TLS if the configuration enables it for that listener, or if --tls-ca-cert-file is given.\n\
             A gateway that reaches no store node does not accept requests; over RESP, one that requires a password only has to answer.\n\
             Exit codes: 0 the server accepts requests, 1 it does not, 2 usage error.",
        )
        .args(flags().into_iter().filter(|flag| own.contains(&flag.get_id().as_str())))
        .arg(
            Arg::new("name")
                .long("name")
                .value_name("HOST")
                .help("Host name that the server's certificate must have, if it is not the host of the address"),
        )
}

fn command() -> Command {
    Command::new("moonshard")
        .version(version::full())
        .about("A Lua scripting server that speaks the Redis protocol")
        .args_conflicts_with_subcommands(true)
        .args(flags())
        .subcommand(Command::new("serve").about("Run the server; the default").args(flags()))
        .subcommand(
            Command::new("gateway")
                .about("Run a server whose data is on store nodes; requires --stores")
                .args(flags()),
        )
        .subcommand(Command::new("config").about("Print the configuration reference as a Markdown table"))
        .subcommand(Command::new("metrics").about("Print the metrics reference as a Markdown table"))
        .subcommand(
            Command::new("reference").about("Print a page of the reference as Markdown").arg(
                Arg::new("PAGE")
                    .required(true)
                    .value_parser(reference::PAGES.iter().map(|page| page.name).collect::<Vec<_>>())
                    .help("Its name"),
            ),
        )
        .subcommand(store::command(flags()))
        .subcommand(backup::command())
        .subcommand(import::command())
        .subcommand(topology::command())
        .subcommand(health_command())
        .subcommand(scripts::command())
        .subcommand(
            Command::new("precompile")
                .about("Compile the sandbox for this processor into a file that starts of this program read")
                .arg(Arg::new("DIR").value_parser(value_parser!(PathBuf)).help(
                    "The directory of the file, that of the program if none is given; it is also looked for in ../lib/moonshard",
                )),
        )
        .subcommands(pages::commands())
        .after_help(
            "Every option can also be set by an environment variable (--script-fuel is MOONSHARD_SCRIPT_FUEL) \
             and in the config file (script-fuel = 1000000). Flags override the environment, which overrides the file.",
        )
}

/// Writes the manual pages.
pub fn write_manual(directory: &Path) -> io::Result<()> {
    pages::write_manual(command(), directory)
}

/// A flag for each parameter, and one for the file.
fn flags() -> Vec<Arg> {
    let file = Arg::new("config")
        .long("config")
        .value_name("FILE")
        .value_parser(value_parser!(PathBuf))
        .help("Config file in TOML");
    let accept_loss = Arg::new(ACCEPT_LOSS).long(ACCEPT_LOSS).action(ArgAction::SetTrue).help(
        "Start even if data is damaged, this once: log what is lost, serve the rest, and retain the damaged files",
    );
    let parameters =
        PARAMETERS.iter().filter(|row| !matches!(row.kind, ParameterKind::Secret(_))).map(|row| {
            Arg::new(row.name)
                .long(row.name)
                .value_name(row.kind.metavar())
                .allow_negative_numbers(true)
                .help(format!("{} [default: {}]", row.doc.trim_end_matches('.'), row.default_text()))
        });
    [file, accept_loss].into_iter().chain(parameters).collect()
}

/// Names of `serve` in other programs.
const SYNONYMS_OF_SERVE: [&str; 3] = ["start", "run", "server"];

/// Help and version travel as errors in clap.
fn printed_or_wrong(error: &clap::Error, args: &[OsString]) -> Result<Action, UsageError> {
    let text = error.render().to_string();
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        return Ok(Action::Print(text));
    }
    let help = help_of(args);
    if let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand)
        && SYNONYMS_OF_SERVE.contains(&word.as_str())
        && help == "moonshard --help"
    {
        let tip = "tip: 'serve' runs the server";
        return Err(UsageError(format!("unrecognized subcommand '{word}'; {tip}; see {help}")));
    }
    // Paragraphs of clap's message up to the usage, in one line.
    let message = text.split("Usage:").next().unwrap_or(&text);
    let message = message.split("For more information").next().unwrap_or(message);
    let lines: Vec<&str> = message.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let line = lines.join("; ").replace(":; ", ": ");
    let line = line.strip_prefix("error: ").unwrap_or(&line);
    Err(UsageError(format!("{line}; see {help}")))
}

/// The line that prints the help of the subcommand that the arguments begin with.
fn help_of(args: &[OsString]) -> String {
    let root = command();
    let (mut at, mut line) = (&root, "moonshard".to_owned());
    for arg in args.iter().skip(1) {
        let Some(subcommand) = at.find_subcommand(arg) else { break };
        line.push_str(&format!(" {}", subcommand.get_name()));
        at = subcommand;
    }
    line + " --help"
}

#[cfg(test)]
mod tests {
    use store_engine::rdb::Version;

    use super::*;

    fn run(line: &str, environment: &[(&str, &str)]) -> Result<Action, UsageError> {
        parse(
            line.split(' ').map(OsString::from),
            |wanted| environment.iter().find(|(name, _)| *name == wanted).map(|(_, value)| value.into()),
            &[],
            |path| match path.to_str() {
                Some("good.toml") => Ok("maxclients = 5\nhz = 5\n".to_owned()),
                _ => Err(io::Error::from(io::ErrorKind::NotFound)),
            },
        )
    }

    fn config(line: &str, environment: &[(&str, &str)]) -> Box<Config> {
        match run(line, environment).expect("good") {
            Action::Serve { config, .. } => config,
            other => panic!("{other:?}"),
        }
    }

    fn printed(line: &str) -> String {
        match run(line, &[]).expect("good") {
            Action::Print(text) => text,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn bare_and_serve_are_the_same() {
        for line in ["moonshard --hz 7", "moonshard serve --hz 7", "moonshard serve --hz=7"] {
            let config = config(line, &[]);
            assert_eq!((config.hz.get(), config.timeout.get()), (7, 0), "{line}");
        }
    }

    #[test]
    fn the_file_is_named_by_flag_or_environment() {
        assert_eq!(config("moonshard --config good.toml --hz 7", &[]).maxclients.get(), 5);
        assert_eq!(config("moonshard", &[("MOONSHARD_CONFIG", "good.toml")]).hz.get(), 5);
        let both =
            config("moonshard --config good.toml", &[("MOONSHARD_CONFIG", "missing"), ("MOONSHARD_HZ", "6")]);
        assert_eq!(both.hz.get(), 6);
        assert_eq!(config("moonshard", &[("MOONSHARD_CONFIG", "")]).hz.get(), 10);
    }

    #[test]
    fn help() {
        insta::assert_snapshot!(printed("moonshard --help"));
    }

    #[test]
    fn help_of_the_tools() {
        let store = ["store", "store check", "store dump", "store restore"];
        let slots = ["", " move", " add", " drain", " accept", " transactions", " decide"];
        let replicas =
            [" found", " groups", " join", " leave", " replace", " replicas", " transfer", " recover"];
        let topology: Vec<String> =
            slots.iter().chain(&replicas).map(|task| format!("topology{task}")).collect();
        let topology: Vec<&str> = topology.iter().map(String::as_str).collect();
        let script =
            ["script", "script run", "script dry-run", "script check", "script test", "script bench"];
        let lines = [&store[..], &topology, &["health", "backup", "import"], &script].concat();
        let helps: Vec<String> =
            lines.iter().map(|line| printed(&format!("moonshard {line} --help"))).collect();
        insta::assert_snapshot!(helps.join("\n----\n"));
    }

    #[test]
    fn tools_have_their_paths() {
        let task = |line: &str| match run(line, &[]) {
            Ok(Action::Tool(task)) => task,
            other => panic!("{other:?}"),
        };
        let (dir, file) = (PathBuf::from("data"), PathBuf::from("-"));
        assert_eq!(task("moonshard store check data"), Task::Check { dir: dir.clone() });
        let dump = |version| Task::Dump { dir: dir.clone(), file: file.clone(), version };
        assert_eq!(task("moonshard store dump data -"), dump(Version::Redis7_0));
        assert_eq!(task("moonshard store dump data - --rdb-version 80"), dump(Version::Valkey9_0));
        assert_eq!(task("moonshard store restore - data"), Task::Restore { file: file.clone(), dir });
        let Ok(Action::Merge(merge)) = run("moonshard store restore - --merge redis://a:1 --replace", &[])
        else {
            panic!("a merge");
        };
        assert_eq!(
            (&merge.file, merge.server.address.to_string().as_str(), merge.replace),
            (&file, "a:1", true)
        );
        let wrong = [
            "restore -",
            "restore - data --merge redis://a:1",
            "restore - data --replace",
            "restore - --merge a:1",
            "dump data - --rdb-version 11",
        ];
        assert!(wrong.iter().all(|line| run(&format!("moonshard store {line}"), &[]).is_err()));
    }

    #[test]
    fn imports_have_a_source_and_a_target() {
        use crate::admin::import::Policy;
        let task = |line: &str| match run(line, &[]) {
            Ok(Action::Import(task)) => {
                let file = task.target.password_file.map(|file| file.display().to_string());
                (task.source.address.to_string(), task.db, task.target.address.to_string(), file, task.policy)
            }
            other => panic!("{other:?}"),
        };
        let (source, target) = ("a:1".to_owned(), "127.0.0.1:6379".to_owned());
        assert_eq!(task("moonshard import redis://a:1"), (source.clone(), None, target, None, Policy::Empty));
        assert_eq!(
            task("moonshard import redis://a:1/3 --to redis://b:2 --to-password-file f --merge"),
            (source.clone(), Some(3), "b:2".to_owned(), Some("f".to_owned()), Policy::Merge)
        );
        assert_eq!(task("moonshard import redis://a:1 --replace").4, Policy::Replace);
        let wrong = [
            "",
            " a:1",
            " redis://a:1 --to redis://b:2/1",
            " redis://a:1 --merge --replace",
            " redis://a:1 --tls-ca-cert-file f",
            " redis://a:1/x",
        ];
        assert!(wrong.iter().all(|line| run(&format!("moonshard import{line}"), &[]).is_err()));
    }

    #[test]
    fn health_asks_who_is_named() {
        let task = |line: &str, environment: &[(&str, &str)]| match run(line, environment) {
            Ok(Action::Health(health::Task { listener, address, tls, name })) => {
                let listener = match listener {
                    Listener::Http => "http",
                    Listener::Grpc => "grpc",
                    Listener::Resp => "resp",
                };
                let roots = match tls.and_then(|tls| tls.roots) {
                    Some(tls::Roots::File(path)) => format!(" {}", path.display()),
                    _ => String::new(),
                };
                let name = name.map(|name| format!(" {name}")).unwrap_or_default();
                format!("{listener} {address}{roots}{name}")
            }
            Err(wrong) => wrong.to_string(),
            other => panic!("{other:?}"),
        };
        assert_eq!(task("moonshard health", &[]), "http 127.0.0.1:8080");
        assert_eq!(task("moonshard health", &[("MOONSHARD_HTTP", "a:1")]), "http a:1");
        assert_eq!(task("moonshard health --grpc a:2", &[("MOONSHARD_HTTP", "off")]), "grpc a:2");
        let tls = "moonshard health --http a:3 --tls-ca-cert-file r.pem --name b";
        assert_eq!(task(tls, &[]), "http a:3 r.pem b");
        let cert = [("MOONSHARD_TLS_CERT_FILE", "c.pem"), ("MOONSHARD_TLS_KEY_FILE", "c.key")];
        let missing = "moonshard: tls-ca-cert-file: required to verify the server's certificate";
        assert_eq!(task("moonshard health", &cert), missing);
        let known = [&cert[..], &[("MOONSHARD_TLS_CA_CERT_FILE", "r.pem")]].concat();
        assert_eq!(task("moonshard health --grpc a:2", &known), "grpc a:2 r.pem");
        assert_eq!(
            task("moonshard health", &[&known[..], &[("MOONSHARD_TLS_LISTENERS", "grpc")]].concat()),
            "http 127.0.0.1:8080"
        );
        let without_http = [("MOONSHARD_HTTP", "off")];
        assert_eq!(task("moonshard health", &without_http), "grpc 127.0.0.1:50051");
        let neither = [&without_http[..], &[("MOONSHARD_GRPC", "off")]].concat();
        assert_eq!(task("moonshard health", &neither), "resp 127.0.0.1:6379");
        assert_eq!(task("moonshard health --resp a:4", &[]), "resp a:4");
        let no_address = "moonshard: no address to check: set --http, --grpc or --resp HOST:PORT";
        assert_eq!(task("moonshard health --http off", &[]), no_address);
        assert_eq!(task("moonshard health --http off --grpc a:2", &[]), "grpc a:2");
        assert_eq!(task("moonshard health --http off --grpc off --resp a:4", &[]), "resp a:4");
    }

    #[test]
    fn topology_has_its_tasks() {
        use crate::admin::topology::Task;
        use crate::admin::topology::replicas::Task as Replicas;
        let task = |line: &str| match run(line, &[("MOONSHARD_STORES", "a:1")]) {
            Ok(Action::Topology { config, task }) => (config.stores.get()[0].to_string(), task),
            other => panic!("{line}: {other:?}"),
        };
        let (named, plain) = (|| "b:2".to_owned(), || "a:1".to_owned());
        assert_eq!(task("moonshard topology"), (plain(), Task::Show { json: false }));
        assert_eq!(task("moonshard topology --json"), (plain(), Task::Show { json: true }));
        let moved = Task::Move { slots: (5, 9), to: "c:3".to_owned() };
        assert_eq!(task("moonshard topology --stores b:2 move --slots 5-9 --to c:3"), (named(), moved));
        assert_eq!(
            task("moonshard topology add c:3 --stores b:2"),
            (named(), Task::Add { node: "c:3".to_owned() })
        );
        assert_eq!(task("moonshard topology drain c:3"), (plain(), Task::Drain { node: "c:3".to_owned() }));
        let of = |task| (plain(), Task::Replicas(task));
        let joins = |process: &str, replaces: Option<&str>, if_missing| Replicas::Join {
            process: process.to_owned(),
            replaces: replaces.map(str::to_owned),
            if_missing,
        };
        assert_eq!(task("moonshard topology join c:3"), of(joins("c:3", None, false)));
        assert_eq!(task("moonshard topology join --if-missing c:3"), of(joins("c:3", None, true)));
        assert_eq!(task("moonshard topology replace b:2 c:3"), of(joins("c:3", Some("b:2"), false)));
        assert_eq!(task("moonshard topology leave c:3"), of(Replicas::Leave { process: "c:3".to_owned() }));
        assert_eq!(task("moonshard topology replicas 3"), of(Replicas::Replicas { count: 3 }));
        assert_eq!(task("moonshard topology groups --json"), of(Replicas::Show { json: true }));
        assert_eq!(task("moonshard topology recover"), (plain(), Task::Recover { accept_loss: false }));
        let recover = Task::Recover { accept_loss: true };
        assert_eq!(task("moonshard topology recover --accept-loss"), (plain(), recover));
        let transfer = Replicas::Transfer { group: "g0".to_owned(), to: "c:3".to_owned() };
        assert_eq!(task("moonshard topology transfer g0 c:3"), of(transfer));
        let wrong = [
            "topology",
            "topology --stores a:1 move --slots 9-5 --to c:3",
            "topology add",
            "topology --hz 5",
        ];
        assert!(wrong.iter().all(|line| run(&format!("moonshard {line}"), &[]).is_err()));
    }

    #[test]
    fn loss_is_accepted_by_a_flag_only() {
        let accepts = |line: &str| match run(line, &[("MOONSHARD_ACCEPT_LOSS", "yes")]) {
            Ok(Action::Serve { accept_loss, .. }) => accept_loss,
            other => panic!("{other:?}"),
        };
        let lines = ["moonshard", "moonshard --accept-loss", "moonshard serve --accept-loss --hz 5"];
        assert_eq!(lines.map(accepts), [false, true, true]);
    }

    #[test]
    fn version() {
        assert_eq!(printed("moonshard --version"), format!("moonshard {}\n", version::full()));
        assert!(version::full().starts_with(concat!(env!("CARGO_PKG_VERSION"), " (commit ")));
    }

    #[test]
    fn wrong_lines_are_answered_in_one_line() {
        let lines = [
            "moonshard --shrads 4",
            "moonshard srve",
            "moonshard start",
            "moonshard script start",
            "moonshard gateway",
            "moonshard serve extra",
            "moonshard --shards",
            "moonshard --shards 1 --shards 2",
            "moonshard --shards 4 config",
            "moonshard config --shards 4",
            "moonshard --timeout -1",
            "moonshard --config missing.toml",
            "moonshard --accept-loss=yes",
            "moonshard store dump data",
            "moonshard store check data more",
            "moonshard store check",
            "moonshard script run",
            "moonshard backup",
        ];
        let errors = lines.map(|line| format!("{line}\n    {}", run(line, &[]).expect_err(line)));
        insta::assert_snapshot!(errors.join("\n"), @r#"
        moonshard --shrads 4
            moonshard: unexpected argument '--shrads' found; tip: a similar argument exists: '--shards'; see moonshard --help
        moonshard srve
            moonshard: unrecognized subcommand 'srve'; tip: a similar subcommand exists: 'serve'; see moonshard --help
        moonshard start
            moonshard: unrecognized subcommand 'start'; tip: 'serve' runs the server; see moonshard --help
        moonshard script start
            moonshard: unrecognized subcommand 'start'; see moonshard script --help
        moonshard gateway
            moonshard: a gateway needs store nodes: set --stores HOST:PORT,...
        moonshard serve extra
            moonshard: unexpected argument 'extra' found; see moonshard serve --help
        moonshard --shards
            moonshard: a value is required for '--shards <N>' but none was supplied; see moonshard --help
        moonshard --shards 1 --shards 2
            moonshard: the argument '--shards <N>' cannot be used multiple times; see moonshard --help
        moonshard --shards 4 config
            moonshard: the subcommand 'config' cannot be used with '--shards <N>'; see moonshard --help
        moonshard config --shards 4
            moonshard: unexpected argument '--shards' found; see moonshard config --help
        moonshard --timeout -1
            moonshard: flag --timeout: "-1" is invalid, expected a whole number from 0 to 2147483647
        moonshard --config missing.toml
            moonshard: cannot read config file missing.toml: entity not found
        moonshard --accept-loss=yes
            moonshard: unexpected value 'yes' for '--accept-loss' found; no more were expected; see moonshard --help
        moonshard store dump data
            moonshard: the following required arguments were not provided: <FILE>; see moonshard store dump --help
        moonshard store check data more
            moonshard: unexpected argument 'more' found; see moonshard store check --help
        moonshard store check
            moonshard: the following required arguments were not provided: <DIR>; see moonshard store check --help
        moonshard script run
            moonshard: the following required arguments were not provided: <FILE>; see moonshard script run --help
        moonshard backup
            moonshard: the following required arguments were not provided: <URL>; <FILE>; see moonshard backup --help
        "#);
    }
}
