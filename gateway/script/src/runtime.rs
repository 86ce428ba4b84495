//! The engine: compiled guest, pool of sandboxes, admission, and the run itself.

use std::collections::BTreeSet;
use std::future::{Future, poll_fn};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Instant;

use guest_lua::abi;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use wasmtime::{
    Config, Engine, InstanceAllocationStrategy, InstancePre, Linker, OptLevel, PoolingAllocationConfig, Trap,
};

use crate::budget::{Budget, Limit, ResourceUsage};
use crate::compiled;
use crate::host::Host;
use crate::image::Image;
use crate::imports;
use crate::sandbox::{Ending, Pristine, Sandbox};
use crate::script::{IMAGE_MAX_BYTES, Script};
use crate::tier::{Compile, Compiler, Tier, TierReport};

/// Where the instance of a run comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instances {
    /// From a pool; every byte is put back to the image before each run.
    Rewind,
    /// A new one for each run, and none is used twice.
    Fresh,
}

/// How a runtime is built.
#[derive(Clone, Copy, Debug)]
pub struct RuntimeConfig {
    /// Pooled or new instances.
    pub instances: Instances,
    /// Most runs at once; more wait their turn.
    pub concurrency: usize,
    /// Most bytes of linear memory any run may ask for.
    pub max_memory_bytes: usize,
    /// Which scripts are compiled to machine code.
    pub compile: Compile,
}

/// Bits and names of the flags that a function may be registered with, in the order Redis lists them.
pub const FUNCTION_FLAGS: [(u32, &str); 5] = [
    (abi::FUNCTION_NO_WRITES, "no-writes"),
    (abi::FUNCTION_ALLOW_OOM, "allow-oom"),
    (abi::FUNCTION_ALLOW_STALE, "allow-stale"),
    (abi::FUNCTION_NO_CLUSTER, "no-cluster"),
    (abi::FUNCTION_ALLOW_CROSS_SLOT_KEYS, "allow-cross-slot-keys"),
];

/// What a script is called with.
#[derive(Clone, Copy)]
pub struct RunInput<'a> {
    /// How error messages call the script: its sha, or the function's name.
    pub name: &'a str,
    /// `KEYS`
    pub keys: &'a [&'a [u8]],
    /// `ARGV`
    pub args: &'a [&'a [u8]],
    /// What `os.clock` answers, in seconds; frozen for the run.
    pub clock_seconds: f64,
    /// Seeds `math.random`.
    pub seed: u32,
    /// What runs is the function of this name that the library has registered. It gets `keys` and `args` as its
    /// arguments, and there is no `KEYS` and no `ARGV`.
    pub function: bool,
    /// Before each call the host gets which functions of the script lead to it, until it wants no more of that. Not for
    /// functions of libraries.
    pub frames: bool,
}

impl RunInput<'_> {
    /// The bytes that the guest's `run` expects.
    pub fn encode(&self) -> Vec<u8> {
        let items = || self.keys.iter().chain(self.args);
        let payload: usize = items().map(|item| 4 + item.len()).sum();
        let mut out = Vec::with_capacity(abi::RUN_DATA as usize + self.name.len() + payload);
        out.resize(abi::RUN_DATA as usize, 0);
        let mut word =
            |at: u32, bytes: &[u8]| out[at as usize..at as usize + bytes.len()].copy_from_slice(bytes);
        let flags = match (self.function, self.frames) {
            (true, _) => abi::RUN_FUNCTION,
            (false, true) => abi::RUN_FRAMES,
            (false, false) => 0,
        };
        word(abi::RUN_FLAGS, &flags.to_le_bytes());
        word(abi::RUN_CLOCK, &self.clock_seconds.to_le_bytes());
        word(abi::RUN_NAME_LEN, &(self.name.len() as u32).to_le_bytes());
        word(abi::RUN_SEED, &self.seed.to_le_bytes());
        word(abi::RUN_NKEYS, &(self.keys.len() as u32).to_le_bytes());
        word(abi::RUN_NARGS, &(self.args.len() as u32).to_le_bytes());
        out.extend_from_slice(self.name.as_bytes());
        for item in items() {
            out.extend_from_slice(&(item.len() as u32).to_le_bytes());
            out.extend_from_slice(item);
        }
        out
    }
}

/// How a run ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The guest's reply: RESP3 bytes that are not checked yet.
    Reply(Vec<u8>),
    /// The script does not compile; Lua's message.
    CompileError(String),
    /// A limit ended it.
    Limit(Limit),
    /// The host ended it.
    Stopped,
    /// The sandbox broke: a trap, or a rule of the boundary was violated.
    Trap(String),
}

/// Compiles and runs scripts for hosts of type `H`.
pub struct Runtime<H: 'static> {
    engine: Engine,
    pre: InstancePre<crate::sandbox::State<H>>,
    pristine: Arc<Pristine>,
    tier: Tier,
    /// Idle sandboxes by how far their memory has grown, see [`SIZE_CLASSES`].
    idle: [Mutex<Vec<Sandbox<H>>>; SIZE_CLASSES.len()],
    /// Of runs that wait for nothing once they run, and of the others.
    admission: [Arc<Semaphore>; 2],
    /// What the pool of new instances has room for. A run whose caller is gone may take a moment to let
    /// its instance go, longer than its admission lasts.
    slots: Arc<Semaphore>,
    config: RuntimeConfig,
    limits_hit: [AtomicU64; Limit::ALL.len()],
    instances_made: AtomicU64,
}

/// Memory that a pooled sandbox may have grown to. Rewinding costs time in proportion to the memory, so scripts
/// that need little do not get a sandbox that once needed much; one that grew beyond the last class is thrown
/// away.
const SIZE_CLASSES: [usize; 3] = [512 << 10, 1 << 20, 4 << 20];

fn size_class(bytes: usize) -> Option<usize> {
    SIZE_CLASSES.iter().position(|&most| bytes <= most)
}

impl<H: Host> Runtime<H> {
    /// Compiles the guest and takes the picture of its initialised memory.
    pub async fn new(config: RuntimeConfig) -> wasmtime::Result<Runtime<H>> {
        let engine = Engine::new(&engine_config(&config))?;
        let module = compiled::guest(&engine)?;
        let mut linker = Linker::new(&engine);
        imports::register(&mut linker)?;
        let pre = linker.instantiate_pre(&module)?;
        let mut first = Sandbox::new(&engine, &pre, false).await?;
        let pristine = Arc::new(first.initialise().await?);
        let tier = Tier::new(&engine, &pristine, config.compile);
        Ok(Runtime {
            engine,
            pre,
            pristine,
            tier,
            idle: Default::default(),
            admission: std::array::from_fn(|_| Arc::new(Semaphore::new(config.concurrency.max(1)))),
            slots: Arc::new(Semaphore::new(2 * config.concurrency.max(1))),
            config,
            limits_hit: Default::default(),
            instances_made: AtomicU64::new(0),
        })
    }

    /// What compiles the scripts that become hot, for a thread of its own. Nothing: it was taken before, or scripts are not
    /// compiled in the background. Until it runs, and once it has ended, all scripts are interpreted.
    pub fn take_compiler(&self) -> Option<Compiler> {
        self.tier.take_compiler()
    }

    /// What the compiled tier did and holds.
    pub fn tier_report(&self) -> TierReport {
        self.tier.report()
    }

    /// Waits for the right to run one script. First come, first served; never refused.
    ///
    /// Runs that may wait for others once they run, as scripts without atomicity do for keys, are admitted apart:
    /// those they wait for may be waiting here.
    pub async fn admit(&self, may_wait: bool) -> OwnedSemaphorePermit {
        let admission = &self.admission[usize::from(may_wait)];
        // Waiting is set up only where it is needed; those who wait already are served first all the same.
        match admission.clone().try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => admission.clone().acquire_owned().await.expect("the semaphore is never closed"),
        }
    }

    /// Compiles `script` and keeps its image, so that the first run finds it; Lua's message if it does not
    /// compile. And what that took.
    pub async fn compile(&self, script: &Script, budget: &Budget) -> (Result<(), Outcome>, ResourceUsage) {
        let mut sandbox = match self.sandbox(0).await {
            Ok(sandbox) => sandbox,
            Err(error) => return (Err(self.conclude(error)), ResourceUsage::default()),
        };
        let result = self.prepare(&mut sandbox, script, true, budget).await;
        let usage = self.usage(&sandbox, budget);
        let compiled = match result {
            Ok(()) => {
                self.give_back(sandbox);
                Ok(())
            }
            Err(failure) => Err(self.conclude(failure)),
        };
        (compiled, usage)
    }

    /// Runs the source of `library` once, so that it registers its functions, and keeps the image of that: every run
    /// starts from there. The reply is that of the guest's `load`, and is not checked yet; what the library
    /// asks for meanwhile is answered by `host`. And what that took.
    pub async fn load(&self, library: &Script, budget: &Budget, host: H) -> (Outcome, ResourceUsage) {
        let mut sandbox = match self.sandbox(0).await {
            Ok(sandbox) => sandbox,
            Err(error) => return (self.conclude(error), ResourceUsage::default()),
        };
        sandbox.store.data_mut().host = Some(host);
        let result = self.load_in(&mut sandbox, library, budget).await;
        sandbox.store.data_mut().host = None;
        let usage = self.usage(&sandbox, budget);
        let outcome = match result {
            Ok(reply) => {
                self.give_back(sandbox);
                Outcome::Reply(reply)
            }
            Err(failure) => self.conclude(failure),
        };
        (outcome, usage)
    }

    async fn load_in(
        &self,
        sandbox: &mut Sandbox<H>,
        library: &Script,
        budget: &Budget,
    ) -> Result<Vec<u8>, RunFailure> {
        sandbox.rewind(&self.pristine, None, budget).await?;
        let deadline = sandbox.store.data().deadline;
        let len = sandbox.write_input(&self.pristine, library.source()).await?;
        let load = sandbox.load.clone();
        let packed = until(deadline, load.call_async(&mut sandbox.store, len)).await?;
        let reply = sandbox.result(packed)?.to_vec();
        if reply.len() > budget.reply_bytes {
            return Err(Ending::Limit(Limit::Reply).into());
        }
        if !reply.starts_with(b"-") {
            library.set_image(self.image_of(sandbox));
            if self.tier.is_eager() {
                self.tier.compile_now(library);
            }
        }
        Ok(reply)
    }

    /// Runs `script` with the encoded `input` (see [`RunInput::encode`]) and gives the host back.
    ///
    /// The future yields after every slice of fuel; dropping it ends the run at that point, and the host is
    /// dropped with it.
    pub async fn run(
        &self,
        script: &Script,
        input: &[u8],
        budget: &Budget,
        host: H,
    ) -> (Option<H>, Outcome, ResourceUsage) {
        let mut sandbox = match self.sandbox(script.memory_bytes()).await {
            Ok(sandbox) => sandbox,
            Err(error) => return (Some(host), self.conclude(error), ResourceUsage::default()),
        };
        sandbox.store.data_mut().host = Some(host);
        let result = self.run_in(&mut sandbox, script, input, budget).await;
        let host = sandbox.store.data_mut().host.take();
        let usage = self.usage(&sandbox, budget);
        let own_fuel = usage.fuel.saturating_sub(sandbox.store.data().host_fuel);
        self.tier.note_run(script, sandbox.is_linked(), own_fuel);
        let outcome = match result {
            Ok(_) if usage.fuel > budget.fuel => self.limit(Limit::Fuel),
            Ok(reply) => {
                script.set_memory_bytes(usage.memory_bytes);
                self.give_back(sandbox);
                Outcome::Reply(reply)
            }
            Err(RunFailure::Compile(message)) => {
                self.give_back(sandbox);
                Outcome::CompileError(message)
            }
            // Whatever interrupted the guest left it in the middle of something: the instance goes with it.
            Err(failure) => self.conclude(failure),
        };
        (host, outcome, usage)
    }

    async fn run_in(
        &self,
        sandbox: &mut Sandbox<H>,
        script: &Script,
        input: &[u8],
        budget: &Budget,
    ) -> Result<Vec<u8>, RunFailure> {
        let again = script.runs_again();
        self.prepare(sandbox, script, again, budget).await?;
        sandbox.begin_run(budget)?;
        let deadline = sandbox.store.data().deadline;
        let len = sandbox.write_input(&self.pristine, input).await?;
        let run = sandbox.run.clone();
        let packed = until(deadline, run.call_async(&mut sandbox.store, len)).await?;
        let reply = sandbox.result(packed)?;
        if reply.len() > budget.reply_bytes {
            return Err(Ending::Limit(Limit::Reply).into());
        }
        Ok(reply.to_vec())
    }

    /// Rewinds `sandbox` and gets `script` compiled in it: from its image, or from the source. With `keep` a
    /// newly compiled script gets its image; scripts that run only once are not worth one.
    async fn prepare(
        &self,
        sandbox: &mut Sandbox<H>,
        script: &Script,
        keep: bool,
        budget: &Budget,
    ) -> Result<(), RunFailure> {
        let compiled = self.link(sandbox, script).await?;
        let image = compiled.or(script.image());
        sandbox.rewind(&self.pristine, image, budget).await?;
        let deadline = sandbox.store.data().deadline;
        if image.is_some() {
            return Ok(());
        }
        sandbox.begin_compilation(budget)?;
        let len = sandbox.write_input(&self.pristine, script.source()).await?;
        let compile = sandbox.compile.clone();
        let packed = until(deadline, compile.call_async(&mut sandbox.store, len)).await?;
        let message = sandbox.result(packed)?;
        if !message.is_empty() {
            return Err(RunFailure::Compile(String::from_utf8_lossy(message).into_owned()));
        }
        if keep || self.tier.is_eager() {
            let image = self.image_of(sandbox);
            if image.bytes() <= IMAGE_MAX_BYTES {
                script.set_image(image);
            }
        }
        if self.tier.is_eager() {
            self.tier.compile_now(script);
            if let Some(image) = self.link(sandbox, script).await? {
                sandbox.restore(&self.pristine, Some(image));
            }
        }
        Ok(())
    }

    /// Links the machine code of a script, if it has some, and returns the image that belongs to it. Else nothing is linked.
    async fn link<'s>(
        &self,
        sandbox: &mut Sandbox<H>,
        script: &'s Script,
    ) -> wasmtime::Result<Option<&'s Image>> {
        if let Some(compiled) = script.compiled() {
            match sandbox.link(&self.pristine, compiled).await {
                Ok(()) => return Ok(Some(&compiled.image)),
                // There may be no memory for it.
                Err(_) => self.tier.note_failure(),
            }
        }
        sandbox.unlink(&self.pristine)?;
        Ok(None)
    }

    /// The state of `sandbox` as an image, from which runs can start.
    fn image_of(&self, sandbox: &Sandbox<H>) -> Image {
        let memory = sandbox.store.data().memory().data(&sandbox.store);
        self.pristine.image.difference(memory)
    }

    fn usage(&self, sandbox: &Sandbox<H>, budget: &Budget) -> ResourceUsage {
        let state = sandbox.store.data();
        let (fuel, compile_fuel) = sandbox.used_fuel();
        ResourceUsage {
            fuel,
            compile_fuel,
            memory_bytes: sandbox.memory_bytes(),
            calls: state.calls,
            compiled: sandbox.is_linked(),
            time: budget.time.saturating_sub(state.deadline.saturating_duration_since(Instant::now())),
        }
    }

    /// A sandbox, preferably one whose memory has already grown to what the script needed last time.
    async fn sandbox(&self, memory_bytes: usize) -> Result<Sandbox<H>, RunFailure> {
        if self.config.instances == Instances::Rewind {
            let class = size_class(memory_bytes).unwrap_or(SIZE_CLASSES.len() - 1);
            for pool in std::iter::once(&self.idle[class]).chain(&self.idle[..class]) {
                if let Some(sandbox) = pool.lock().pop() {
                    return Ok(sandbox);
                }
            }
        }
        let reused = self.config.instances == Instances::Rewind;
        let slot = match reused {
            true => None,
            false => Some(self.slots.clone().acquire_owned().await.expect("the semaphore is never closed")),
        };
        self.instances_made.fetch_add(1, Ordering::Relaxed);
        let mut sandbox = Sandbox::new(&self.engine, &self.pre, reused).await?;
        sandbox.slot = slot;
        Ok(sandbox)
    }

    fn give_back(&self, mut sandbox: Sandbox<H>) {
        if self.config.instances == Instances::Fresh {
            return;
        }
        let state = sandbox.store.data_mut();
        if state.reply.capacity() > MAX_KEPT_REPLY {
            state.reply = Vec::new();
        }
        if self.tier.wants_room() {
            self.idle.iter().for_each(|pool| drop(std::mem::take(&mut *pool.lock())));
        }
        if sandbox.is_worn_out() {
            return;
        }
        if let Some(class) = size_class(sandbox.memory_bytes()) {
            let mut pool = self.idle[class].lock();
            if pool.len() < self.config.concurrency {
                pool.push(sandbox);
            }
        }
    }

    fn limit(&self, limit: Limit) -> Outcome {
        self.limits_hit[limit as usize].fetch_add(1, Ordering::Relaxed);
        Outcome::Limit(limit)
    }

    fn conclude(&self, failure: impl Into<RunFailure>) -> Outcome {
        match failure.into() {
            RunFailure::Compile(message) => Outcome::CompileError(message),
            RunFailure::Limit(limit) => self.limit(limit),
            RunFailure::Wasm(error) => match (error.downcast_ref::<Ending>(), error.downcast_ref::<Trap>()) {
                (Some(Ending::Limit(limit)), _) => self.limit(*limit),
                (Some(Ending::Stopped), _) => Outcome::Stopped,
                (_, Some(Trap::OutOfFuel)) => self.limit(Limit::Fuel),
                (_, Some(trap)) => Outcome::Trap(trap.to_string()),
                _ => Outcome::Trap(format!("{error:#}")),
            },
        }
    }

    /// How often each limit ended a run.
    pub fn limits_hit(&self) -> impl Iterator<Item = (Limit, u64)> {
        Limit::ALL.into_iter().map(|limit| (limit, self.limits_hit[limit as usize].load(Ordering::Relaxed)))
    }

    /// Instances made since the start.
    pub fn instances_made(&self) -> u64 {
        self.instances_made.load(Ordering::Relaxed)
    }

    /// Instances that are kept for the next run.
    pub fn instances_kept(&self) -> usize {
        self.idle.iter().map(|pool| pool.lock().len()).sum()
    }

    /// Runs going on or admitted.
    pub fn active(&self) -> usize {
        let free: usize = self.admission.iter().map(|admission| admission.available_permits()).sum();
        2 * self.config.concurrency.max(1) - free
    }
}

/// Largest reply buffer that stays with a pooled sandbox.
const MAX_KEPT_REPLY: usize = 64 * 1024;

/// What can go wrong inside a run.
enum RunFailure {
    Compile(String),
    Limit(Limit),
    Wasm(wasmtime::Error),
}

impl From<wasmtime::Error> for RunFailure {
    fn from(error: wasmtime::Error) -> Self {
        RunFailure::Wasm(error)
    }
}

impl From<Ending> for RunFailure {
    fn from(ending: Ending) -> Self {
        RunFailure::Wasm(ending.into())
    }
}

/// Polls `call`, and looks at the clock whenever the guest has used up a slice of fuel. The slice bounds how long
/// the guest runs between two looks, so no epoch check is compiled into every loop of the guest.
async fn until<T>(
    deadline: Instant,
    call: impl Future<Output = wasmtime::Result<T>>,
) -> Result<T, RunFailure> {
    let mut call = pin!(call);
    poll_fn(|context| match call.as_mut().poll(context) {
        Poll::Ready(result) => Poll::Ready(result.map_err(RunFailure::Wasm)),
        Poll::Pending if Instant::now() > deadline => Poll::Ready(Err(RunFailure::Limit(Limit::Time))),
        Poll::Pending => Poll::Pending,
    })
    .await
}

/// Compiles what runtimes need into files that later starts read: in this directory, or beside the program. Returns the files.
pub fn precompile(directory: Option<&Path>) -> wasmtime::Result<BTreeSet<PathBuf>> {
    let engine = |instances| {
        let config =
            RuntimeConfig { instances, concurrency: 1, max_memory_bytes: 1 << 20, compile: Compile::Never };
        compiled::precompile(&Engine::new(&engine_config(&config))?, directory)
    };
    [Instances::Rewind, Instances::Fresh].into_iter().map(engine).collect()
}

fn engine_config(config: &RuntimeConfig) -> Config {
    let mut engine = Config::new();
    engine.consume_fuel(true);
    engine.cranelift_opt_level(OptLevel::Speed);
    engine.wasm_exceptions(true);
    // A guard watches the memory at its place.
    engine.memory_may_move(false);
    // Lua's errors are WebAssembly exceptions inside the guest; the host's backtraces of them are not used.
    engine.wasm_backtrace_max_frames(None);
    if config.instances == Instances::Fresh {
        // One slot beyond the runs for the instance that the picture is taken of.
        let slots = u32::try_from(2 * config.concurrency).unwrap_or(u32::MAX).saturating_add(1);
        let mut pool = PoolingAllocationConfig::default();
        // An instance that throws an exception, as every Lua error does, takes a second memory for it.
        pool.total_memories(slots.saturating_mul(2))
            // The guest, and the side module of a compiled script.
            .total_core_instances(slots.saturating_mul(2))
            .total_stacks(slots)
            .total_tables(slots)
            .total_gc_heaps(slots)
            .max_memory_size(config.max_memory_bytes)
            .linear_memory_keep_resident(512 << 10)
            .table_keep_resident(64 << 10);
        engine.allocation_strategy(InstanceAllocationStrategy::Pooling(pool));
    }
    engine
}

#[cfg(test)]
#[path = "isolation_tests.rs"]
mod isolation_tests;
