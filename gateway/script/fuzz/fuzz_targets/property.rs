//! What holds for every text as a script. Shared by the fuzz target and by the test that CI runs,
//! `gateway/script/tests/it/mutations.rs`.

use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use script::{
    Budget, CallFlags, Compile, Finishing, Host, HostCall, Instances, LogLevel, Outcome, RunInput, Runtime,
    RuntimeConfig, Script,
};

/// Small, so that endless scripts end soon. Time is ample: it would make results depend on the machine.
const BUDGET: Budget = Budget {
    fuel: 2_000_000,
    compile_fuel: 2_000_000,
    time: Duration::from_secs(3600),
    memory_bytes: 2 << 20,
    reply_bytes: 1 << 20,
    slice_fuel: 100_000,
};

/// Answers with a reply of each kind.
struct Stub;

impl Host for Stub {
    fn call(&mut self, args: &[&[u8]], flags: CallFlags, reply: &mut Vec<u8>) -> HostCall {
        let answer: &[u8] = match args[0].to_ascii_lowercase().as_slice() {
            _ if flags.acl_check() => b":1\r\n",
            b"get" | b"echo" => b"$5\r\nvalue\r\n",
            b"set" | b"ping" | b"select" => b"+OK\r\n",
            b"incr" | b"lpush" | b"rpush" | b"sadd" => b":7\r\n",
            b"lrange" | b"mget" => b"*3\r\n$1\r\na\r\n$-1\r\n*1\r\n:1\r\n",
            b"hgetall" if flags.resp3() => b"%2\r\n$1\r\na\r\n,1.5\r\n#t\r\n_\r\n",
            b"smembers" if flags.resp3() => b"~2\r\n=5\r\ntxt:x\r\n(12345678901234567890\r\n",
            b"getrange" => {
                reply.extend_from_slice(b"$70000\r\n");
                reply.resize(reply.len() + 70_000, b'x');
                b"\r\n"
            }
            _ => b"-ERR unknown command\r\n",
        };
        reply.extend_from_slice(answer);
        HostCall::Done(100)
    }

    fn finish<'a>(&'a mut self, _: &'a mut Vec<u8>) -> Finishing<'a> {
        unreachable!("this host never says later")
    }

    fn log(&mut self, _: LogLevel, _: &[u8]) {}
}

/// A runtime to try scripts in.
pub struct Lab {
    runtime: Runtime<Stub>,
    input: Vec<u8>,
}

impl Lab {
    /// Compiles the guest.
    pub fn new() -> Lab {
        let config = RuntimeConfig {
            instances: Instances::Rewind,
            concurrency: 1,
            max_memory_bytes: BUDGET.memory_bytes,
            compile: Compile::Never,
        };
        let (keys, args): ([&[u8]; 1], [&[u8]; 2]) = ([b"key"], [b"1", b"two"]);
        let input = RunInput {
            name: "f",
            keys: &keys,
            args: &args,
            clock_seconds: 1.5,
            seed: 7,
            function: false,
            frames: false,
        };
        Lab { runtime: finish(Runtime::new(config)).expect("the guest compiles"), input: input.encode() }
    }

    fn run(&self, script: &Script) -> Outcome {
        finish(self.runtime.run(script, &self.input, &BUDGET, Stub)).1
    }

    /// Runs `source` from its text and from its image; its reply if it has one.
    ///
    /// # Panics
    /// When the sandbox breaks, when the same run has two results, or when the next script notices anything.
    pub fn check(&self, source: &[u8]) -> Option<Vec<u8>> {
        let script = Script::new(source);
        let first = self.run(&script);
        if let Outcome::Trap(_) | Outcome::Stopped = first {
            panic!("{first:?} of {}", source.escape_ascii());
        }
        // The second run makes the image, the third uses it and has fuel left that compiling would have taken.
        assert!(self.run(&script) == first, "the second run differs: {}", source.escape_ascii());
        let third = self.run(&script);
        let alike = third == first || matches!(first, Outcome::Limit(_));
        assert!(alike && !matches!(third, Outcome::Trap(_)), "{third:?} of {}", source.escape_ascii());
        let next = self.run(&Script::new(b"return #KEYS + #ARGV"));
        assert_eq!(next, Outcome::Reply(b":3\r\n".to_vec()), "after {}", source.escape_ascii());
        match first {
            Outcome::Reply(reply) => Some(reply),
            _ => None,
        }
    }
}

/// Polls to the end. Runs wait for nothing: they only give the thread away.
fn finish<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return output;
        }
    }
}
