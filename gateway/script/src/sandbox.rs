//! One instance of the guest and what the host keeps beside it.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use guest_lua::abi::INPUT_STATIC;
use tokio::sync::OwnedSemaphorePermit;
use wasmtime::{
    Engine, Extern, Func, Global, Instance, InstancePre, Memory, Mutability, Ref, ResourceLimiter, Store,
    Table, TypedFunc, Val,
};

use crate::budget::{Budget, Limit};
use crate::guard::{Guard, PAGE, WATCHED_PAGES};
use crate::host::Host;
use crate::image::{BaseImage, Image};
use crate::tier::{Code, Compiled, ENTRY};

/// Why the host ended a run; travels through the guest's frames as the error of an import.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// A limit was reached.
    Limit(Limit),
    /// The host said stop.
    Stopped,
    /// The guest broke the rules of the boundary: it is no longer the program we built.
    Misuse(&'static str),
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ending::Limit(limit) => write!(f, "limit {}", limit.name()),
            Ending::Stopped => f.write_str("stopped by the host"),
            Ending::Misuse(what) => write!(f, "the guest passed {what}"),
        }
    }
}

impl std::error::Error for Ending {}

/// Calls between two looks at the clock, each of which takes some 2 ms at most, but rarely more than a microsecond.
const CALLS_PER_LOOK: u64 = 16;

/// Time from one look to the next after which the thread is given away.
const MAX_SLICE: Duration = Duration::from_millis(1);

/// The host's side of one instance.
pub(crate) struct State<H> {
    /// Present while the guest runs.
    pub host: Option<H>,
    memory: Option<Memory>,
    /// The reply of the newest call.
    pub reply: Vec<u8>,
    /// Fuel charged by host calls. Kept apart from the guest's own counter, since setting that counter would
    /// begin a new slice.
    pub host_fuel: u64,
    /// What the guest had for its present part: the compilation, or the run.
    pub fuel_limit: u64,
    /// It is being compiled.
    pub compiles: bool,
    /// Fuel that the preparation of the run took.
    pub compile_fuel: u64,
    /// Host fuel since the thread was last given away.
    pub unyielded: u64,
    /// Fuel after which the thread is given away.
    pub slice_fuel: u64,
    /// When the clock was last looked at between two calls.
    looked_at: Instant,
    /// When the run's time is over.
    pub deadline: Instant,
    /// The newest call was not answered yet.
    pub unfinished: bool,
    /// Calls made.
    pub calls: u64,
    memory_limit: usize,
}

impl<H> State<H> {
    /// The guest's memory.
    pub fn memory(&self) -> Memory {
        self.memory.expect("the memory is set right after the instance was made")
    }

    /// Charges a call.
    pub fn charge(&mut self, cost: u64) {
        self.host_fuel = self.host_fuel.saturating_add(cost);
        self.unyielded = self.unyielded.saturating_add(cost);
        if self.calls.is_multiple_of(CALLS_PER_LOOK) {
            self.look_at_clock();
        }
    }

    /// Whoever has held the thread for long gives it away, whatever the calls cost: then its deadline is looked at, too.
    fn look_at_clock(&mut self) {
        let now = Instant::now();
        if now - self.looked_at > MAX_SLICE {
            self.unyielded = u64::MAX;
        }
        self.looked_at = now;
    }
}

impl<H: Send> ResourceLimiter for State<H> {
    fn memory_growing(&mut self, _now: usize, wanted: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        if wanted > self.memory_limit {
            // An error, not `false`: the guest would turn that into a Lua error, which pcall can catch.
            return Err(Ending::Limit(Limit::Memory).into());
        }
        Ok(true)
    }

    fn table_growing(&mut self, now: usize, _: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        // Asked with 0 when an instance is made; the guest itself never grows its table.
        if now == 0 { Ok(true) } else { Err(Ending::Misuse("a request to grow a table").into()) }
    }
}

/// The guest as it was right after `init`: what every run starts from.
pub(crate) struct Pristine {
    pub image: BaseImage,
    /// Values of the mutable globals, in the order the module exports them.
    globals: Vec<Val>,
    /// Where Lua's state is.
    pub state: u32,
    /// The place of the function table for the entry of a compiled script.
    entry: u64,
    /// Where inputs of up to [`INPUT_STATIC`] bytes go, in every instance.
    input: u32,
}

/// A compiled script in a sandbox. What is once in a store is in it as long as the store is.
struct Linked {
    number: u64,
    entry: Func,
    /// Counted as long as it is here.
    _code: Arc<Code>,
}

/// An instance of the guest. Belongs to one run at a time.
pub(crate) struct Sandbox<H: 'static> {
    /// Knows which pages were written. Declared first, so that it is gone before the memory is.
    pub guard: Option<Guard>,
    pub store: Store<State<H>>,
    instance: Instance,
    /// It will be rewound and used again.
    reused: bool,
    /// Whether it has been rewound before: then all of its memory may differ from the image.
    used: bool,
    /// How often it was rewound since its pages were protected.
    rewinds: u32,
    pub globals: Vec<Global>,
    table: Table,
    /// The compiled scripts that were linked.
    linked: Vec<Linked>,
    /// The number of the one whose entry is in the table.
    current: Option<u64>,
    pub input: TypedFunc<u32, u32>,
    pub compile: TypedFunc<u32, u64>,
    pub load: TypedFunc<u32, u64>,
    pub run: TypedFunc<u32, u64>,
    /// Its place in the pool of new instances. Declared last: free once everything else is gone.
    pub slot: Option<OwnedSemaphorePermit>,
}

impl<H: Host> Sandbox<H> {
    /// A new instance. Its memory is whatever the module's data segments say: rewind it before use.
    pub async fn new(engine: &Engine, pre: &InstancePre<State<H>>, reused: bool) -> wasmtime::Result<Self> {
        let mut store = Store::new(
            engine,
            State {
                host: None,
                memory: None,
                reply: Vec::new(),
                host_fuel: 0,
                fuel_limit: u64::MAX,
                compiles: false,
                compile_fuel: 0,
                unyielded: 0,
                slice_fuel: u64::MAX,
                looked_at: Instant::now(),
                deadline: Instant::now(),
                unfinished: false,
                calls: 0,
                memory_limit: usize::MAX,
            },
        );
        store.limiter(|state| state);
        store.set_fuel(u64::MAX)?;
        let instance = pre.instantiate_async(&mut store).await?;
        let mut globals = Vec::new();
        let mut memory = None;
        let exports: Vec<Extern> = instance.exports(&mut store).map(|export| export.into_extern()).collect();
        for export in exports {
            match export {
                Extern::Global(global) if global.ty(&store).mutability() == Mutability::Var => {
                    globals.push(global)
                }
                Extern::Memory(exported) => memory = Some(exported),
                _ => {}
            }
        }
        store.data_mut().memory = memory;
        let table = instance.get_table(&mut store, "__indirect_function_table");
        let table = table.ok_or_else(|| wasmtime::Error::msg("the guest exports no table"))?;
        Ok(Sandbox {
            guard: None,
            input: instance.get_typed_func(&mut store, "input")?,
            compile: instance.get_typed_func(&mut store, "compile")?,
            load: instance.get_typed_func(&mut store, "load")?,
            run: instance.get_typed_func(&mut store, "run")?,
            instance,
            reused,
            used: false,
            rewinds: 0,
            globals,
            table,
            linked: Vec::new(),
            current: None,
            store,
            slot: None,
        })
    }

    /// Opens the libraries in a new instance and takes the picture that all others start from.
    pub async fn initialise(&mut self) -> wasmtime::Result<Pristine> {
        for name in ["_initialize", "init"] {
            let start = self.instance.get_typed_func::<(), ()>(&mut self.store, name)?;
            start.call_async(&mut self.store, ()).await?;
        }
        let input = self.input.call_async(&mut self.store, INPUT_STATIC).await?;
        let globals = self.globals.iter().map(|global| global.get(&mut self.store)).collect();
        let state = self.instance.get_typed_func::<(), u32>(&mut self.store, "state")?;
        let state = state.call_async(&mut self.store, ()).await?;
        let entry = self.instance.get_typed_func::<(), u32>(&mut self.store, "tier_entry")?;
        let entry = entry.call_async(&mut self.store, ()).await?.into();
        let memory = self.store.data().memory().data(&self.store);
        Ok(Pristine { image: BaseImage::capture(memory), globals, state, entry, input })
    }

    /// Puts the entry of a compiled script into the guest's table.
    pub async fn link(&mut self, pristine: &Pristine, script: &Compiled) -> wasmtime::Result<()> {
        if self.current == Some(script.number) {
            return Ok(());
        }
        let known = self.linked.iter().find(|linked| linked.number == script.number);
        let entry = match known {
            Some(linked) => linked.entry,
            None => self.instantiate(script).await?,
        };
        self.table.set(&mut self.store, pristine.entry, Ref::Func(Some(entry)))?;
        self.current = Some(script.number);
        Ok(())
    }

    /// Makes an instance of a side module beside the guest; returns its entry.
    async fn instantiate(&mut self, script: &Compiled) -> wasmtime::Result<Func> {
        let mut imports = Vec::new();
        for import in script.code.module.imports() {
            let helper = self.instance.get_export(&mut self.store, import.name());
            imports.push(helper.ok_or_else(|| wasmtime::Error::msg("the guest lacks a helper"))?);
        }
        let side = Instance::new_async(&mut self.store, &script.code.module, &imports).await?;
        let entry = side.get_func(&mut self.store, ENTRY);
        let entry = entry.ok_or_else(|| wasmtime::Error::msg("a side module lacks its entry"))?;
        self.linked.push(Linked { number: script.number, entry, _code: script.code.clone() });
        Ok(entry)
    }

    /// Takes the entry of the script that was linked last out of the table.
    pub fn unlink(&mut self, pristine: &Pristine) -> wasmtime::Result<()> {
        if self.current.take().is_some() {
            self.table.set(&mut self.store, pristine.entry, Ref::Func(None))?;
        }
        Ok(())
    }

    /// Whether a compiled script is linked.
    pub fn is_linked(&self) -> bool {
        self.current.is_some()
    }

    /// Whether so many scripts were linked that a new sandbox is the better one: they stay in this one's store.
    pub fn is_worn_out(&self) -> bool {
        self.linked.len() >= MOST_LINKED
    }

    /// Size of the linear memory in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.store.data().memory().data_size(&self.store)
    }

    /// Puts every byte of memory and every mutable global into the state of the image, and all counters to the
    /// start of a run under `budget`. The run pays for what is copied of a large image.
    pub async fn rewind(
        &mut self,
        pristine: &Pristine,
        script: Option<&Image>,
        budget: &Budget,
    ) -> wasmtime::Result<()> {
        let copied = script.map_or(0, Image::copied_bytes).saturating_sub(FREE_IMAGE_BYTES);
        let copy_fuel = (copied / IMAGE_BYTES_PER_FUEL) as u64;
        if copy_fuel > budget.fuel {
            return Err(Ending::Limit(Limit::Fuel).into());
        }
        let memory = self.store.data().memory();
        self.store.data_mut().memory_limit = usize::MAX;
        let wanted = script.map_or(0, Image::memory_bytes).max(pristine.image.len());
        let missing = wanted.saturating_sub(memory.data_size(&self.store)).div_ceil(WASM_PAGE);
        if missing > 0 {
            memory.grow_async(&mut self.store, missing as u64).await?;
        }
        self.restore(pristine, script);
        for (global, value) in self.globals.iter().zip(&pristine.globals) {
            global.set(&mut self.store, *value)?;
        }
        self.store.fuel_async_yield_interval(Some(budget.slice_fuel.max(1)))?;
        self.store.set_fuel(budget.fuel)?;
        let state = self.store.data_mut();
        (state.compile_fuel, state.host_fuel) = (copy_fuel, 0);
        (state.fuel_limit, state.compiles) = (budget.fuel, false);
        state.unyielded = copy_fuel;
        state.slice_fuel = budget.slice_fuel;
        state.calls = 0;
        state.unfinished = false;
        state.looked_at = Instant::now();
        state.deadline = state.looked_at + budget.time;
        state.memory_limit = budget.memory_bytes.max(wanted);
        Ok(())
    }

    /// Begins the compilation of a script, which has fuel of its own: whether a script may run must not depend on whether
    /// another run has compiled it.
    pub fn begin_compilation(&mut self, budget: &Budget) -> wasmtime::Result<()> {
        self.store.set_fuel(budget.compile_fuel)?;
        let state = self.store.data_mut();
        (state.fuel_limit, state.compiles) = (budget.compile_fuel, true);
        Ok(())
    }

    /// Ends the preparation of a run: from here on the run has its fuel to itself.
    pub fn begin_run(&mut self, budget: &Budget) -> wasmtime::Result<()> {
        let (_, compile_fuel) = self.used_fuel();
        self.store.set_fuel(budget.fuel)?;
        let state = self.store.data_mut();
        (state.compile_fuel, state.host_fuel) = (compile_fuel, 0);
        (state.fuel_limit, state.compiles) = (budget.fuel, false);
        Ok(())
    }

    /// Fuel of the run so far, and of its preparation.
    pub fn used_fuel(&self) -> (u64, u64) {
        let state = self.store.data();
        let left = self.store.get_fuel().unwrap_or(0);
        let used = state.fuel_limit.saturating_sub(left).saturating_add(state.host_fuel);
        match state.compiles {
            true => (0, state.compile_fuel.saturating_add(used)),
            false => (used, state.compile_fuel),
        }
    }

    /// Puts the memory back. A sandbox that is used again gets a guard, so that next time only what was written
    /// has to be.
    pub fn restore(&mut self, pristine: &Pristine, script: Option<&Image>) {
        let handle = self.store.data().memory();
        let memory = handle.data_mut(&mut self.store);
        let image = &pristine.image;
        if let Some(guard) = &self.guard {
            let written = guard.written();
            image.restore_written(memory, script, written, guard.len());
            self.rewinds += 1;
            if written.count_ones() > MOST_WRITTEN || self.rewinds >= MOST_REWINDS {
                // Somebody wrote all over the place, or more than others do: begin anew, or every later run would pay for it.
                self.rewinds = 0;
                image.restore_written(memory, None, guard.written(), guard.len());
                guard.protect();
                image.restore_written(memory, script, 0, guard.len());
            }
            return;
        }
        // The memory of a new instance is zero beyond what the image covers.
        let dirty = if self.used { memory.len() } else { image.len() };
        self.used = true;
        image.restore(&mut memory[..dirty], None);
        let watched = image.len().min(WATCHED_PAGES * PAGE);
        if self.reused {
            // SAFETY: the linear memory lies at this place, page-aligned, until the store is dropped: it never moves
            // (`Config::memory_may_move`), and the guard is dropped before the store.
            self.guard = unsafe { Guard::new(memory.as_mut_ptr(), watched) };
        }
        image.lay_over(memory, script);
    }

    /// Copies `bytes` into a buffer that the guest provides for the input of its next `compile`, `load` or `run`.
    pub async fn write_input(&mut self, pristine: &Pristine, bytes: &[u8]) -> wasmtime::Result<u32> {
        let len = u32::try_from(bytes.len()).map_err(|_| Ending::Limit(Limit::Memory))?;
        let at = if len <= INPUT_STATIC {
            pristine.input
        } else {
            self.input.call_async(&mut self.store, len).await?
        } as usize;
        if at == 0 {
            return Err(Ending::Limit(Limit::Memory).into());
        }
        let memory = self.store.data().memory().data_mut(&mut self.store);
        let target = memory.get_mut(at..at + bytes.len());
        target.ok_or(Ending::Misuse("a pointer outside its memory"))?.copy_from_slice(bytes);
        Ok(len)
    }

    /// The bytes that a packed result (pointer and length) of the guest names.
    pub fn result(&self, packed: u64) -> wasmtime::Result<&[u8]> {
        let (at, len) = ((packed >> 32) as usize, (packed & 0xFFFF_FFFF) as usize);
        let memory = self.store.data().memory().data(&self.store);
        memory.get(at..at + len).ok_or_else(|| Ending::Misuse("a pointer outside its memory").into())
    }
}

/// Scripts that are linked into a sandbox before another takes its place. Measured: to link one takes 2 us and less than 1 KB,
/// a new sandbox 100 us.
const MOST_LINKED: usize = 250;
/// Bytes of an image that are copied for nothing: those of ordinary scripts are smaller.
pub(crate) const FREE_IMAGE_BYTES: usize = 256 << 10;
/// Bytes of an image that cost a unit of fuel. Measured: copying a page into new memory takes about a microsecond, in
/// which a run uses some 500 units.
pub(crate) const IMAGE_BYTES_PER_FUEL: usize = 8;
/// Written pages beyond which a sandbox's pages are all protected anew.
const MOST_WRITTEN: u32 = 32;
/// Rewinds after which they are in any case: it costs as much as a few runs.
pub(crate) const MOST_REWINDS: u32 = 4096;
/// Bytes of a WebAssembly page.
const WASM_PAGE: usize = 64 * 1024;
