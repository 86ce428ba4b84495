//! `moonshard`: a Lua scripting server that speaks the Redis protocol.

mod acl;
mod admin;
mod admission;
mod app;
mod codes;
mod commands;
mod config;
mod export;
mod follow;
mod net;
mod process;
mod registry;
mod scripting;
mod scripts;
mod server;
mod session;
mod telemetry;

use std::process::ExitCode;

use admin::cli::{Action, UsageError};
use admin::{backup, cli, health, import, merge, offline_tools, script, topology};
use telemetry::{counters, log};

/// Many small values live and die here; this allocator is quicker at that than the system's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Does what the command line asks for.
pub fn run() -> ExitCode {
    counters::set_up_allocator();
    log::start();
    // SAFETY: there is no other thread yet.
    unsafe { store::journal::prepare_process() };
    let action = cli::parse(
        std::env::args_os(),
        |name| std::env::var_os(name),
        &std::env::vars_os().map(|(name, _)| name).collect::<Vec<_>>(),
        |path| std::fs::read_to_string(path),
    );
    match action {
        Ok(Action::Print(text)) => printed(&text),
        Ok(Action::Manual { directory }) => match cli::write_manual(&directory) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("moonshard: cannot write manual pages to {}: {error}", directory.display());
                ExitCode::FAILURE
            }
        },
        Ok(Action::Precompile { directory }) => match ::script::precompile(directory.as_deref()) {
            Ok(files) => {
                printed(&files.iter().map(|file| format!("{}\n", file.display())).collect::<String>())
            }
            Err(error) => {
                eprintln!("moonshard: cannot write the compiled sandbox: {error:#}");
                ExitCode::FAILURE
            }
        },
        Ok(Action::Tool(task)) => ExitCode::from(offline_tools::run(&task)),
        Ok(Action::Merge(task)) => ExitCode::from(merge::run(&task)),
        Ok(Action::Import(task)) => ExitCode::from(import::run(&task)),
        Ok(Action::Backup(task)) => ExitCode::from(backup::run(&task)),
        Ok(Action::Health(task)) => ExitCode::from(health::run(&task)),
        Ok(Action::Script(task)) => ExitCode::from(script::run(&task)),
        Ok(Action::Topology { config, task }) => ExitCode::from(topology::run(&config, &task)),
        Ok(Action::Serve { config, accept_loss }) => ended(app::serve(*config, accept_loss)),
        Ok(Action::Store { config, accept_loss }) => ended(app::store::serve(*config, accept_loss)),
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(UsageError::EXIT_CODE)
        }
    }
}

/// Prints what was asked for.
fn printed(text: &str) -> ExitCode {
    match admin::print(text) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("moonshard: cannot write to standard output: {error}");
            ExitCode::FAILURE
        }
    }
}

fn ended(how: Result<(), app::StartError>) -> ExitCode {
    match how {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
