//! Which scripts are compiled to machine code, and when; what it costs.
//!
//! A script is hot once it has used as much fuel as it costs to compile it: whatever it does later, compiling has cost at
//! most as much as the interpreter did. Hot scripts wait in a queue for one thread, the [`Compiler`]'s. What finds the queue
//! full stays interpreted, and comes again.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Weak};
use std::time::Instant;

use parking_lot::Mutex;
use wasmtime::{Engine, Module};

use super::heat::{Code, Compiled, Heat};
use super::plan::Choice;
use crate::image::{Image, Overlay};
use crate::sandbox::Pristine;
use crate::script::Script;

/// Hot scripts that wait to be compiled.
const MOST_WAITING: usize = 32;
/// Bytes of machine code from which on no more is made. Code of scripts that are gone counts as long as sandboxes hold it.
const MOST_CODE_BYTES: usize = 64 << 20;

/// Which scripts are compiled to machine code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compile {
    /// Those that are hot, in the background.
    #[default]
    Auto,
    /// All, before their first run: then runs are the same from the first to the last, which is for tests.
    Always,
    /// None.
    Never,
}

/// What compiling came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Compilation {
    /// There is machine code.
    Compiled,
    /// Nothing of the script would become faster, or it is too large.
    Unsuitable,
    /// There was no memory left for it.
    Full,
    /// The compiler made a mistake.
    Failed,
}

impl Compilation {
    /// All of them, in the order of their counters.
    pub const ALL: [Compilation; 4] =
        [Compilation::Compiled, Compilation::Unsuitable, Compilation::Full, Compilation::Failed];

    /// The word for it in INFO and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Compilation::Compiled => "compiled",
            Compilation::Unsuitable => "unsuitable",
            Compilation::Full => "full",
            Compilation::Failed => "failed",
        }
    }
}

/// What the compiled tier did and holds.
#[derive(Debug, Default)]
struct Counts {
    outcomes: [AtomicU64; Compilation::ALL.len()],
    micros: AtomicU64,
    waiting: AtomicUsize,
    code_bytes: Arc<AtomicUsize>,
    runs: AtomicU64,
    /// Code was refused since others have all memory for it.
    wants_room: AtomicBool,
}

/// What the compiled tier did since the start, and holds now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TierReport {
    /// How often each outcome came about, in the order of [`Compilation::ALL`].
    pub outcomes: [u64; Compilation::ALL.len()],
    /// Time that compiling took, in microseconds.
    pub micros: u64,
    /// Scripts that wait to be compiled.
    pub waiting: usize,
    /// Bytes of machine code.
    pub code_bytes: usize,
    /// Runs that used machine code.
    pub runs: u64,
}

/// What a runtime has of the compiled tier.
pub(crate) struct Tier {
    compile: Compile,
    workshop: Arc<Workshop>,
    queue: SyncSender<Job>,
    /// The other end of the queue, until the thread takes it.
    jobs: Mutex<Option<Receiver<Job>>>,
}

/// What compiling takes.
struct Workshop {
    engine: Engine,
    pristine: Arc<Pristine>,
    choice: Choice,
    counts: Arc<Counts>,
    numbers: AtomicU64,
}

/// A script to be compiled: its image, and where the code goes, if the script is still there.
struct Job {
    image: Arc<Image>,
    heat: Weak<Heat>,
}

impl Tier {
    pub fn new(engine: &Engine, pristine: &Arc<Pristine>, compile: Compile) -> Tier {
        let (queue, jobs) = sync_channel(MOST_WAITING);
        let workshop = Workshop {
            engine: engine.clone(),
            pristine: pristine.clone(),
            choice: if compile == Compile::Always { Choice::All } else { Choice::Faster },
            counts: Arc::default(),
            numbers: AtomicU64::new(0),
        };
        Tier { compile, workshop: Arc::new(workshop), queue, jobs: Mutex::new(Some(jobs)) }
    }

    /// The one that compiles what is hot; nothing: it was taken before, or there is nothing to do for it.
    pub fn take_compiler(&self) -> Option<Compiler> {
        let jobs = self.jobs.lock().take_if(|_| self.compile == Compile::Auto)?;
        Some(Compiler { workshop: self.workshop.clone(), jobs })
    }

    /// Whether scripts are compiled at once.
    pub fn is_eager(&self) -> bool {
        self.compile == Compile::Always
    }

    /// Compiles a script that has an image, now.
    pub fn compile_now(&self, script: &Script) {
        if let Some(image) = script.image().filter(|_| script.heat().settle()) {
            self.workshop.compile(script.heat(), image);
        }
    }

    /// Notes a run that used so much fuel itself. A script that has become hot is put into the queue.
    pub fn note_run(&self, script: &Script, was_compiled: bool, fuel: u64) {
        let counts = &self.workshop.counts;
        if was_compiled {
            counts.runs.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let heat = script.heat();
        if self.compile != Compile::Auto || script.image().is_none() || !heat.add(fuel) || !heat.settle() {
            return;
        }
        if let Some(image) = script.shared_image() {
            let job = Job { image, heat: Arc::downgrade(heat) };
            counts.waiting.fetch_add(1, Ordering::Relaxed);
            if self.queue.try_send(job).is_err() {
                counts.waiting.fetch_sub(1, Ordering::Relaxed);
                heat.come_again();
            }
        }
    }

    /// Notes that code could not be linked.
    pub fn note_failure(&self) {
        self.workshop.counts.add(Compilation::Failed);
    }

    /// Whether code was refused for lack of memory since this was asked last. Idle sandboxes may hold unneeded code.
    pub fn wants_room(&self) -> bool {
        let wants_room = &self.workshop.counts.wants_room;
        wants_room.load(Ordering::Relaxed) && wants_room.swap(false, Ordering::Relaxed)
    }

    pub fn report(&self) -> TierReport {
        let counts = &self.workshop.counts;
        TierReport {
            outcomes: Compilation::ALL
                .map(|outcome| counts.outcomes[outcome as usize].load(Ordering::Relaxed)),
            micros: counts.micros.load(Ordering::Relaxed),
            waiting: counts.waiting.load(Ordering::Relaxed),
            code_bytes: counts.code_bytes.load(Ordering::Relaxed),
            runs: counts.runs.load(Ordering::Relaxed),
        }
    }
}

impl Counts {
    fn add(&self, outcome: Compilation) {
        self.outcomes[outcome as usize].fetch_add(1, Ordering::Relaxed);
    }
}

/// Compiles the scripts that become hot in a runtime. Belongs on a thread of its own with a low priority.
pub struct Compiler {
    workshop: Arc<Workshop>,
    jobs: Receiver<Job>,
}

impl Compiler {
    /// Compiles one script after the other until the runtime is gone.
    pub fn run(self) {
        while let Ok(Job { image, heat }) = self.jobs.recv() {
            self.workshop.counts.waiting.fetch_sub(1, Ordering::Relaxed);
            if let Some(heat) = heat.upgrade() {
                self.workshop.compile(&heat, &image);
            }
        }
    }
}

impl Workshop {
    /// Compiles a script of this image. Whatever comes of it, the script has settled.
    fn compile(&self, heat: &Heat, image: &Image) {
        let began = Instant::now();
        // A mistake in the compiler costs speed, not more.
        let made = catch_unwind(AssertUnwindSafe(|| self.make(image))).unwrap_or(Err(Compilation::Failed));
        let outcome = match made {
            Ok(compiled) => {
                heat.set_compiled(compiled);
                Compilation::Compiled
            }
            Err(outcome) => outcome,
        };
        if outcome == Compilation::Full {
            self.counts.wants_room.store(true, Ordering::Relaxed);
            heat.come_again();
        }
        let micros = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.counts.micros.fetch_add(micros, Ordering::Relaxed);
        self.counts.add(outcome);
    }

    fn make(&self, image: &Image) -> Result<Compiled, Compilation> {
        if self.counts.code_bytes.load(Ordering::Relaxed) >= MOST_CODE_BYTES {
            return Err(Compilation::Full);
        }
        let Pristine { image: base, state, .. } = &*self.pristine;
        let side =
            super::compile(&Overlay::new(base, image), *state, self.choice).ok_or(Compilation::Unsuitable)?;
        let image = image.with_words(&side.numbers()).ok_or(Compilation::Failed)?;
        let module = Module::new(&self.engine, &side.wasm).map_err(|_| Compilation::Failed)?;
        let mapped = module.image_range();
        let bytes = mapped.end as usize - mapped.start as usize;
        let code = Code::new(module, bytes, &self.counts.code_bytes);
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        Ok(Compiled { number, code: Arc::new(code), image })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::differential_tests::{BUDGET, Recorder};
    use super::*;
    use crate::{Footprint, Instances, RunInput, Runtime, RuntimeConfig};

    #[tokio::test]
    async fn a_script_is_compiled_once_it_is_hot() {
        let config = RuntimeConfig {
            instances: Instances::Rewind,
            concurrency: 1,
            max_memory_bytes: 16 << 20,
            compile: Compile::Auto,
        };
        let runtime = Runtime::new(config).await.unwrap();
        let footprint = Arc::new(Footprint::default());
        let script_of = |text: &str| Script::counted(text.as_bytes(), &footprint);
        let (hot, cool) =
            (script_of("local n = 0 for i = 1, 1e6 do n = n + i end return n"), script_of("return 1"));
        let input = RunInput {
            name: "f",
            keys: &[],
            args: &[],
            clock_seconds: 0.0,
            seed: 0,
            function: false,
            frames: false,
        };
        let input = input.encode();
        let run = async |script: &Script| {
            let (_, outcome, usage) = runtime.run(script, &input, &BUDGET, Recorder::default()).await;
            (outcome, usage)
        };
        let (first, interpreted) = run(&hot).await;
        for _ in 0..3 {
            run(&hot).await;
            run(&cool).await;
        }
        // It is in the queue once, and interpreted as long as no compiler takes it.
        assert_eq!(runtime.tier_report(), TierReport { waiting: 1, ..TierReport::default() });
        let compiler = runtime.take_compiler().expect("it is there");
        assert!(runtime.take_compiler().is_none(), "there is one");
        let thread = std::thread::spawn(|| compiler.run());
        while !hot.is_compiled() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let (outcome, compiled) = run(&hot).await;
        assert!(outcome == first && compiled.compiled && !interpreted.compiled);
        assert!(compiled.fuel < interpreted.fuel / 2, "{compiled:?} {interpreted:?}");
        assert!(!run(&cool).await.1.compiled, "nothing stays linked");
        let report = runtime.tier_report();
        assert_eq!((report.outcomes, report.waiting, report.runs), ([1, 0, 0, 0], 0, 1));
        // The script has an image more, and what is only in a sandbox is counted still.
        assert_eq!(footprint.bytes(), hot.bytes() + cool.bytes());
        assert!(hot.compiled_bytes() > report.code_bytes && report.code_bytes > 0);
        drop((hot, cool));
        assert_eq!((footprint.bytes(), runtime.tier_report().code_bytes), (0, report.code_bytes));
        drop(runtime);
        thread.join().expect("the thread ends with the runtime");
    }
}
