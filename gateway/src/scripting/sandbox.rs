//! A run in the sandbox: what it is given, who pays for its fuel, and whose calls its calls are.

use std::pin::pin;
use std::sync::Arc;

use script::{AnyHost, Host, Outcome, ResourceUsage, RunInput};
use store::Origin;

use super::call::{Program, ScriptCall};
use super::fuel_meter::FuelMeter;
use super::slices::{self, Pace};
use crate::server::Server;

/// Bytes of text and arguments that are not copied into a sandbox on a thread that serves connections.
const MUCH: usize = 1 << 20;

/// Runs what is called, with this host. With a pace it may be made to give way. The host comes back, unless the sandbox
/// took it down with it.
pub(super) async fn run_in_sandbox<H: Host>(
    server: &Arc<Server>,
    call: &ScriptCall<'_>,
    clock_seconds: f64,
    host: Box<H>,
    pace: Option<Pace>,
) -> (Option<Box<H>>, Outcome, ResourceUsage) {
    let input = RunInput {
        name: call.program.name(),
        keys: call.keys,
        args: call.args,
        clock_seconds,
        seed: call.seed as u32,
        function: matches!(call.program, Program::Function(_)),
        frames: call.trace.as_ref().is_some_and(|trace| trace.wants_variables()),
    };
    let input = input.encode();
    let brings_much = input.len() + call.program.script().source().len() > MUCH;
    let (runtime, script) = (server.scripting.runtime.clone(), call.program.script().clone());
    let mut budget = call.budget;
    if let Some(pace) = &pace {
        budget.slice_fuel = pace.slice_fuel();
    }
    let fuel_meter = call.account.as_ref().and_then(|account| FuelMeter::of(account, &budget, pace.clone()));
    // Boxed at once, and pinned where it is made: the future is large, and each move of it costs.
    let run = Box::pin(async move {
        let run = pin!(runtime.run(&script, &input, &budget, AnyHost::new(host)));
        match fuel_meter {
            None => run.await,
            Some(fuel_meter) => fuel_meter.watch(run, |(_, _, usage)| usage.total_fuel()).await,
        }
    });
    let origin = Origin::client(call.client);
    // Half of the time that it may take is its own.
    let yields_for = pace.map(|pace| (pace, budget.time / 2));
    let (host, outcome, usage) = match (call.scope(), server.sessions.tracking.is_on()) {
        (None, false) => slices::drive(server, run, brings_much, yields_for).await,
        (None, true) => slices::drive(server, Box::pin(origin.drive(run)), brings_much, yields_for).await,
        (Some(scope), _) => {
            let run = Box::pin(async move { scope.drive(origin.drive(run)).await });
            slices::drive(server, run, brings_much, yields_for).await
        }
    };
    (host.and_then(AnyHost::downcast::<H>), outcome, usage)
}
