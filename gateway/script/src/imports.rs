//! The guest's imports: the whole of what a script can reach. Everything it passes is checked here.

use std::future::Future;
use std::task::Poll;

use guest_lua::abi::{IMPORT_MODULE, REPLY_STATIC};
use tokio::time::timeout_at;
use wasmtime::{AsContextMut, Caller, Linker};

use crate::budget::Limit;
use crate::host::{CallFlags, Host, HostCall, LogLevel};
use crate::sandbox::{Ending, State};

/// Most arguments of one call; Redis' own limit for a command.
const MAX_ARGS: u32 = 1024 * 1024;
/// Most bytes of one log line that are looked at.
const MAX_LOG_BYTES: u32 = 64 * 1024;
/// What `call` answers when the reply has to be fetched.
const FETCH: i32 = -1;

/// Registers the imports.
pub(crate) fn register<H: Host>(linker: &mut Linker<State<H>>) -> wasmtime::Result<()> {
    linker.func_wrap(IMPORT_MODULE, "call", call::<H>)?;
    linker.func_wrap_async(IMPORT_MODULE, "fetch", fetch::<H>)?;
    linker.func_wrap(IMPORT_MODULE, "log", log::<H>)?;
    linker.func_wrap(IMPORT_MODULE, "frames", frames::<H>)?;
    Ok(())
}

/// A stretch of guest memory, if it lies inside.
fn window(memory: &[u8], at: u32, len: u32) -> wasmtime::Result<&[u8]> {
    let at = at as usize;
    memory.get(at..at + len as usize).ok_or_else(|| Ending::Misuse("a pointer outside its memory").into())
}

fn call<H: Host>(
    mut caller: Caller<'_, State<H>>,
    argv: u32,
    argc: u32,
    reply: u32,
    capacity: u32,
    flags: u32,
) -> wasmtime::Result<i32> {
    follow_pace(&mut caller)?;
    let memory = caller.data().memory();
    let (bytes, state) = memory.data_and_store_mut(&mut caller);
    if argc == 0 || argc > MAX_ARGS {
        return Err(Ending::Misuse("a call without arguments or with too many").into());
    }
    let mut few = [&[][..]; 8];
    let many: Vec<&[u8]>;
    let pairs = window(bytes, argv, argc * 8)?.chunks_exact(8);
    let arg = |pair: &[u8]| {
        let word = |at: usize| u32::from_le_bytes([pair[at], pair[at + 1], pair[at + 2], pair[at + 3]]);
        window(bytes, word(0), word(4))
    };
    let args = if argc as usize <= few.len() {
        for (slot, pair) in few.iter_mut().zip(pairs) {
            *slot = arg(pair)?;
        }
        &few[..argc as usize]
    } else {
        many = pairs.map(arg).collect::<wasmtime::Result<_>>()?;
        &many[..]
    };
    state.calls += 1;
    state.reply.clear();
    let host = state.host.as_mut().expect("a host is present while the guest runs");
    match host.call(args, CallFlags(flags), &mut state.reply) {
        HostCall::Done(cost) => state.charge(cost),
        HostCall::Later => {
            state.unfinished = true;
            return Ok(FETCH);
        }
        HostCall::TooLarge => return Err(Ending::Limit(Limit::Memory).into()),
        HostCall::Stop => return Err(Ending::Stopped.into()),
    }
    if state.unyielded > state.slice_fuel {
        // `fetch` can give the thread away, this import cannot.
        return Ok(FETCH);
    }
    let is_unread = CallFlags(flags).unused() && !state.reply.starts_with(b"-");
    let len = if is_unread { 0 } else { deliver(bytes, &state.reply, reply, capacity)? };
    let host_fuel = state.host_fuel;
    if caller.get_fuel()? < host_fuel {
        return Err(Ending::Limit(Limit::Fuel).into());
    }
    Ok(len)
}

/// Slices are as long from here on as the host wants them.
fn follow_pace<H: Host>(caller: &mut Caller<'_, State<H>>) -> wasmtime::Result<()> {
    let state = caller.data_mut();
    let wanted = state.host.as_ref().and_then(Host::slice_fuel);
    match wanted {
        Some(wanted) if wanted != state.slice_fuel => {
            state.slice_fuel = wanted;
            caller.as_context_mut().fuel_async_yield_interval(Some(wanted.max(1)))
        }
        _ => Ok(()),
    }
}

/// Copies the reply to the guest if it fits; its length.
fn deliver(memory: &mut [u8], bytes: &[u8], at: u32, capacity: u32) -> wasmtime::Result<i32> {
    let len = i32::try_from(bytes.len()).map_err(|_| Ending::Misuse("a reply of more than 2 GiB"))?;
    if bytes.len() <= capacity as usize {
        let at = at as usize;
        let target = memory.get_mut(at..at + bytes.len());
        target.ok_or(Ending::Misuse("a pointer outside its memory"))?.copy_from_slice(bytes);
    }
    Ok(len)
}

fn fetch<H: Host>(
    mut caller: Caller<'_, State<H>>,
    (reply, capacity): (u32, u32),
) -> Box<dyn Future<Output = wasmtime::Result<i32>> + Send + '_> {
    Box::new(async move {
        let state = caller.data_mut();
        if std::mem::take(&mut state.unfinished) {
            let host = state.host.as_mut().expect("a host is present while the guest runs");
            match timeout_at(state.deadline.into(), host.finish(&mut state.reply)).await {
                Ok(HostCall::Done(cost)) => state.charge(cost),
                Ok(HostCall::TooLarge) => return Err(Ending::Limit(Limit::Memory).into()),
                Ok(HostCall::Stop | HostCall::Later) => return Err(Ending::Stopped.into()),
                Err(_) => return Err(Ending::Limit(Limit::Time).into()),
            }
        }
        if caller.data().unyielded > caller.data().slice_fuel {
            caller.data_mut().unyielded = 0;
            yield_once().await;
        }
        if caller.get_fuel()? < caller.data().host_fuel {
            return Err(Ending::Limit(Limit::Fuel).into());
        }
        let memory = caller.data().memory();
        let (bytes, state) = memory.data_and_store_mut(&mut caller);
        deliver(bytes, &state.reply, reply, capacity)
    })
}

/// Lets others on this thread have a turn.
fn yield_once() -> impl Future<Output = ()> {
    let mut yielded = false;
    std::future::poll_fn(move |context| {
        if yielded {
            return Poll::Ready(());
        }
        yielded = true;
        context.waker().wake_by_ref();
        Poll::Pending
    })
}

fn log<H: Host>(mut caller: Caller<'_, State<H>>, level: u32, text: u32, len: u32) -> wasmtime::Result<()> {
    let memory = caller.data().memory();
    let (bytes, state) = memory.data_and_store_mut(&mut caller);
    let level = match level {
        0 => LogLevel::Debug,
        1 => LogLevel::Verbose,
        2 => LogLevel::Notice,
        3 => LogLevel::Warning,
        _ => return Err(Ending::Misuse("an unknown log level").into()),
    };
    let text = window(bytes, text, len)?;
    let text = &text[..text.len().min(MAX_LOG_BYTES as usize)];
    state.host.as_mut().expect("a host is present while the guest runs").log(level, text);
    Ok(())
}

/// Which functions lead to the next call; 1 if more of that is wanted. Each byte costs a unit of fuel.
fn frames<H: Host>(mut caller: Caller<'_, State<H>>, description: u32, len: u32) -> wasmtime::Result<i32> {
    let memory = caller.data().memory();
    let (bytes, state) = memory.data_and_store_mut(&mut caller);
    if len > REPLY_STATIC {
        return Err(Ending::Misuse("too long a description of functions").into());
    }
    let description = window(bytes, description, len)?;
    let host = state.host.as_mut().expect("a host is present while the guest runs");
    let wants_more = host.frames(description);
    state.charge(u64::from(len));
    let host_fuel = state.host_fuel;
    if caller.get_fuel()? < host_fuel {
        return Err(Ending::Limit(Limit::Fuel).into());
    }
    Ok(wants_more.into())
}
