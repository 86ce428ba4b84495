//! What a guest can ask for.

use std::any::Any;
use std::future::Future;
use std::pin::Pin;

/// What a guest says about a call besides its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallFlags(pub u32);

impl CallFlags {
    /// The script asked for RESP3 replies with `redis.setresp(3)`.
    pub fn resp3(self) -> bool {
        self.0 & guest_lua::abi::CALL_RESP3 != 0
    }

    /// The script does not look at the result, or cannot: it is nil for `redis.acall` and `redis.apcall`.
    pub fn unused(self) -> bool {
        self.0 & (guest_lua::abi::CALL_UNUSED | guest_lua::abi::CALL_ASYNC) != 0
    }

    /// It was `redis.acall` or `redis.apcall`.
    pub fn explicitly_async(self) -> bool {
        self.0 & guest_lua::abi::CALL_ASYNC != 0
    }

    /// It was `redis.pcall` or `redis.apcall`: an error comes back as a value.
    pub fn protected(self) -> bool {
        self.0 & guest_lua::abi::CALL_PROTECTED != 0
    }

    /// `redis.acl_check_cmd`: may the user run this? Answered with an integer 0 or 1.
    pub fn acl_check(self) -> bool {
        self.0 & guest_lua::abi::CALL_ACL_CHECK != 0
    }
}

/// How a call went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostCall {
    /// The reply is there; it cost that much fuel.
    Done(u64),
    /// The answer takes a while: [`Host::finish`] gives it.
    Later,
    /// The reply has more bytes than the run may hold.
    TooLarge,
    /// The run must end now; why is known to the host.
    Stop,
}

/// Log levels of `redis.log`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel {
    /// `redis.LOG_DEBUG`
    Debug,
    /// `redis.LOG_VERBOSE`
    Verbose,
    /// `redis.LOG_NOTICE`
    Notice,
    /// `redis.LOG_WARNING`
    Warning,
}

/// The world of one run.
pub trait Host: Any + Send {
    /// Runs one command and appends its reply, as RESP bytes in the protocol that `flags` asks for.
    ///
    /// `args` holds at least the command's name; the bytes lie in the guest's memory.
    fn call(&mut self, args: &[&[u8]], flags: CallFlags, reply: &mut Vec<u8>) -> HostCall;

    /// Goes on with a call that was answered with [`HostCall::Later`], and says how it went; never later again. Dropped
    /// when the run's time is over.
    fn finish<'a>(&'a mut self, reply: &'a mut Vec<u8>) -> Finishing<'a>;

    /// `redis.log`.
    fn log(&mut self, level: LogLevel, text: &[u8]);

    /// Which functions lead to the next call, as [`crate::frames::decode`] reads it. Told before each call of a run that was
    /// asked for it; whether more of that is wanted.
    fn frames(&mut self, _description: &[u8]) -> bool {
        false
    }

    /// Fuel after which the run lets others have its thread from now on, if that changes. Asked before each call.
    fn slice_fuel(&self) -> Option<u64> {
        None
    }
}

/// A call that is being finished.
pub type Finishing<'a> = Pin<Box<dyn Future<Output = HostCall> + Send + 'a>>;

/// A host of a type that the holder of the [`crate::Runtime`] does not know.
pub struct AnyHost(Box<dyn Host>);

impl AnyHost {
    /// Hides the type of `host`. Boxed by the caller, who gets the same box back.
    pub fn new(host: Box<impl Host>) -> AnyHost {
        AnyHost(host)
    }

    /// The host, if it is a `T`.
    pub fn downcast<T: Host>(self) -> Option<Box<T>> {
        let host: Box<dyn Any> = self.0;
        host.downcast().ok()
    }
}

impl Host for AnyHost {
    fn call(&mut self, args: &[&[u8]], flags: CallFlags, reply: &mut Vec<u8>) -> HostCall {
        self.0.call(args, flags, reply)
    }

    fn finish<'a>(&'a mut self, reply: &'a mut Vec<u8>) -> Finishing<'a> {
        self.0.finish(reply)
    }

    fn log(&mut self, level: LogLevel, text: &[u8]) {
        self.0.log(level, text);
    }

    fn frames(&mut self, description: &[u8]) -> bool {
        self.0.frames(description)
    }

    fn slice_fuel(&self) -> Option<u64> {
        self.0.slice_fuel()
    }
}
