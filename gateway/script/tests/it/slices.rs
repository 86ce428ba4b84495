//! How often a run lets others have its thread.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::time::Duration;

use script::{
    Budget, CallFlags, Compile, Finishing, Host, HostCall, Instances, LogLevel, Outcome, RunInput, Runtime,
    RuntimeConfig, Script,
};

/// Wants slices of this size.
struct Paced(Option<u64>);

impl Host for Paced {
    fn call(&mut self, _: &[&[u8]], _: CallFlags, reply: &mut Vec<u8>) -> HostCall {
        reply.extend_from_slice(b"+OK\r\n");
        HostCall::Done(1)
    }

    fn finish<'a>(&'a mut self, _: &'a mut Vec<u8>) -> Finishing<'a> {
        unreachable!("this host never says later")
    }

    fn log(&mut self, _: LogLevel, _: &[u8]) {}

    fn slice_fuel(&self) -> Option<u64> {
        self.0
    }
}

/// How many slices a run of `source` takes.
async fn slices(runtime: &Runtime<Paced>, source: &str, slice_fuel: u64, wanted: Option<u64>) -> usize {
    let budget = Budget {
        fuel: 1 << 32,
        compile_fuel: 1 << 32,
        time: Duration::from_secs(600),
        memory_bytes: 16 << 20,
        reply_bytes: 1 << 20,
        slice_fuel,
    };
    let input = RunInput {
        name: "f",
        keys: &[],
        args: &[],
        clock_seconds: 0.0,
        seed: 1,
        function: false,
        frames: false,
    }
    .encode();
    let script = Script::new(source.as_bytes());
    let mut run = pin!(runtime.run(&script, &input, &budget, Paced(wanted)));
    let mut slices = 0;
    let (_, outcome, _) = poll_fn(|context| {
        slices += 1;
        run.as_mut().poll(context)
    })
    .await;
    assert_eq!(outcome, Outcome::Reply(b":1\r\n".into()));
    slices
}

#[tokio::test]
async fn slices_are_as_long_as_the_host_wants_from_the_next_call_on() {
    let config = RuntimeConfig {
        instances: Instances::Rewind,
        concurrency: 1,
        max_memory_bytes: 16 << 20,
        compile: Compile::Never,
    };
    let runtime = Runtime::new(config).await.unwrap();
    let counts = "for i = 1, 20000 do end return 1";
    let calls_and_counts = format!("redis.call('PING') {counts}");
    let whole = 1 << 40;

    assert_eq!(slices(&runtime, &calls_and_counts, whole, None).await, 1);
    let short = slices(&runtime, &calls_and_counts, 10_000, None).await;
    assert!(short > 10, "{short}");
    // The budget's word is forgotten with the run: the sandbox is the same.
    assert_eq!(slices(&runtime, &calls_and_counts, whole, None).await, 1);

    assert_eq!(slices(&runtime, counts, whole, Some(10_000)).await, 1, "it is asked at calls only");
    let shortened = slices(&runtime, &calls_and_counts, whole, Some(10_000)).await;
    assert!(shortened > 10, "{shortened}");
    let lengthened = slices(&runtime, &calls_and_counts, 10_000, Some(whole)).await;
    assert!(lengthened < short, "{lengthened} of {short}");
}
