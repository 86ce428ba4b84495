//! `moonshard script`: runs, checks, tests and measures scripts, for those who write them.

mod bench;
mod check;
mod definitions;
mod diff;
pub mod error;
mod local;
mod lua;
pub mod remote;
mod show;
mod target;
mod task;
mod testing;

use std::time::Duration;

use resp::Value;
use tokio::runtime::{Builder, Runtime};

use self::error::ToolError;
use self::target::Place;

use crate::telemetry::counters::unix_ms;

pub use self::definitions::Language;
pub use self::task::{ScriptCall, ServerAddress, Task};

/// How long threads that still compute may take when the tool ends.
const SHUTDOWN: Duration = Duration::from_millis(100);

/// Does it; returns what the process exits with: 0, or 1 if the script, a test or a check failed, or 2 if it could not
/// be done.
pub fn run(task: &Task) -> u8 {
    let Some(runtime) = runtime() else { return 2 };
    let done = runtime.block_on(perform(task));
    runtime.shutdown_timeout(SHUTDOWN);
    match done {
        Ok(true) => 0,
        Ok(false) => 1,
        Err(error) => {
            eprintln!("moonshard: {error}");
            2
        }
    }
}

fn runtime() -> Option<Runtime> {
    let built = Builder::new_multi_thread().enable_all().build();
    built.map_err(|error| eprintln!("moonshard: cannot start the runtime: {error}")).ok()
}

/// Whether all went well.
async fn perform(task: &Task) -> Result<bool, ToolError> {
    match task {
        Task::Run { call, json } => reply(call, *json).await,
        Task::DryRun { call, json } => changes(call, *json).await,
        Task::Check { files } => check::run(files).await,
        Task::Test { files, junit } => testing::run(files, junit.as_deref()).await,
        Task::Definitions { language } => {
            show::print(&definitions::text(*language))?;
            Ok(true)
        }
        Task::Bench { call, seconds, clients } => bench::run(call, *seconds, *clients).await,
    }
}

async fn reply(call: &ScriptCall, json: bool) -> Result<bool, ToolError> {
    let script = call.text()?;
    let mut target = Place::open(call.server.as_ref()).await?.connect().await?;
    let value = target.eval(&script, &call.keys, &call.args).await?;
    show::print(&if json { show::json(&value) } else { show::readable(&value) })?;
    Ok(!matches!(value, Value::Error(_)))
}

async fn changes(call: &ScriptCall, json: bool) -> Result<bool, ToolError> {
    let script = call.text()?;
    let mut target = Place::open(call.server.as_ref()).await?.connect().await?;
    let value = target.dry_run(&script, &call.keys, &call.args).await?;
    if json {
        show::print(&show::json(&value))?;
    } else if matches!(value, Value::Error(_)) {
        show::print(&show::readable(&value))?;
    } else {
        show::print(&diff::of_dry_run(&value, unix_ms(), show::wants_colour())?)?;
    }
    let reply = show::member(&value, "reply").unwrap_or(&value);
    Ok(!matches!(reply, Value::Error(_)))
}
