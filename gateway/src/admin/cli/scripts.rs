//! The command line of `moonshard script`.

use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use tls::{Clients, Files};

use crate::admin::script::{Language, ScriptCall, ServerAddress, Task};
use crate::config::Address;

/// `moonshard script` with its subcommands.
pub fn command() -> Command {
    let codes = "Exit codes: 0 success, 1 a script, a test or a check failed, 2 it could not be done.";
    let json = || Arg::new("json").long("json").action(ArgAction::SetTrue).help("Print JSON");
    let place = "Without --server the script runs in this process, with an empty store.";
    let called = |name: &'static str, about: &'static str| {
        Command::new(name).about(about).after_help(format!("{place}\n{codes}")).args(call())
    };
    let files = |help: &'static str| {
        Arg::new("FILE").required(true).num_args(1..).value_parser(value_parser!(PathBuf)).help(help)
    };
    Command::new("script")
        .about("Run, check, test and measure scripts during their development")
        .after_help(codes)
        .subcommand_required(true)
        .subcommand(called("run", "Run a script and print its reply").arg(json()))
        .subcommand(
            called("dry-run", "Run a script, undo its changes, and print its reply and the changes as a diff")
                .arg(json()),
        )
        .subcommand(
            Command::new("check")
                .about(
                    "Find syntax errors, unknown commands, wrong numbers of arguments, undeclared variables, and \
                     keys that are literals or built, without running the scripts",
                )
                .after_help("Exit codes: 0 no error, 1 an error was found, 2 a file could not be read.")
                .arg(files("Scripts, libraries of functions, and tests, whose names end with _test.lua")),
        )
        .subcommand(
            Command::new("test")
                .about("Run the functions of Lua files whose names begin with test, each with an empty store")
                .after_help("Exit codes: 0 all tests passed, 1 a test failed, 2 it could not be done.")
                .arg(files("Files of tests"))
                .arg(
                    Arg::new("junit")
                        .long("junit")
                        .value_name("FILE")
                        .value_parser(value_parser!(PathBuf))
                        .help("Also write the results to a file, as XML in the format of JUnit"),
                ),
        )
        .subcommand(
            Command::new("definitions")
                .about("Print definitions of what scripts can call, for the completion of an editor")
                .after_help(
                    "lua is for the Lua language server (LuaLS), typescript for TypeScriptToLua. The output belongs into a file of \
                     the project, such as redis.lua in a directory that workspace.library names, or redis.d.ts.",
                )
                .arg(
                    Arg::new("LANGUAGE")
                        .required(true)
                        .value_parser(["lua", "typescript"])
                        .help("The language of the scripts"),
                ),
        )
        .subcommand(
            called("bench", "Run a script repeatedly, and print runs per second, latency and fuel")
                .arg(count("seconds", "3", "How long"))
                .arg(count("clients", "1", "How many clients run it at the same time")),
        )
}

fn count(name: &'static str, default: &'static str, help: &'static str) -> Arg {
    let range = value_parser!(u32).range(1..=1000);
    Arg::new(name).long(name).value_name("N").value_parser(range).default_value(default).help(help)
}

/// What a script is called with, and where.
fn call() -> Vec<Arg> {
    let words = |name: &'static str, value: &'static str, help: &'static str| {
        Arg::new(name)
            .long(name)
            .value_name(value)
            .num_args(1..)
            .action(ArgAction::Append)
            .allow_negative_numbers(true)
            .help(help)
    };
    let file = |name: &'static str, help: &'static str| {
        Arg::new(name)
            .long(name)
            .value_name("FILE")
            .value_parser(value_parser!(PathBuf))
            .requires("server")
            .help(help)
    };
    vec![
        Arg::new("FILE")
            .required(true)
            .value_parser(value_parser!(PathBuf))
            .help("The script; - is standard input"),
        words("keys", "KEY", "KEYS of the script"),
        words("args", "ARG", "Arguments of the script; one that begins with a hyphen is given as --args=-x"),
        Arg::new("server")
            .long("server")
            .value_name("HOST:PORT")
            .value_parser(address)
            .help("RESP address of a server that runs the script"),
        Arg::new("user").long("user").value_name("NAME").requires("server").help("User [default: default]"),
        file(
            "password-file",
            "File whose first line is the password [default: the environment variable REDISCLI_AUTH]",
        ),
        file(
            "tls-ca-cert-file",
            "Certificate authorities that the server's certificate must be signed by; enables TLS",
        ),
        file("tls-cert-file", "Client certificate to present")
            .requires("tls-key-file")
            .requires("tls-ca-cert-file"),
        file("tls-key-file", "Private key of that certificate").requires("tls-cert-file"),
    ]
}

fn address(text: &str) -> Result<Address, String> {
    Address::parse(text).ok_or_else(|| "expected HOST:PORT".to_owned())
}

/// What `moonshard script` is to do.
pub fn task(matches: &ArgMatches) -> Task {
    let (name, matches) = matches.subcommand().expect("clap requires one");
    let flag = |name| matches.get_flag(name);
    let number = |name| *matches.get_one::<u32>(name).expect("it has a default");
    let files = || matches.get_many::<PathBuf>("FILE").expect("clap requires it").cloned().collect();
    match name {
        "run" => Task::Run { call: script_call(matches), json: flag("json") },
        "dry-run" => Task::DryRun { call: script_call(matches), json: flag("json") },
        "check" => Task::Check { files: files() },
        "test" => Task::Test { files: files(), junit: matches.get_one::<PathBuf>("junit").cloned() },
        "definitions" => {
            let language = matches.get_one::<String>("LANGUAGE").and_then(|name| Language::named(name));
            Task::Definitions { language: language.expect("clap takes no other name") }
        }
        _ => {
            Task::Bench { call: script_call(matches), seconds: number("seconds"), clients: number("clients") }
        }
    }
}

fn script_call(matches: &ArgMatches) -> ScriptCall {
    let words = |name| matches.get_many::<String>(name).unwrap_or_default().cloned().collect();
    let file = |name| matches.get_one::<PathBuf>(name).cloned();
    let roots = file("tls-ca-cert-file");
    let own = file("tls-cert-file").zip(file("tls-key-file"));
    let tls = roots.map(|roots| Files { own, roots: Some(roots.into()), clients: Clients::Anyone });
    let server = matches.get_one::<Address>("server").map(|address| ServerAddress {
        address: address.clone(),
        user: matches.get_one::<String>("user").cloned(),
        password: None,
        password_file: file("password-file"),
        tls,
    });
    ScriptCall {
        file: file("FILE").expect("clap requires it"),
        keys: words("keys"),
        args: words("args"),
        server,
    }
}
