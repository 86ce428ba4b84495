//! The calls of `moonshard.gateway.v1`.

use bytes::Bytes;
use proto::gateway::v1::gateway_server::Gateway;
use proto::gateway::v1::kill_script_request::Which;
use proto::gateway::v1::{
    Distribution, EvalRequest, EvalResponse, EvalShaRequest, ExecuteRequest, ExecuteResponse,
    KillScriptRequest, KillScriptResponse, Limits, ListScriptsRequest, ListScriptsResponse,
    LoadScriptRequest, LoadScriptResponse, PipelineRequest, Script, ScriptStatsRequest, ScriptStatsResponse,
    SubscribeRequest, WatchRequest,
};
use resp::Value;
use tonic::{Request, Response, Status, Streaming, async_trait};

use super::call::{Bounds, count_message, slices};
use super::state::GrpcState;
use super::{convert, pipeline, status, subscribe, watch};
use crate::net::eval::{self, RunRequest};
use crate::net::request::{Work, admit};
use crate::telemetry::spans::Parent;

#[async_trait]
impl Gateway for GrpcState {
    type PipelineStream = pipeline::ReplyStream;
    type SubscribeStream = subscribe::Messages;
    type WatchStream = watch::Happenings;

    async fn execute(&self, request: Request<ExecuteRequest>) -> Result<Response<ExecuteResponse>, Status> {
        let (mut work, bounds) = self.begin(&request)?;
        count_message(&work, request.get_ref());
        let ExecuteRequest { args, db } = request.into_inner();
        admit(args.first().map(|name| &**name))?;
        work.select(usize::try_from(db).ok())?;
        let value = bounds.hold(async { Ok(work.value(&slices(&args)).await?) }).await?;
        Ok(Response::new(ExecuteResponse { reply: Some(convert::reply(value)) }))
    }

    async fn pipeline(
        &self,
        request: Request<Streaming<PipelineRequest>>,
    ) -> Result<Response<pipeline::ReplyStream>, Status> {
        let (work, bounds) = self.begin(&request)?;
        let caller = Parent::of(request.metadata().get("traceparent").map(|header| header.as_bytes()));
        Ok(Response::new(pipeline::run(work, bounds, request.into_inner(), self.ready.clone(), caller)))
    }

    async fn eval(&self, request: Request<EvalRequest>) -> Result<Response<EvalResponse>, Status> {
        let (work, bounds) = self.begin(&request)?;
        count_message(&work, request.get_ref());
        let EvalRequest { script, keys, args, flags, limits, read_only, dry_run, trace, db } =
            request.into_inner();
        let run_request = RunRequest {
            by_sha: false,
            script: &script,
            keys: slices(&keys),
            args: slices(&args),
            words: words(flags, limits),
            read_only,
            dry_run,
            trace,
            variables: false,
            writes: false,
        };
        run(work, bounds, db, run_request).await
    }

    async fn eval_sha(&self, request: Request<EvalShaRequest>) -> Result<Response<EvalResponse>, Status> {
        let (work, bounds) = self.begin(&request)?;
        count_message(&work, request.get_ref());
        let EvalShaRequest { sha, keys, args, flags, limits, read_only, dry_run, trace, db } =
            request.into_inner();
        let run_request = RunRequest {
            by_sha: true,
            script: sha.as_bytes(),
            keys: slices(&keys),
            args: slices(&args),
            words: words(flags, limits),
            read_only,
            dry_run,
            trace,
            variables: false,
            writes: false,
        };
        run(work, bounds, db, run_request).await
    }

    async fn load_script(
        &self,
        request: Request<LoadScriptRequest>,
    ) -> Result<Response<LoadScriptResponse>, Status> {
        let (mut work, bounds) = self.begin(&request)?;
        count_message(&work, request.get_ref());
        let LoadScriptRequest { script } = request.into_inner();
        let sha = bounds.hold(async { Ok(work.value(&[b"SCRIPT", b"LOAD", &script]).await?) }).await?;
        let sha = String::from_utf8_lossy(sha.text().unwrap_or_default()).into_owned();
        Ok(Response::new(LoadScriptResponse { sha }))
    }

    async fn list_scripts(
        &self,
        request: Request<ListScriptsRequest>,
    ) -> Result<Response<ListScriptsResponse>, Status> {
        let (work, _bounds) = self.begin(&request)?;
        work.check(&[b"SCRIPT", b"LIST"])?;
        let texts = request.into_inner().texts;
        let scripts = work.server.scripting.cache.all().into_iter().map(|known| {
            let text = known.text();
            Script {
                sha: known.sha.to_string(),
                name: known.header.name.as_deref().map(str::to_owned),
                flags: known.options.words(),
                bytes: text.len() as u64,
                loaded: known.is_pinned(),
                script: texts.then(|| Bytes::copy_from_slice(&text)),
            }
        });
        Ok(Response::new(ListScriptsResponse { scripts: scripts.collect() }))
    }

    async fn script_stats(
        &self,
        request: Request<ScriptStatsRequest>,
    ) -> Result<Response<ScriptStatsResponse>, Status> {
        let (mut work, bounds) = self.begin(&request)?;
        let sha = request.into_inner().sha;
        let mut argv: Vec<&[u8]> = vec![b"SCRIPT", b"STATS"];
        match sha.as_deref() {
            // A word that has another meaning there.
            Some(sha) if sha.eq_ignore_ascii_case("reset") => {
                return Err(status::of_request("sha must be the digest of a script"));
            }
            sha => argv.extend(sha.map(str::as_bytes)),
        }
        let stats = bounds.hold(async { Ok(work.value(&argv).await?) }).await?;
        let number = |name: &str| convert::number(&stats, name).unwrap_or_default();
        let spread = |of: &str| Distribution {
            p50: number(&format!("{of}_p50")),
            p99: number(&format!("{of}_p99")),
            max: number(&format!("{of}_max")),
        };
        Ok(Response::new(ScriptStatsResponse {
            runs: number("runs"),
            errors: number("errors"),
            limits_hit: number("limits_hit"),
            killed: number("killed"),
            commands: number("commands"),
            reruns: number("reruns"),
            undeclared_keys: number("undeclared_keys"),
            fuel: Some(spread("fuel")),
            microseconds: Some(spread("usec")),
            compiled_runs: number("compiled_runs"),
        }))
    }

    async fn kill_script(
        &self,
        request: Request<KillScriptRequest>,
    ) -> Result<Response<KillScriptResponse>, Status> {
        let (mut work, bounds) = self.begin(&request)?;
        let which = request.into_inner().which;
        let client = if let Some(Which::Client(client)) = which { client.to_string() } else { String::new() };
        let mut argv: Vec<&[u8]> = vec![b"SCRIPT", b"KILL"];
        match &which {
            None => {}
            Some(Which::Sha(sha)) => argv.push(sha.as_bytes()),
            Some(Which::Client(_)) => argv.extend([&b"CLIENT"[..], client.as_bytes()]),
        }
        bounds.hold(async { Ok(work.value(&argv).await?) }).await?;
        Ok(Response::new(KillScriptResponse {}))
    }

    async fn subscribe(
        &self,
        request: Request<SubscribeRequest>,
    ) -> Result<Response<subscribe::Messages>, Status> {
        let (work, bounds) = self.begin(&request)?;
        let messages = subscribe::listen(work, bounds, self.ready.clone(), request.into_inner()).await?;
        Ok(Response::new(messages))
    }

    async fn watch(&self, request: Request<WatchRequest>) -> Result<Response<watch::Happenings>, Status> {
        let (work, bounds) = self.begin(&request)?;
        work.check(&[b"SCRIPT", b"RUNNING"])?;
        Ok(Response::new(watch::listen(&work.server.telemetry, bounds, self.ready.clone())))
    }
}

/// What the caller asks for, in the words of SCRIPT FLAGS.
fn words(flags: Vec<String>, limits: Option<Limits>) -> Vec<Vec<u8>> {
    let Limits { fuel, timeout_ms, memory_bytes } = limits.unwrap_or_default();
    let limits = [("fuel", fuel), ("timeout", timeout_ms), ("memory", memory_bytes)];
    let limits = limits.into_iter().filter_map(|(name, value)| Some(format!("{name}={}", value?)));
    flags.into_iter().chain(limits).map(String::into_bytes).collect()
}

async fn run(
    mut work: Work,
    bounds: Bounds,
    db: u32,
    run_request: RunRequest<'_>,
) -> Result<Response<EvalResponse>, Status> {
    work.select(usize::try_from(db).ok())?;
    let (traced, wants_changes) = (run_request.trace, run_request.trace || run_request.dry_run);
    let done = bounds.hold(async { Ok(eval::run(&mut work, run_request).await?) }).await?;
    let (run, trace) = {
        let snapshot = done.trace.snapshot();
        let remote = work.server.store.is_shared();
        let run = convert::run(&snapshot);
        (run, traced.then(|| convert::trace(&snapshot, remote)))
    };
    let (writes, writes_omitted) = match done.writes() {
        Some((changes, Value::Integer(omitted))) => {
            (convert::changes(changes), u64::try_from(*omitted).unwrap_or_default())
        }
        _ => Default::default(),
    };
    match done.into_reply() {
        Value::Error(text) if !wants_changes || run.is_none() => {
            Err(status::of_reply(&text, run.map(convert::metadata).unwrap_or_default()))
        }
        reply => {
            let reply = Some(convert::reply(reply));
            Ok(Response::new(EvalResponse { reply, run, writes, writes_omitted, trace }))
        }
    }
}
