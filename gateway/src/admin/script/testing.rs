//! `moonshard script test`: functions of Lua that test scripts, each with an empty store of its own.

mod host;
mod junit;
mod program;
mod report;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use ::script::{AnyHost, Limit, Outcome, RunInput};
use futures_util::{StreamExt, stream};

use self::host::TestHost;
use self::program::Program;
use self::report::{Failure, TestResult};
use super::error::ToolError;
use super::local::{self, Engine};
use super::show::print;
use super::task::read;
use crate::net::request::parse;

pub use self::program::{HELPERS, is_test_file};

/// Runs all tests of these files. Whether they passed.
pub async fn run(files: &[PathBuf], junit: Option<&Path>) -> Result<bool, ToolError> {
    let began = Instant::now();
    let engine = Arc::new(Engine::start().await?);
    let mut results = Vec::new();
    for file in files {
        let found = match Program::of_file(file, &read(file)?) {
            Ok(program) => of_program(&engine, Arc::new(program)).await?,
            Err(failure) => vec![TestResult::of_file(file, failure)],
        };
        for result in &found {
            print(&result.to_string())?;
        }
        results.extend(found);
    }
    print(&report::summary(&results, began.elapsed()))?;
    if let Some(path) = junit {
        let written = std::fs::write(path, junit::report(&results));
        written.map_err(|error| ToolError::new(format_args!("cannot write {}: {error}", path.display())))?;
    }
    Ok(results.iter().all(|result| result.failure.is_none()))
}

/// The results of all tests of a program, in their order in the file.
async fn of_program(engine: &Arc<Engine>, program: Arc<Program>) -> Result<Vec<TestResult>, ToolError> {
    let run = |name: String| {
        let (engine, program) = (engine.clone(), program.clone());
        async move {
            let run = tokio::spawn(async move { perform(&engine, &program, name).await });
            run.await.map_err(|error| ToolError::new(format_args!("a test stopped: {error}")))?
        }
    };
    let names = program.tests.clone();
    let results: Vec<_> = stream::iter(names).map(run).buffered(engine.concurrency()).collect().await;
    results.into_iter().collect()
}

/// Runs one test.
async fn perform(engine: &Engine, program: &Program, name: String) -> Result<TestResult, ToolError> {
    let server = engine.server()?;
    let host = TestHost::new(local::client(&server), &program.file);
    let input = RunInput {
        name: &program.file.to_string_lossy(),
        keys: &[],
        args: &[program::PRELUDE, name.as_bytes()],
        clock_seconds: 0.0,
        seed: 0,
        function: false,
        frames: false,
    };
    let budget = server.config.budget();
    let began = Instant::now();
    let (input, host) = (input.encode(), AnyHost::new(Box::new(host)));
    let (_, outcome, _) = server.scripting.runtime.run(&program.script, &input, &budget, host).await;
    let took = began.elapsed();
    let failure = match outcome {
        Outcome::Reply(reply) => {
            let reply = parse(&reply).map_err(|_| ToolError::new("the sandbox returned no valid reply"))?;
            Failure::of_reply(&reply)
        }
        Outcome::CompileError(text) => Some(Failure::new(text)),
        Outcome::Limit(limit) => {
            let used = match limit {
                Limit::Time => format!("more than {} ms", budget.time.as_millis()),
                Limit::Fuel => format!("more than {} units of fuel", budget.fuel),
                Limit::Memory => format!("more than {} bytes of memory", budget.memory_bytes),
                Limit::Reply => format!("a reply of more than {} bytes", budget.reply_bytes),
            };
            Some(Failure::new(format!("the test used {used}")))
        }
        Outcome::Stopped => Some(Failure::new("the test was stopped".to_owned())),
        Outcome::Trap(text) => Some(Failure::new(format!("the sandbox stopped the test: {text}"))),
    };
    let failure = failure.map(|failure| failure.in_file(&program.file));
    Ok(TestResult { file: program.file.clone(), name, took, failure })
}
